/**
 * The empty, loading and error states of each page, and its recovery after the server was
 * unreachable.
 */

import assert from "node:assert/strict";
import { BrowserUser, RUN_END } from "../browser.mjs";

const PAGES = ["chat", "approvals", "events", "events/timeline", "actors", "tools", "usage", "context", "audit"];
const fileName = (pageName) => pageName.replace("/", "-");

export default async function pageStates({ server, browser }) {
  const ann = await BrowserUser.open(browser, server);
  const { page } = ann;
  await page.locator(".welcome").waitFor();

  // Empty states.
  for (const [pageName, text] of [["approvals", "No pending approvals"], ["events", "No events yet"], ["events/timeline", "No runs yet"], ["usage", "No data"], ["context", "No steps yet"], ["audit", "No audit rows yet"]]) {
    await ann.openPage(pageName);
    await ann.waitForText(text);
    await ann.checkPage(`empty-${fileName(pageName)}`);
  }

  // Loading states: a placeholder while a response is pending.
  for (const [pageName, path] of [["tools", "/agent/tools"], ["usage", "/agent/statistics"], ["audit", "/admin/audit"]]) {
    let respond;
    const released = new Promise((resolve) => { respond = resolve; });
    await page.route(`**${path}*`, async (route) => { await released; await route.continue(); });
    await ann.openPage(pageName);
    await page.locator(".loading .skeleton").waitFor();
    if (pageName === "tools") await ann.checkPage("loading-tools");
    respond();
    await page.locator(".loading").waitFor({ state: "detached" });
    await page.unroute(`**${path}*`);
  }

  // Error states: an error response is shown with a retry button.
  await page.route("**/agent/policy*", (route) => route.fulfill({ status: 503, contentType: "application/problem+json", body: JSON.stringify({ code: "unavailable", detail: "the database is unavailable" }) }));
  await ann.openPage("context");
  await ann.openPage("tools");
  await page.locator(".failed").getByText("the database is unavailable").waitFor();
  await ann.checkPage("failed-tools");
  await page.unroute("**/agent/policy*");
  await ann.button("Retry").click();
  await page.locator(".tools tbody tr").first().waitFor();

  // Server unreachable: loaded data stays, other pages show an error, and all of them recover.
  await ann.sendMessage("What is the current sell price of Tritanium in Jita?", RUN_END);
  await server.kill();
  await page.locator(".connection.lost").getByText("Retrying in").waitFor();
  await ann.checkPage("unreachable-chat");
  await page.setViewportSize({ width: 360, height: 740 });
  await page.locator(".offline-banner").getByText("Server unreachable").waitFor();
  await ann.checkPage("unreachable-phone");
  await page.setViewportSize({ width: 1360, height: 860 });
  for (const pageName of PAGES.slice(1)) {
    await ann.openPage(pageName);
    await page.locator(".app-main h1").waitFor();
    await page.locator(".loading").waitFor({ state: "detached" });
    await ann.screenshot(`unreachable-${fileName(pageName)}`);
    assert.equal(await page.locator("main.app-main").count(), 1, pageName);
  }
  await page.locator(".failed").getByText("loads again").waitFor();
  await server.restart();
  await page.locator(".table.audit tbody tr").first().waitFor();
  await page.locator(".connection.open").waitFor();
  for (const [pageName, selector] of [["tools", ".tools tbody tr"], ["usage", ".tile"], ["actors", ".actors tbody tr"], ["events", ".virtual-row"], ["context", ".context"]]) {
    await ann.openPage(pageName);
    await page.locator(selector).first().waitFor();
  }
  await ann.close();
}
