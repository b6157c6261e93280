/** Who is not an administrator sees their own rooms; who is signed out is told how to come in. */

import assert from "node:assert/strict";
import { ASKED, ENDED, Person } from "../browser.mjs";

export default async function roles({ house, browser }) {
  const { key, key_id } = await house.ask("POST", "/admin/keys", { user_id: "ada", role: "user" });
  const ada = await Person.sit(browser, house, { token: null });
  const { page } = ada;
  await page.goto(house.url);
  await page.getByLabel("Token or API key").fill(key);
  await ada.button("Sign in").click();
  await page.locator(".welcome").waitFor();
  assert.ok(!page.url().includes(key), "the key is not in the address any more");
  assert.equal(await page.getByRole("link", { name: "Actors" }).count(), 0);
  assert.equal(await page.getByRole("link", { name: "Audit" }).count(), 0);
  // A session may not do more than its user allows; what is above can't be chosen, and says why.
  await page.getByRole("option", { name: "as your settings say: L1" }).waitFor({ state: "attached" });
  const levels = await page.getByRole("combobox", { name: "May do" }).locator("option").evaluateAll((all) => all.map((one) => [one.textContent, one.disabled]));
  assert.deepEqual(levels.slice(2), [["L1 recommendations", false], ["L2 assisted (above yours)", true], ["L3 supervised (above yours)", true]]);
  await ada.say("Buy 1000 Tritanium at market price", ASKED);
  await page.getByRole("link", { name: /Approvals 1 waiting/ }).waitFor();
  await page.getByRole("button", { name: "L1 recommendations" }).click();
  await page.getByText("which end at L1").first().waitFor();
  assert.deepEqual(await page.getByRole("radio").evaluateAll((all) => all.map((one) => one.disabled)), [false, false, true, true]);
  await ada.picture("session-settings");
  await page.keyboard.press("Escape");

  // Somebody else's session does not exist.
  const other = await house.ask("POST", "/agent/session", { title: "not hers" });
  await ada.room(`chat/${other.session_id}`);
  await page.locator(".failed").waitFor();
  await page.goBack();
  await ada.button("Approve").click();
  await page.locator(ENDED).waitFor();
  await ada.room("events");
  await page.locator(".virtual-row .event-type", { hasText: /^done$/ }).waitFor();

  // An approver hears of questions in sessions that are not theirs, at once, and sees nothing else of them.
  const approver = await house.ask("POST", "/admin/keys", { user_id: "bob", role: "approver" });
  const bob = await Person.sit(browser, house, { token: approver.key });
  await bob.room("approvals");
  await bob.sees("Nobody waits for you");
  await ada.say("Buy 500 Pyerite at market price", ASKED);
  await bob.page.locator(ASKED).waitFor();
  await bob.page.getByRole("link", { name: /Approvals 1 waiting/ }).waitFor();
  await bob.page.locator(ASKED).getByText("a conversation of ada").waitFor();
  assert.equal(await bob.page.locator(ASKED).getByRole("link").count(), 0, "it is not bob's to read");
  await bob.button("Approve").click();
  await bob.sees("Nobody waits for you");
  await page.locator(".closed-approval.good").getByText("Approved by bob").waitFor();
  await bob.room(`chat/${ada.session()}`);
  await bob.page.locator(".failed").waitFor();
  await bob.leave();

  // Her key is revoked: the page says so.
  await house.ask("DELETE", `/admin/keys/${key_id}`);
  await ada.room("approvals");
  await page.reload();
  await page.getByText("This browser is not signed in").waitFor();
  await ada.leave();
}
