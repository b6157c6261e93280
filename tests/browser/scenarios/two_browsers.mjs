/** Two browsers on one session, and a third on the inbox: what one answers is answered everywhere. */

import assert from "node:assert/strict";
import { ASKED, ENDED, Person } from "../browser.mjs";

export default async function twoBrowsers({ house, browser }) {
  const ann = await Person.sit(browser, house);
  const bob = await Person.sit(browser, house);
  const eve = await Person.sit(browser, house);
  await eve.room("approvals");
  await eve.sees("Nobody waits for you");

  await ann.say("Buy 1000 Tritanium at market price", ASKED);
  await bob.room(`chat/${ann.session()}`);
  await bob.page.locator(ASKED).waitFor();
  await eve.page.locator(ASKED).waitFor();
  // Whoever does not see the page hears of it.
  const heard = (person, text) => person.page.locator(".announcer").getByText(text).first().waitFor({ state: "attached" });
  await heard(eve, "Approval needed: market_order_create");
  await heard(ann, "Approval needed: market_order_create");
  await eve.page.getByRole("link", { name: /Approvals 1 waiting/ }).waitFor();

  await bob.button("Approve").click();
  for (const person of [ann, bob]) {
    await person.page.locator(ENDED).waitFor();
    await person.page.locator(".closed-approval.good").waitFor();
    assert.equal(await person.page.locator(ASKED).count(), 0);
    await heard(person, "Answer complete");
  }
  await eve.sees("Nobody waits for you");

  // Answered from the inbox, it is answered in the conversation.
  await ann.say("Buy 500 Pyerite at market price", ASKED);
  await eve.page.locator(ASKED).waitFor();
  await eve.button("Reject").click();
  await ann.page.locator(".closed-approval.bad").waitFor();

  // Both see the same text, letter by letter the same in the end.
  await ann.say("Tell me a long story", ".markdown.streaming");
  await bob.room(`chat/${ann.session()}`);
  for (const person of [ann, bob]) await person.page.locator(ENDED).waitFor();
  const said = (person) => person.page.locator(".answer").last().innerText();
  assert.equal(await said(bob), await said(ann));

  await Promise.all([ann.leave(), bob.leave(), eve.leave()]);
}
