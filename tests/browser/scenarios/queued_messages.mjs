/** Queued messages are edited and withdrawn, by mouse and by keyboard, in two browsers (S10). */

import assert from "node:assert/strict";
import { BrowserUser, RUN_END } from "../browser.mjs";

/** The first run waits for its model until the test stops it. */
const script = `
[[rule]]
user = "wait for it"
stall = { after = 40, times = 1 }
[[rule.reply]]
text = "This is the first half of what I say, and then there is a second half of it."
[[rule]]
user = "and less"
[[rule.reply]]
text = "Less it is."
`;

export const setup = { script };

export default async function queuedMessages({ server, browser }) {
  const ann = await BrowserUser.open(browser, server);
  const bob = await BrowserUser.open(browser, server);
  const { page } = ann;
  const queued = (user) => user.page.locator(".queued li");
  const send = async (text) => {
    await page.getByRole("textbox", { name: "Message" }).fill(text);
    await ann.button("Send").click();
    await queued(ann).getByText(text, { exact: true }).waitFor();
  };
  await ann.sendMessage("wait for it", ".markdown.streaming");
  await send("and more");
  await send("and never");
  await bob.openPage(`chat/${ann.sessionId()}`);
  await queued(bob).getByText("and never").waitFor();
  await ann.checkPage("queued-messages");

  // Escape keeps the text, Enter saves it; the focus returns to the button.
  const edit = queued(ann).first().getByRole("button", { name: "Edit queued message" });
  const field = page.getByRole("textbox", { name: "New text of the queued message" });
  await edit.focus();
  await page.keyboard.press("Enter");
  await field.waitFor();
  await page.keyboard.type(" and more");
  await page.keyboard.press("Escape");
  await queued(ann).getByText("and more", { exact: true }).waitFor();
  const isFocused = (name) => page.waitForFunction((label) => document.activeElement.getAttribute("aria-label") === label, name);
  await isFocused("Edit queued message");
  await page.keyboard.press("Enter");
  await field.waitFor();
  await field.fill("");
  assert.equal(await ann.button("Save").isDisabled(), true);
  await field.fill("and less");
  await ann.checkPage("queued-message-edited");
  await page.keyboard.press("Enter");
  for (const user of [ann, bob]) await queued(user).getByText("and less", { exact: true }).waitFor();

  // After a withdrawal the focus moves to another queued message, and the active run continues.
  await queued(ann).last().getByRole("button", { name: "Withdraw queued message" }).focus();
  await page.keyboard.press("Enter");
  for (const user of [ann, bob]) {
    await queued(user).getByText("and never").waitFor({ state: "detached" });
    assert.equal(await user.page.locator(RUN_END).count(), 0);
  }
  await isFocused("Queued message: and less");

  // The changed message runs with its new text.
  await ann.button("Stop").click();
  for (const user of [ann, bob]) {
    await user.waitForText("Less it is.");
    await user.page.locator(RUN_END).nth(1).waitFor();
    assert.equal(await queued(user).count(), 0);
    assert.equal(await user.page.getByText("and never").count(), 0);
  }
  await Promise.all([ann.close(), bob.close()]);
}
