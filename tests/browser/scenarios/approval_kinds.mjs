/**
 * Approvals of every kind, answered on the page: preflight, plan, elicitation, budget and unknown
 * outcome.
 */

import assert from "node:assert/strict";
import { APPROVAL, BrowserUser, RUN_END } from "../browser.mjs";

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

export default async function approvalKinds({ server, browser }) {
  const ann = await BrowserUser.open(browser, server);
  const { page } = ann;
  const card = page.locator(APPROVAL);

  // A preflight plan: one step is reworded, the plan is approved, and its call runs without
  // approval.
  await ann.openPage("chat/new");
  await page.getByText("Plan first").click();
  await page.getByRole("textbox", { name: "Message" }).fill("Buy 1000 Tritanium at market price");
  await page.keyboard.press("Enter");
  await card.getByText("Preflight plan").waitFor();
  await ann.screenshot("approval-preflight");
  await page.getByRole("button", { name: "Edit", exact: true }).first().click();
  await page.getByRole("textbox", { name: "Description of step 1" }).fill("Look twice");
  await ann.button("Approve plan").click();
  await page.locator(RUN_END).waitFor();
  await ann.callCard("market_order_create", "completed").locator("summary").click();
  await ann.callCard("market_order_create", "completed").getByText(/preflight plan, approved by admin/).waitFor();

  // A preflight plan with a skipped step: its call needs approval as usual.
  await ann.openPage("chat/new");
  await page.getByText("Plan first").click();
  await page.getByRole("textbox", { name: "Message" }).fill("Buy 2000 Tritanium at market price");
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "Skip" }).nth(1).click();
  await ann.button("Approve 1 of 2 steps").click();
  await page.locator(".approval-card.plan").waitFor();
  await ann.button("Reject").click();
  await page.locator(RUN_END).waitFor();

  // An elicitation: the form follows the schema and must be complete.
  await ann.sendMessage("which hangar?", ".approval-card.elicitation");
  await ann.waitForText("Which hangar shall Rifter go to?");
  await ann.screenshot("approval-elicitation");
  assert.ok(await ann.button("Answer").isDisabled());
  await page.getByRole("combobox", { name: /hangar/i }).selectOption({ index: 1 });
  await ann.button("Answer").click();
  await page.locator(RUN_END).waitFor();
  await ann.waitForText("Answered by admin");
  await ann.waitForText(/It goes there/);

  // A reached budget, which includes the call of the plan: raised, and then the run is stopped.
  await server.request("PATCH", "/agent/settings", { autonomy_level: 3, budget_limit: { amount: 9000, unit: "ISK" } });
  await ann.sendMessage("Buy 1000 Tritanium at market price", RUN_END);
  await ann.sendMessage("Buy 1000 Tritanium at market price", ".approval-card.budget");
  await card.getByText(/of 9,000 ISK spent/).waitFor();
  await ann.screenshot("approval-budget");
  await page.getByRole("textbox", { name: /New limit/ }).fill("8000");
  assert.ok(await ann.button("Raise and continue").isDisabled());
  await page.getByRole("textbox", { name: /New limit/ }).fill("13000");
  await ann.button("Raise and continue").click();
  await page.locator(RUN_END).waitFor();
  await ann.waitForText("Budget raised by admin");
  await ann.sendMessage("Buy 1000 Tritanium at market price", ".approval-card.budget");
  await ann.button("Stop run").click();
  await page.locator(RUN_END).waitFor();

  // An unknown outcome: the server is killed while the call runs.
  await server.request("PATCH", "/agent/settings", { autonomy_level: 2, budget_limit: null });
  await ann.sendMessage("Transfer 100M ISK to character XYZ", ".approval-card.plan");
  await ann.button("Approve").click();
  // Values in a tool server's environment are redacted as secrets. MARKET_HANG contains the name of
  // the
  // tool, so the locator does not use it.
  await page.locator(".call[data-phase=running]").waitFor();
  await server.kill();
  await page.locator(".connection:not(.open)").waitFor();
  await server.restart();
  await page.locator(".approval-card.unknown_outcome").waitFor();
  await ann.screenshot("approval-unknown");
  assert.ok(await ann.button("Mark as done").isDisabled());
  await page.getByRole("textbox", { name: /^Result/ }).fill('{"transfer_id": 7, "amount": 100000000, "to": "XYZ"}');
  await ann.button("Mark as done").click();
  await page.locator(RUN_END).waitFor();
  await ann.waitForText("Marked as done by admin");
  await page.locator(".call[data-phase=completed]").waitFor();
  await ann.close();
}
