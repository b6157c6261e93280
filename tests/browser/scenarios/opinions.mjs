/** What people think of answers and calls, where it shows; forks from a message; summaries; deleting for good. */

import assert from "node:assert/strict";
import { ASKED, ENDED, Person } from "../browser.mjs";

export const setup = {
  script: `
[[rule]]
system = 'You summarise the earlier part'
[[rule.reply]]
text = "They looked at **prices** in Jita, and nothing was bought."
`,
};

export default async function opinions({ house, browser }) {
  const ann = await Person.sit(browser, house);
  const { page } = ann;
  await ann.say("What is the current sell price of Tritanium in Jita?", ENDED);
  const session = ann.session();

  // Stars for an answer, and words; who says it anew takes back what was said.
  const answer = page.locator(".answer").last();
  await answer.getByRole("button", { name: "Rate this answer" }).click({ force: true });
  assert.ok(await ann.button("Send").last().isDisabled(), "nothing is chosen yet");
  await page.getByRole("radio", { name: /^2 stars/ }).check({ force: true });
  await page.getByRole("textbox", { name: "Comment" }).fill("the region was not named");
  await ann.look("feedback-form");
  await answer.getByRole("button", { name: "Send" }).click();
  await answer.getByRole("img", { name: "2 of 5 stars" }).waitFor();
  await answer.getByText("the region was not named").waitFor();
  // Who sent it by keyboard goes on from where the form was opened.
  await answer.locator("button[aria-label='Rate this answer anew']:focus").waitFor();
  await answer.getByRole("button", { name: "Rate this answer anew" }).click();
  await page.getByRole("radio", { name: /^5 stars/ }).check({ force: true });
  await answer.getByRole("button", { name: "Send" }).click();
  await answer.getByRole("img", { name: "5 of 5 stars" }).waitFor();
  assert.equal(await answer.getByRole("img", { name: "2 of 5 stars" }).count(), 0);

  // A verdict on a call, seen on its line from then on, by everybody.
  const call = ann.call("get_market_stats", "completed");
  await call.locator("summary").first().click();
  await call.getByRole("button", { name: "Give a verdict" }).click();
  await call.getByRole("group", { name: "Verdict" }).getByRole("button", { name: "Unnecessary" }).click();
  await call.getByRole("textbox", { name: "Comment" }).fill("it was asked a minute ago");
  await call.getByRole("button", { name: "Send" }).click();
  await call.locator("summary .badge", { hasText: "unnecessary" }).waitFor();
  await call.locator("button:focus", { hasText: "Say it anew" }).waitFor();
  await ann.look("feedback-given");
  const bob = await Person.sit(browser, house, { dark: true });
  await bob.room(`chat/${session}`);
  await bob.page.getByRole("img", { name: "5 of 5 stars" }).waitFor();
  await bob.call("get_market_stats").locator("summary .badge", { hasText: "unnecessary" }).waitFor();
  await bob.room("usage");
  await bob.page.getByText("1 unnecessary").waitFor();
  await bob.page.locator(".tile", { hasText: "Rated" }).getByText("5", { exact: true }).waitFor();

  // To say something otherwise is a fork from before it, with the words at hand.
  await page.getByRole("button", { name: "Say this otherwise" }).click({ force: true });
  const forked = page.locator(".pane").nth(1);
  await forked.getByText("Forked from here on").waitFor();
  assert.equal(await forked.locator(".bubble").count(), 0);
  const field = forked.getByRole("textbox", { name: "Message" });
  assert.equal(await field.inputValue(), "What is the current sell price of Tritanium in Jita?");
  await field.fill("Buy 1000 Tritanium at market price");
  await field.press("Enter");
  await forked.locator(ASKED).waitFor();
  const fork = /,([0-9a-f-]{36})/.exec(page.url())[1];

  // Deleted for good while somebody looks on: it is gone from everywhere, its question too.
  await bob.room(`chat/${fork}`);
  await bob.page.locator(ASKED).waitFor();
  await bob.page.getByRole("link", { name: /Approvals 1 waiting/ }).waitFor();
  await forked.getByRole("button", { name: "More about this conversation" }).click();
  await page.getByRole("menuitem", { name: "Delete for good" }).click();
  const dialog = page.getByRole("dialog");
  assert.ok(await dialog.getByRole("button", { name: "Delete for good" }).isDisabled());
  await ann.look("purge");
  await dialog.getByText("I know that it can’t be undone").click();
  await dialog.getByRole("button", { name: "Delete for good" }).click();
  for (const person of [ann, bob]) {
    await person.sees("This conversation was deleted");
    await person.page.locator(".sidebar .count").waitFor({ state: "detached" });
  }
  await page.goto(`${house.url}/#/chat/${fork}`);
  await page.reload();
  await page.locator(".failed").waitFor();

  // A conversation that outgrows its room is summarised, and says where.
  const long = await house.ask("POST", "/agent/session", { title: "A long one" });
  const filler = "Remember this order of ours. ".repeat(8_000);
  for (const n of [1, 2]) await house.ask("POST", "/agent/chat", { session_id: long.session_id, message: `${n}. ${filler}` });
  await ann.room(`chat/${long.session_id}`);
  await page.getByRole("textbox", { name: "Message" }).fill("What is the current sell price of Tritanium in Jita?");
  await page.keyboard.press("Enter");
  const mark = page.locator(".summary-mark");
  await mark.locator("summary").click();
  await mark.getByText("nothing was bought").waitFor();
  await page.locator(ENDED).nth(2).waitFor();
  await mark.scrollIntoViewIfNeeded();
  await ann.look("summary");
  await Promise.all([ann.leave(), bob.leave()]);
}
