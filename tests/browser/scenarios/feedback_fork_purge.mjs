/** Feedback on answers and calls, forks from a message, summaries and permanent deletion. */

import assert from "node:assert/strict";
import { APPROVAL, BrowserUser, RUN_END } from "../browser.mjs";

export const setup = {
  script: `
[[rule]]
system = 'You summarise the earlier part'
[[rule.reply]]
text = "They looked at **prices** in Jita, and nothing was bought."
`,
};

export default async function feedbackForkPurge({ server, browser }) {
  const ann = await BrowserUser.open(browser, server);
  const { page } = ann;
  await ann.sendMessage("What is the current sell price of Tritanium in Jita?", RUN_END);
  const sessionId = ann.sessionId();

  // A rating with a comment. A new rating replaces the earlier one of the same user.
  const answer = page.locator(".answer").last();
  await answer.getByRole("button", { name: "Rate this answer" }).click({ force: true });
  assert.ok(await ann.button("Send").last().isDisabled(), "no rating is selected");
  await page.getByRole("radio", { name: /^2 stars/ }).check({ force: true });
  await page.getByRole("textbox", { name: "Comment" }).fill("the region was not named");
  await ann.checkPage("feedback-form");
  await answer.getByRole("button", { name: "Send" }).click();
  await answer.getByRole("img", { name: "2 of 5 stars" }).waitFor();
  await answer.getByText("the region was not named").waitFor();
  // After the form is sent, the focus is on the button that opened it.
  await answer.locator("button[aria-label='Change your rating']:focus").waitFor();
  await answer.getByRole("button", { name: "Change your rating" }).click();
  await page.getByRole("radio", { name: /^5 stars/ }).check({ force: true });
  await answer.getByRole("button", { name: "Send" }).click();
  await answer.getByRole("img", { name: "5 of 5 stars" }).waitFor();
  assert.equal(await answer.getByRole("img", { name: "2 of 5 stars" }).count(), 0);

  // A rating of a call is shown on its summary line for every user.
  const call = ann.callCard("get_market_stats", "completed");
  await call.locator("summary").first().click();
  await call.getByRole("button", { name: "Rate this call" }).click();
  await call.getByRole("group", { name: "Rating" }).getByRole("button", { name: "Unnecessary" }).click();
  await call.getByRole("textbox", { name: "Comment" }).fill("the same call was made before");
  await call.getByRole("button", { name: "Send" }).click();
  await call.locator("summary .badge", { hasText: "unnecessary" }).waitFor();
  await call.locator("button:focus", { hasText: "Change your rating" }).waitFor();
  await ann.checkPage("feedback-given");
  const bob = await BrowserUser.open(browser, server, { dark: true });
  await bob.openPage(`chat/${sessionId}`);
  await bob.page.getByRole("img", { name: "5 of 5 stars" }).waitFor();
  await bob.callCard("get_market_stats").locator("summary .badge", { hasText: "unnecessary" }).waitFor();
  await bob.openPage("usage");
  await bob.page.getByText("1 unnecessary").waitFor();
  await bob.page.locator(".tile", { hasText: "Rating" }).getByText("5", { exact: true }).waitFor();

  // “Edit message” forks the session before the message and puts its text into the composer.
  await page.getByRole("button", { name: "Edit message" }).click({ force: true });
  const forked = page.locator(".pane").nth(1);
  await forked.getByText("Fork starts here").waitFor();
  assert.equal(await forked.locator(".bubble").count(), 0);
  const field = forked.getByRole("textbox", { name: "Message" });
  assert.equal(await field.inputValue(), "What is the current sell price of Tritanium in Jita?");
  await field.fill("Buy 1000 Tritanium at market price");
  await field.press("Enter");
  await forked.locator(APPROVAL).waitFor();
  const forkId = /,([0-9a-f-]{36})/.exec(page.url())[1];

  // A permanent deletion removes the session and its approval for every user who has it open.
  await bob.openPage(`chat/${forkId}`);
  await bob.page.locator(APPROVAL).waitFor();
  await bob.page.getByRole("link", { name: /Approvals 1 waiting/ }).waitFor();
  await forked.getByRole("button", { name: "Session menu" }).click();
  await page.getByRole("menuitem", { name: "Delete permanently" }).click();
  const dialog = page.getByRole("dialog");
  assert.ok(await dialog.getByRole("button", { name: "Delete permanently" }).isDisabled());
  await ann.checkPage("purge");
  await dialog.getByText("I understand that this cannot be undone").click();
  await dialog.getByRole("button", { name: "Delete permanently" }).click();
  for (const user of [ann, bob]) {
    await user.waitForText("Session deleted");
    await user.page.locator(".sidebar .count").waitFor({ state: "detached" });
  }
  await page.goto(`${server.url}/#/chat/${forkId}`);
  await page.reload();
  await page.locator(".failed").waitFor();

  // A session that exceeds the context window is compacted, and shows the summary.
  const longSession = await server.request("POST", "/agent/session", { title: "A long one" });
  const filler = "Remember this order of ours. ".repeat(8_000);
  for (const n of [1, 2]) await server.request("POST", "/agent/chat", { session_id: longSession.session_id, message: `${n}. ${filler}` });
  await ann.openPage(`chat/${longSession.session_id}`);
  await page.getByRole("textbox", { name: "Message" }).fill("What is the current sell price of Tritanium in Jita?");
  await page.keyboard.press("Enter");
  const mark = page.locator(".summary-mark");
  await mark.locator("summary").click();
  await mark.getByText("nothing was bought").waitFor();
  await page.locator(RUN_END).nth(2).waitFor();
  await mark.scrollIntoViewIfNeeded();
  await ann.checkPage("summary");
  await Promise.all([ann.close(), bob.close()]);
}
