/** The tour (docs/tour.md) in the dashboard. */

import assert from "node:assert/strict";
import { APPROVAL, BrowserUser, RUN_END } from "../browser.mjs";

export default async function tour({ server, browser }) {
  const ann = await BrowserUser.open(browser, server);
  const { page } = ann;
  await page.locator(".welcome").waitFor();

  // 1. A price, from the suggestions.
  await page.getByRole("button", { name: /current sell price of Tritanium/ }).click();
  await page.locator(RUN_END).waitFor();
  await ann.waitForText("4.12 ISK");
  await ann.callCard("get_market_stats", "completed").locator("summary").click();
  await page.getByRole("group", { name: "result" }).getByText("highest_buy").waitFor();

  // 2. Parallel calls.
  await ann.sendMessage("Which ships were destroyed most in Jita last week?", RUN_END);
  assert.ok(await ann.callCard("get_item_info", "completed").count() >= 6);
  await page.getByRole("listitem").filter({ hasText: "Rifter" }).first().waitFor();

  // 3. A write needs approval: once approved, once rejected with a reason.
  await ann.sendMessage("Buy 1000 Tritanium at market price", APPROVAL);
  await ann.waitForText("4,120 ISK");
  await ann.button("Approve").click();
  await ann.waitForText(/Done: order/);
  await page.locator(".closed-approval.good").getByText("Approved by admin").waitFor();
  await ann.sendMessage("Buy 1000 Tritanium at market price", APPROVAL);
  await page.getByRole("button", { name: "Add reason" }).click();
  await page.getByRole("textbox", { name: /Reason for the decision/ }).fill("too dear today");
  await ann.button("Reject").click();
  await page.locator(".closed-approval.bad").getByText("too dear today").waitFor();
  await ann.callCard("market_order_create", "failed").locator(".call-state", { hasText: "rejected" }).waitFor();

  // Edited arguments: the form follows the schema and shows a diff.
  await ann.sendMessage("Buy 1000 Tritanium at market price", APPROVAL);
  await page.getByRole("button", { name: "Edit arguments" }).click();
  const quantity = page.getByRole("textbox", { name: /^quantity/ });
  await quantity.fill("many");
  await ann.waitForText("Enter a number.");
  assert.ok(await page.locator(".approval-card .button.primary").isDisabled());
  await quantity.fill("250");
  await page.locator(".approval-card .diff .added").getByText("250").waitFor();
  await ann.button("Approve as edited").click();
  await ann.waitForText("Done, with your arguments instead of mine.");
  await page.locator(".answer .code").getByText('"quantity":250').waitFor();
  await page.locator(".closed-approval.good").getByText("arguments edited").waitFor();

  // Decisions per step, and an approval for the session.
  await ann.sendMessage("Stock up", APPROVAL);
  const steps = page.locator(".approval-card .step");
  assert.equal(await steps.count(), 2);
  await steps.nth(0).getByRole("button", { name: "Approve" }).click();
  await steps.nth(1).getByRole("button", { name: "Reject" }).click();
  await ann.button("Send decisions").click();
  await page.locator(".closed-approval").getByText("1 of 2 approved").waitFor();
  await page.locator(RUN_END).waitFor();
  await ann.sendMessage("Buy 10 Tritanium at market price", APPROVAL);
  await page.getByText("Approve for this session").click();
  await page.getByRole("textbox", { name: "Condition" }).fill("args.quantity <= 100");
  await ann.button("Approve").click();
  await page.locator(RUN_END).waitFor();
  await page.getByRole("textbox", { name: "Message" }).fill("Buy 20 Tritanium at market price");
  await page.keyboard.press("Enter");
  await page.locator(RUN_END).nth(1).waitFor();
  await page.getByRole("button", { name: "1 grant" }).click();
  await page.getByRole("dialog").getByText("args.quantity <= 100").waitFor();
  await ann.button("Revoke").click();
  await page.getByRole("dialog").locator("p:focus", { hasText: "No grants." }).waitFor();
  await page.keyboard.press("Escape");

  // 4. A denial that names the required level.
  await ann.sendMessage("Transfer 100M ISK to character XYZ", RUN_END);
  await ann.callCard("wallet_transfer", "denied").getByText("Requires L2 assisted.").waitFor();

  // 5. A tool that fails temporarily, and one that always fails.
  await ann.sendMessage("Get production cost for Stabber", RUN_END);
  await ann.callCard("get_production_cost", "completed").getByText("3 attempts").waitFor();
  await ann.sendMessage("Get production cost for Vexor", RUN_END);
  await ann.callCard("get_production_cost", "failed").getByText("All 4 attempts failed.").waitFor();

  // 6. A session with a lower level than its owner.
  await ann.openPage("chat/new");
  await page.getByLabel("Autonomy").selectOption("0");
  await page.getByRole("textbox", { name: "Message" }).fill("Update bookmark");
  await page.keyboard.press("Enter");
  await ann.callCard("update_bookmark", "denied").waitFor();

  // 7. Four steps, seven calls.
  await ann.sendMessage("Find profitable manufacturing opportunities in Jita", RUN_END);
  await ann.waitForText(/My pick/);

  // A workflow selected with `/` and filled in with its form.
  await ann.openPage("chat/new");
  await page.locator(".new-pane").waitFor();
  await page.getByRole("textbox", { name: "Message" }).fill("/price");
  await page.getByRole("option", { name: /price-check/ }).waitFor();
  await page.keyboard.press("Enter");
  await page.getByRole("region", { name: "Workflow price-check" }).waitFor();
  await ann.screenshot("workflow");
  for (const field of await page.locator(".workflow input[required]").all()) if (!await field.inputValue()) await field.fill("34");
  await ann.button("Send").click();
  await page.locator(RUN_END).waitFor();
  assert.match(await page.locator(".bubble").innerText(), /^\/price-check/);

  // 8. A stopped answer keeps its partial text.
  await ann.sendMessage("Tell me a long story", ".markdown.streaming");
  await ann.button("Stop").click();
  await page.locator(".stopped").waitFor();

  // A fork starts with the conversation up to the fork point.
  await page.getByRole("button", { name: "Fork the session here" }).last().click({ force: true });
  await page.locator(".pane").nth(1).waitFor();
  await page.locator(".pane").nth(1).getByText("Fork starts here").waitFor();
  assert.equal(await page.locator(".pane").nth(1).locator(".bubble").innerText(), "Tell me a long story");

  await ann.close();
}
