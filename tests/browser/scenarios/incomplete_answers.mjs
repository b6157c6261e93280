/** Answers that are not complete: truncated, refused and empty ones are marked. */

import assert from "node:assert/strict";
import { BrowserUser, RUN_END } from "../browser.mjs";

const ANSWERS = [
  { message: "cut it", stop: "max_tokens", text: "The price of Tritanium in Jita is", notice: "Truncated at the token limit" },
  { message: "decline it", stop: "refusal", text: "I will not do that.", notice: "Refused by the model" },
  { message: "skip it", stop: "end_turn", text: "", notice: "The model returned no text" },
];

export const setup = {
  script: ANSWERS.map(({ message, stop, text }) => `
[[rule]]
user = '${message}'
stop = '${stop}'
[[rule.reply]]
${stop === "refusal" ? "refusal" : "text"} = '${text}'
`).join(""),
};

export default async function incompleteAnswers({ server, browser }) {
  for (const dark of [false, true]) {
    const ann = await BrowserUser.open(browser, server, { dark });
    const notices = ann.page.locator(".items .notice");
    for (const { message, text, notice } of ANSWERS) {
      // Each message starts a session.
      await ann.sendMessage(message, RUN_END);
      await notices.getByText(notice).waitFor();
      assert.equal(await notices.count(), 1);
      assert.equal(await notices.innerText(), notice);
      if (text) assert.equal(await ann.page.locator(".answer .markdown").last().innerText(), text);
    }
    await ann.checkPage(`incomplete-answers-${dark ? "dark" : "light"}`);
    await ann.close();
  }
}
