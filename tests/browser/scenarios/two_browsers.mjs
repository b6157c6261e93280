/**
 * Two browsers on one session and a third on the inbox: an answer in one closes the approval in
 * all.
 */

import assert from "node:assert/strict";
import { APPROVAL, BrowserUser, RUN_END } from "../browser.mjs";

export default async function twoBrowsers({ server, browser }) {
  const ann = await BrowserUser.open(browser, server);
  const bob = await BrowserUser.open(browser, server);
  const eve = await BrowserUser.open(browser, server);
  await eve.openPage("approvals");
  await eve.waitForText("No pending approvals");

  await ann.sendMessage("Buy 1000 Tritanium at market price", APPROVAL);
  await bob.openPage(`chat/${ann.sessionId()}`);
  await bob.page.locator(APPROVAL).waitFor();
  await eve.page.locator(APPROVAL).waitFor();
  // The approval is announced to screen readers.
  const waitForAnnouncement = (user, text) => user.page.locator(".announcer").getByText(text).first().waitFor({ state: "attached" });
  await waitForAnnouncement(eve, "Approval needed: market_order_create");
  await waitForAnnouncement(ann, "Approval needed: market_order_create");
  await eve.page.getByRole("link", { name: /Approvals 1 waiting/ }).waitFor();

  await bob.button("Approve").click();
  for (const user of [ann, bob]) {
    await user.page.locator(RUN_END).waitFor();
    await user.page.locator(".closed-approval.good").waitFor();
    assert.equal(await user.page.locator(APPROVAL).count(), 0);
    await waitForAnnouncement(user, "Answer complete");
  }
  await eve.waitForText("No pending approvals");

  // An answer in the inbox closes the approval in the session.
  await ann.sendMessage("Buy 500 Pyerite at market price", APPROVAL);
  await eve.page.locator(APPROVAL).waitFor();
  await eve.button("Reject").click();
  await ann.page.locator(".closed-approval.bad").waitFor();

  // Both browsers end with the same text.
  await ann.sendMessage("Tell me a long story", ".markdown.streaming");
  await bob.openPage(`chat/${ann.sessionId()}`);
  for (const user of [ann, bob]) await user.page.locator(RUN_END).waitFor();
  const answerText = (user) => user.page.locator(".answer").last().innerText();
  assert.equal(await answerText(bob), await answerText(ann));

  await Promise.all([ann.close(), bob.close(), eve.close()]);
}
