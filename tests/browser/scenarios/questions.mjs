/** Every kind of question, answered in the page: a checklist, a budget, an unknown outcome, a tool that asks. */

import assert from "node:assert/strict";
import { ASKED, ENDED, Person } from "../browser.mjs";

export const setup = {
  market: { MARKET_HANG: "wallet_transfer" },
  script: `
[[rule]]
user = 'which hangar'
step = 0
[[rule.reply]]
[rule.reply.tool_call]
name = "choose_hangar"
[rule.reply.tool_call.arguments]
type_id = 587

[[rule]]
user = 'which hangar'
step = 1
[[rule.reply]]
text = "It goes there: {{ last[0].text }}"
`,
};

export default async function questions({ house, browser }) {
  const ann = await Person.sit(browser, house);
  const { page } = ann;
  const card = page.locator(ASKED);

  // A plan before the work: one step reworded, then approved, and its order runs without asking.
  await ann.room("chat/new");
  await page.getByText("Plan first").click();
  await page.getByRole("textbox", { name: "Message" }).fill("Buy 1000 Tritanium at market price");
  await page.keyboard.press("Enter");
  await card.getByText("A plan, before the work").waitFor();
  await ann.picture("question-preflight");
  await page.getByRole("button", { name: "Reword" }).first().click();
  await page.getByRole("textbox", { name: "Description of step 1" }).fill("Look twice");
  await ann.button("Approve the plan").click();
  await page.locator(ENDED).waitFor();
  await ann.call("market_order_create", "completed").locator("summary").click();
  await ann.call("market_order_create", "completed").getByText(/the plan that admin approved/).waitFor();

  // The same, with the order skipped: it is asked for as usual.
  await ann.room("chat/new");
  await page.getByText("Plan first").click();
  await page.getByRole("textbox", { name: "Message" }).fill("Buy 2000 Tritanium at market price");
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "Skip" }).nth(1).click();
  await ann.button("Approve 1 of 2 steps").click();
  await page.locator(".approval-card.plan").waitFor();
  await ann.button("Reject").click();
  await page.locator(ENDED).waitFor();

  // A tool that asks: its form is the schema's, and must be complete.
  await ann.say("which hangar?", ".approval-card.elicitation");
  await ann.sees("Which hangar shall Rifter go to?");
  await ann.picture("question-elicitation");
  assert.ok(await ann.button("Answer").isDisabled());
  await page.getByRole("combobox", { name: /hangar/i }).selectOption({ index: 1 });
  await ann.button("Answer").click();
  await page.locator(ENDED).waitFor();
  await ann.sees("Answered by admin");
  await ann.sees(/It goes there/);

  // A budget that is used up, the order of the plan counted: raised, and then stopped.
  await house.ask("PATCH", "/agent/settings", { autonomy_level: 3, budget_limit: { amount: 9000, unit: "ISK" } });
  await ann.say("Buy 1000 Tritanium at market price", ENDED);
  await ann.say("Buy 1000 Tritanium at market price", ".approval-card.budget");
  await card.getByText(/of 9,000 ISK spent/).waitFor();
  await ann.picture("question-budget");
  await page.getByRole("textbox", { name: /New limit/ }).fill("8000");
  assert.ok(await ann.button("Raise and go on").isDisabled());
  await page.getByRole("textbox", { name: /New limit/ }).fill("13000");
  await ann.button("Raise and go on").click();
  await page.locator(ENDED).waitFor();
  await ann.sees("Budget raised by admin");
  await ann.say("Buy 1000 Tritanium at market price", ".approval-card.budget");
  await ann.button("Stop the run").click();
  await page.locator(ENDED).waitFor();

  // A call that may have taken effect: the server dies while it runs, and nobody knows.
  await house.ask("PATCH", "/agent/settings", { autonomy_level: 2, budget_limit: null });
  await ann.say("Transfer 100M ISK to character XYZ", ".approval-card.plan");
  await ann.button("Approve").click();
  // Values in a server's environment count as secrets, so this house has one that names the tool.
  await page.locator(".call[data-phase=running]").waitFor();
  await house.kill();
  await page.locator(".connection:not(.open)").waitFor();
  await house.restart();
  await page.locator(".approval-card.unknown_outcome").waitFor();
  await ann.picture("question-unknown");
  assert.ok(await ann.button("It was done").isDisabled());
  await page.getByRole("textbox", { name: /what came of it/ }).fill('{"transfer_id": 7, "amount": 100000000, "to": "XYZ"}');
  await ann.button("It was done").click();
  await page.locator(ENDED).waitFor();
  await ann.sees("Marked as done by admin");
  await page.locator(".call[data-phase=completed]").waitFor();
  await ann.leave();
}
