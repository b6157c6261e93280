/** The tour of the README, by clicks. */

import assert from "node:assert/strict";
import { ASKED, ENDED, Person } from "../browser.mjs";

export default async function tour({ house, browser }) {
  const ann = await Person.sit(browser, house);
  const { page } = ann;
  await page.locator(".welcome").waitFor();

  // 1. A price, from the suggestions.
  await page.getByRole("button", { name: /current sell price of Tritanium/ }).click();
  await page.locator(ENDED).waitFor();
  await ann.sees("4.12 ISK");
  await ann.call("get_market_stats", "completed").locator("summary").click();
  await page.getByRole("group", { name: "result" }).getByText("highest_buy").waitFor();

  // 2. Many calls at once.
  await ann.say("Which ships were destroyed most in Jita last week?", ENDED);
  assert.ok(await ann.call("get_item_info", "completed").count() >= 6);
  await page.getByRole("listitem").filter({ hasText: "Rifter" }).first().waitFor();

  // 3. A write asks first; once approved, once rejected with a reason.
  await ann.say("Buy 1000 Tritanium at market price", ASKED);
  await ann.sees("4,120 ISK");
  await ann.button("Approve").click();
  await ann.sees(/Done: order/);
  await page.locator(".closed-approval.good").getByText("Approved by admin").waitFor();
  await ann.say("Buy 1000 Tritanium at market price", ASKED);
  await page.getByRole("button", { name: "Add a reason" }).click();
  await page.getByRole("textbox", { name: /Reason for the decision/ }).fill("too dear today");
  await ann.button("Reject").click();
  await page.locator(".closed-approval.bad").getByText("too dear today").waitFor();
  await ann.call("market_order_create", "failed").getByText("rejected by a person").waitFor();

  // With other arguments: the form knows the schema, and shows what the edit changes.
  await ann.say("Buy 1000 Tritanium at market price", ASKED);
  await page.getByRole("button", { name: "Edit arguments" }).click();
  const quantity = page.getByRole("textbox", { name: /^quantity/ });
  await quantity.fill("many");
  await ann.sees("This must be a number.");
  assert.ok(await page.locator(".approval-card .button.primary").isDisabled());
  await quantity.fill("250");
  await page.locator(".approval-card .diff .added").getByText("250").waitFor();
  await ann.button("Approve as edited").click();
  await ann.sees("Done, with your arguments instead of mine.");
  await page.locator(".answer .code").getByText('"quantity":250').waitFor();
  await page.locator(".closed-approval.good").getByText("with other arguments").waitFor();

  // Step by step, and for the session.
  await ann.say("Stock up", ASKED);
  const steps = page.locator(".approval-card .step");
  assert.equal(await steps.count(), 2);
  await steps.nth(0).getByRole("button", { name: "Approve" }).click();
  await steps.nth(1).getByRole("button", { name: "Reject" }).click();
  await ann.button("Send decisions").click();
  await page.locator(".closed-approval").getByText("1 of 2 approved").waitFor();
  await page.locator(ENDED).waitFor();
  await ann.say("Buy 10 Tritanium at market price", ASKED);
  await page.getByText("For this session").click();
  await page.getByRole("textbox", { name: "Only where" }).fill("args.quantity <= 100");
  await ann.button("Approve").click();
  await page.locator(ENDED).waitFor();
  await page.getByRole("textbox", { name: "Message" }).fill("Buy 20 Tritanium at market price");
  await page.keyboard.press("Enter");
  await page.locator(ENDED).nth(1).waitFor();
  await page.getByRole("button", { name: "1 for this session" }).click();
  await page.getByRole("dialog").getByText("args.quantity <= 100").waitFor();
  await ann.button("Revoke").click();
  await page.getByRole("dialog").locator("p:focus", { hasText: "Nothing yet." }).waitFor();
  await page.keyboard.press("Escape");

  // 4. Denied, with the level it would take.
  await ann.say("Transfer 100M ISK to character XYZ", ENDED);
  await ann.call("wallet_transfer", "denied").getByText("It takes L2 assisted.").waitFor();

  // 5. A tool that stumbles, and one that always fails.
  await ann.say("Get production cost for Stabber", ENDED);
  await ann.call("get_production_cost", "completed").getByText("3 attempts").waitFor();
  await ann.say("Get production cost for Vexor", ENDED);
  await ann.call("get_production_cost", "failed").getByText("All 4 attempts failed.").waitFor();

  // 6. A session may be narrower than its user.
  await ann.room("chat/new");
  await page.getByLabel("May do").selectOption("0");
  await page.getByRole("textbox", { name: "Message" }).fill("Update bookmark");
  await page.keyboard.press("Enter");
  await ann.call("update_bookmark", "denied").waitFor();

  // 7. Four steps, seven calls.
  await ann.say("Find profitable manufacturing opportunities in Jita", ENDED);
  await ann.sees(/My pick/);

  // A workflow by `/`: chosen by name, filled in by its form.
  await ann.room("chat/new");
  await page.locator(".new-pane").waitFor();
  await page.getByRole("textbox", { name: "Message" }).fill("/price");
  await page.getByRole("option", { name: /price-check/ }).waitFor();
  await page.keyboard.press("Enter");
  await page.getByRole("region", { name: "Workflow price-check" }).waitFor();
  await ann.picture("workflow");
  for (const field of await page.locator(".workflow input[required]").all()) if (!await field.inputValue()) await field.fill("34");
  await page.getByRole("button", { name: "Send" }).click();
  await page.locator(ENDED).waitFor();
  assert.match(await page.locator(".bubble").innerText(), /^\/price-check/);

  // 8. A long story, stopped in the middle; what was said stays.
  await ann.say("Tell me a long story", ".markdown.streaming");
  await ann.button("Stop").click();
  await ann.sees("stopped here");

  // A fork begins with the conversation up to there.
  await page.getByRole("button", { name: "Fork the conversation here" }).last().click({ force: true });
  await page.locator(".pane").nth(1).waitFor();
  await page.locator(".pane").nth(1).getByText("Forked from here on").waitFor();
  assert.equal(await page.locator(".pane").nth(1).locator(".bubble").innerText(), "Tell me a long story");

  await ann.leave();
}
