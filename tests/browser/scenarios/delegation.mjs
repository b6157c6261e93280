/** An agent that hands work to another: what that one does stands beneath the call, and its questions are answered there. */

import assert from "node:assert/strict";
import { ASKED, ENDED, Person } from "../browser.mjs";

export const setup = {
  configuration: `
[agents.lead]
description = "Hands work to a scout"
system = "You lead."
delegates = ["scout"]
approvals = { deadline = "10m" }

[agents.scout]
description = "Looks around, and buys"
system = "You scout."
approvals = { deadline = "10m" }
`,
  script: `
[[rule]]
system = 'You scout'
step = 0
[[rule.reply]]
[rule.reply.tool_call]
name = "compare_regions"
arguments = { type_id = 34 }

[[rule]]
system = 'You scout'
step = 1
[[rule.reply]]
[rule.reply.tool_call]
name = "market_order_create"
arguments = { type_id = 34, region_id = 10000002, side = "buy", quantity = 10, price = 4.12 }

[[rule]]
system = 'You scout'
step = 2
[[rule.reply]]
text = "It is cheapest in The Forge, and 10 are bought."

[[rule]]
system = 'You lead'
step = 0
[[rule.reply]]
text = "A scout looks for me."
[[rule.reply]]
[rule.reply.tool_call]
name = "delegate"
arguments = { agent = "scout", task = "Find out where Tritanium is cheapest, and buy 10 there" }

[[rule]]
system = 'You lead'
step = 1
[[rule.reply]]
text = "The scout says: {{ last[0].text }}"
`,
};

export default async function delegation({ house, browser }) {
  const ann = await Person.sit(browser, house);
  const { page } = ann;
  await ann.room("chat/new");
  await page.getByLabel("Agent").selectOption("lead");
  await page.getByRole("textbox", { name: "Message" }).fill("Where is Tritanium cheapest? Buy 10 there.");
  await page.keyboard.press("Enter");

  // Its calls and its question stand beneath the call that it works for; the question in the inbox leads there.
  const scout = page.locator(".child[data-agent=scout]");
  await scout.locator(ASKED).waitFor();
  await scout.locator('.call[data-tool="compare_regions"][data-phase="completed"]').waitFor();
  assert.equal(await scout.getAttribute("data-status"), "waiting");
  const session = ann.session();
  await ann.look("delegation");
  await ann.room("approvals");
  await page.locator(ASKED).waitFor();
  assert.equal(await page.locator(ASKED).getByRole("link").getAttribute("href"), `#/chat/${session}`);
  await ann.room(`chat/${session}`);
  await scout.getByRole("button", { name: "Approve" }).click();
  await page.locator(ENDED).waitFor();
  await scout.locator(".closed-approval.good").getByText("Approved by admin").waitFor();
  await scout.locator('.call[data-tool="market_order_create"][data-phase="completed"]').waitFor();
  assert.equal(await scout.getAttribute("data-status"), "closed");
  await ann.sees("The scout says: It is cheapest in The Forge");

  // The same for whoever comes later; and its own conversation is one of its own.
  await page.reload();
  await scout.locator(".closed-approval.good").waitFor();
  await scout.getByRole("link", { name: "Open" }).click();
  await page.locator(".answer").getByText("10 are bought").waitFor();
  await ann.leave();
}
