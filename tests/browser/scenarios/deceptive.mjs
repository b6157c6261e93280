/** A critical call whose arguments look like others: what is approved is what is seen. */

import assert from "node:assert/strict";
import { ASKED, ENDED, Person } from "../browser.mjs";

/** Shown as it is, it reads “allic the boss”. */
const TO = "\u202Ecilla\u202C \u200Bthe boss";
const WRITTEN = "\\u{202e}cilla\\u{202c} \\u{200b}the boss";

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

export default async function deceptive({ house, browser }) {
  await house.ask("PATCH", "/agent/settings", { autonomy_level: 2 });
  const ann = await Person.sit(browser, house);
  const { page } = ann;
  await ann.say("be deceptive 👩‍💻", ASKED);
  const seen = async (box) => assert.ok((await box.innerText()).includes(WRITTEN), await box.innerText());
  await seen(page.locator(ASKED));
  assert.equal(await page.locator(".bubble").innerText(), "be deceptive 👩‍💻", "what people write stays as it is");
  await ann.look("deceptive-card");

  // The editor shows the escapes; what is not touched is sent as it was.
  await ann.button("Edit arguments").click();
  const field = page.getByRole("textbox", { name: /^to/ });
  assert.equal(await field.inputValue(), '"\\u202ecilla\\u202c \\u200bthe boss"');
  await page.getByRole("textbox", { name: /^amount/ }).fill("6000");
  await ann.look("deceptive-editor");
  await ann.room("approvals");
  await page.locator(".approvals-room .approval-card").waitFor();
  await seen(page.locator(".approvals-room .approval-card"));
  await page.goBack();
  await ann.button("Edit arguments").click();
  await page.getByRole("textbox", { name: /^amount/ }).fill("6000");
  await ann.button("Approve as edited").click();
  await page.locator(ENDED).waitFor();
  const { events } = await house.ask("GET", `/agent/session/${ann.session()}/events?limit=500`);
  const allowed = events.find((event) => event.type === "tool_call_allowed");
  assert.deepEqual(allowed.edit.arguments, { amount: 6000, to: TO });
  await seen(page.locator(".call-summary"));
  await page.locator(".call summary").click();
  assert.ok((await page.locator(".call .diff").innerText()).includes("\\u202ecilla"));
  await ann.leave();
}
