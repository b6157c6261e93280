/** Users and approvers see only the pages and sessions of their role; a revoked key signs out. */

import assert from "node:assert/strict";
import { APPROVAL, BrowserUser, RUN_END } from "../browser.mjs";

export default async function roles({ server, browser }) {
  const { key, key_id } = await server.request("POST", "/admin/keys", { user_id: "ada", role: "user" });
  const ada = await BrowserUser.open(browser, server, { token: null });
  const { page } = ada;
  await page.goto(server.url);
  await page.getByLabel("Token or API key").fill(key);
  await ada.button("Sign in").click();
  await page.locator(".welcome").waitFor();
  assert.ok(!page.url().includes(key), "the key is not in the URL");
  assert.equal(await page.getByRole("link", { name: "Actors" }).count(), 0);
  assert.equal(await page.getByRole("link", { name: "Audit" }).count(), 0);
  // A session may not exceed the level of its owner. Higher levels are disabled with a reason.
  await page.getByRole("option", { name: "default: L1" }).waitFor({ state: "attached" });
  const levels = await page.getByRole("combobox", { name: "Autonomy" }).locator("option").evaluateAll((options) => options.map((option) => [option.textContent, option.disabled]));
  assert.deepEqual(levels.slice(2), [["L1 recommendations", false], ["L2 assisted (above limit)", true], ["L3 supervised (above limit)", true]]);
  await ada.sendMessage("Buy 1000 Tritanium at market price", APPROVAL);
  await page.getByRole("link", { name: /Approvals 1 waiting/ }).waitFor();
  await page.getByRole("button", { name: "L1 recommendations" }).click();
  await page.getByText("Above the limit of ada: L1.").first().waitFor();
  assert.deepEqual(await page.getByRole("radio").evaluateAll((radios) => radios.map((radio) => radio.disabled)), [false, false, true, true]);
  await ada.screenshot("session-settings");
  await page.keyboard.press("Escape");

  // A session of another user is not found.
  const otherSession = await server.request("POST", "/agent/session", { title: "not hers" });
  await ada.openPage(`chat/${otherSession.session_id}`);
  await page.locator(".failed").waitFor();
  await page.goBack();
  await ada.button("Approve").click();
  await page.locator(RUN_END).waitFor();
  await ada.openPage("events");
  await page.locator(".virtual-row .event-type", { hasText: /^done$/ }).waitFor();

  // An approver receives approvals of other users' sessions live, but cannot open these sessions.
  const approver = await server.request("POST", "/admin/keys", { user_id: "bob", role: "approver" });
  const bob = await BrowserUser.open(browser, server, { token: approver.key });
  await bob.openPage("approvals");
  await bob.waitForText("No pending approvals");
  await ada.sendMessage("Buy 500 Pyerite at market price", APPROVAL);
  await bob.page.locator(APPROVAL).waitFor();
  await bob.page.getByRole("link", { name: /Approvals 1 waiting/ }).waitFor();
  await bob.page.locator(APPROVAL).getByText("session of ada").waitFor();
  assert.equal(await bob.page.locator(APPROVAL).getByRole("link").count(), 0, "bob may not open the session");
  await bob.button("Approve").click();
  await bob.waitForText("No pending approvals");
  await page.locator(".closed-approval.good").getByText("Approved by bob").waitFor();
  await bob.openPage(`chat/${ada.sessionId()}`);
  await bob.page.locator(".failed").waitFor();
  await bob.close();

  // After her key is revoked, the page shows the sign-in form.
  await server.request("DELETE", `/admin/keys/${key_id}`);
  await ada.openPage("approvals");
  await page.reload();
  await page.getByText("You are not signed in").waitFor();
  await ada.close();
}
