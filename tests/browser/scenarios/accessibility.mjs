/**
 * Every page in the light and the dark theme: no accessibility violations, and a screenshot of
 * each.
 */

import assert from "node:assert/strict";
import { APPROVAL, BrowserUser, RUN_END } from "../browser.mjs";

async function visit(user, name, show, violations) {
  await show();
  await user.screenshot(name);
  violations.push(...await user.findViolations(name));
}

export default async function accessibility({ server, browser }) {
  const violations = [];
  for (const dark of [false, true]) {
    const ann = await BrowserUser.open(browser, server, { dark });
    const { page } = ann;
    const suffix = dark ? "-dark" : "";
    const check = (name, show) => visit(ann, name + suffix, show, violations);
    await check("chat-new", () => page.locator(".welcome").waitFor());
    if (!dark) {
      await ann.sendMessage("Which ships were destroyed most in Jita last week?", RUN_END);
      await ann.sendMessage("Get production cost for Vexor", RUN_END);
      await ann.sendMessage("Transfer 100M ISK to character XYZ", RUN_END);
      await ann.sendMessage("Buy 1000 Tritanium at market price", APPROVAL);
      await ann.button("Approve").click();
      await page.locator(RUN_END).waitFor();
    }
    await ann.sendMessage("Find profitable manufacturing opportunities in Jita", RUN_END);
    const longSessionId = ann.sessionId();
    await check("chat-answer", async () => {
      await page.locator(".call").first().locator("summary").click();
      await page.locator(".session-row:not(:has([aria-current]))").first().hover();
    });
    await ann.sendMessage("Stock up", APPROVAL);
    const waitingSessionId = ann.sessionId();
    await check("chat-approval", async () => {
      await page.getByRole("button", { name: "Edit arguments" }).first().click();
      await page.getByRole("textbox", { name: /^quantity/ }).fill("50000");
      await page.locator(".diff .added").waitFor();
    });
    await check("chat-side-by-side", async () => {
      await ann.openPage(`chat/${longSessionId},${waitingSessionId}`);
      await page.locator(".pane").nth(1).locator(APPROVAL).waitFor();
      await page.locator(".pane").nth(0).locator(RUN_END).waitFor();
    });
    await check("approvals", async () => {
      await ann.openPage("approvals");
      await page.locator(APPROVAL).first().waitFor();
    });
    await check("approvals-closed", async () => {
      await page.getByRole("button", { name: "Closed" }).click();
      await page.locator(".table tbody tr").first().waitFor();
    });
    await check("events", async () => {
      await ann.openPage("events");
      await page.locator(".virtual-row", { hasText: "tool_call_completed" }).last().click();
      await page.locator(".event-link").first().waitFor();
    });
    await check("timeline", async () => {
      await ann.openPage(`events/timeline?session=${longSessionId}`);
      await page.locator(".span").nth(4).waitFor();
    });
    await check("actors", async () => {
      await ann.openPage("actors");
      await page.locator(".actors .badge.warn").first().waitFor();
      await page.getByRole("button", { name: "desk" }).click();
    });
    await check("tools-all", async () => {
      await ann.openPage("tools");
      await page.locator(".tools tbody tr").first().hover();
    });
    await check("tools", async () => {
      await page.getByRole("button", { name: "market_order_create" }).click();
      await page.locator(".dry-run").waitFor();
    });
    await check("usage", async () => {
      await ann.openPage("usage");
      await page.locator(".chart canvas").nth(2).waitFor();
    });
    await check("context", async () => {
      await ann.openPage(`context/${longSessionId}`);
      await page.locator(".context, .empty").waitFor();
    });
    await check("audit", async () => {
      await ann.openPage("audit");
      await page.getByRole("button", { name: /^Row \d+$/ }).first().click();
      await page.locator(".event-detail").waitFor();
    });
    await ann.close();
  }
  const stranger = await BrowserUser.open(browser, server, { token: null });
  await visit(stranger, "signed-out", async () => {
    await stranger.page.goto(server.url);
    await stranger.page.getByText("You are not signed in").waitFor();
  }, violations);
  await stranger.close();
  assert.deepEqual(violations, []);
}
