/**
 * A critical call whose arguments contain invisible and reordering characters. They are shown as
 * escapes.
 */

import assert from "node:assert/strict";
import { APPROVAL, BrowserUser, RUN_END } from "../browser.mjs";

/** Without escapes, this is displayed as “allic the boss”. */
const RECIPIENT = "\u202Ecilla\u202C \u200Bthe boss";
const ESCAPED = "\\u{202e}cilla\\u{202c} \\u{200b}the boss";

export const setup = {
  script: `
[[rule]]
user = 'be deceptive'
step = 0
[[rule.reply]]
tool_call = { name = "wallet_transfer", arguments = { amount = 5000, to = "\\u202Ecilla\\u202C \\u200Bthe boss" } }

[[rule]]
user = 'be deceptive'
step = 1
[[rule.reply]]
text = "Done."
`,
};

export default async function unsafeCharacters({ server, browser }) {
  await server.request("PATCH", "/agent/settings", { autonomy_level: 2 });
  const ann = await BrowserUser.open(browser, server);
  const { page } = ann;
  await ann.sendMessage("be deceptive 👩‍💻", APPROVAL);
  const showsEscapes = async (element) => assert.ok((await element.innerText()).includes(ESCAPED), await element.innerText());
  await showsEscapes(page.locator(APPROVAL));
  assert.equal(await page.locator(".bubble").innerText(), "be deceptive 👩‍💻", "user messages are not escaped");
  await ann.checkPage("unsafe-characters-card");

  // The editor shows the escapes. A value that is not edited is sent unchanged.
  await ann.button("Edit arguments").click();
  const field = page.getByRole("textbox", { name: /^to/ });
  assert.equal(await field.inputValue(), '"\\u202ecilla\\u202c \\u200bthe boss"');
  await page.getByRole("textbox", { name: /^amount/ }).fill("6000");
  await ann.checkPage("unsafe-characters-editor");
  await ann.openPage("approvals");
  await page.locator(".approvals-page .approval-card").waitFor();
  await showsEscapes(page.locator(".approvals-page .approval-card"));
  await page.goBack();
  await ann.button("Edit arguments").click();
  await page.getByRole("textbox", { name: /^amount/ }).fill("6000");
  await ann.button("Approve as edited").click();
  await page.locator(RUN_END).waitFor();
  const { events } = await server.request("GET", `/agent/session/${ann.sessionId()}/events?limit=500`);
  const allowed = events.find((event) => event.type === "tool_call_allowed");
  assert.deepEqual(allowed.edit.arguments, { amount: 6000, to: RECIPIENT });
  await showsEscapes(page.locator(".call-summary"));
  await page.locator(".call summary").click();
  assert.ok((await page.locator(".call .diff").innerText()).includes("\\u202ecilla"));
  await ann.close();
}
