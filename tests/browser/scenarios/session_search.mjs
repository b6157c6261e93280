/** The session list: the newest page, older pages on request, and a search in both. */

import assert from "node:assert/strict";
import { BrowserUser, RUN_END } from "../browser.mjs";

const NEWER_SESSIONS = 270;

export const setup = { configuration: "[limits]\nrequests_per_second = 10000" };

export default async function sessionSearch({ server, browser }) {
  await server.request("POST", "/agent/session", { title: "Which hangar?" });
  for (let n = 0; n < NEWER_SESSIONS; n += 30) {
    await Promise.all(Array.from({ length: 30 }, (_, index) => server.request("POST", "/agent/session", { title: `Number ${n + index}` })));
  }
  const ann = await BrowserUser.open(browser, server);
  const { page } = ann;
  const rows = page.locator(".session-row");
  await rows.first().waitFor();
  assert.equal(await rows.count(), 50);
  await page.getByRole("searchbox", { name: "Search sessions" }).fill("hangar");
  await ann.waitForText("Only the newest 50 sessions were searched.");
  await ann.checkPage("search-newest");
  await ann.button("Search older sessions").click();
  await rows.getByText("Which hangar?").waitFor();
  assert.equal(await ann.button("Search older sessions").count(), 0, "all sessions are loaded");
  await page.getByRole("searchbox", { name: "Search sessions" }).fill("nowhere");
  await ann.waitForText("No matches");

  // Loaded sessions stay in the list after a new event.
  await page.getByRole("searchbox", { name: "Search sessions" }).fill("");
  await ann.sendMessage("Hello", RUN_END);
  await page.locator(".session-row[class*=idle]").first().getByText("Hello").waitFor();
  assert.equal(await rows.count(), NEWER_SESSIONS + 2);
  await ann.close();
}
