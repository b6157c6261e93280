/**
 * A child session: its calls and approvals are shown below the `delegate` call and answered there.
 */

import assert from "node:assert/strict";
import { APPROVAL, BrowserUser, RUN_END } from "../browser.mjs";

export const setup = {
  configuration: `
[agents.lead]
description = "Delegates to a scout"
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

export default async function delegation({ server, browser }) {
  const ann = await BrowserUser.open(browser, server);
  const { page } = ann;
  await ann.openPage("chat/new");
  await page.getByLabel("Agent").selectOption("lead");
  await page.getByRole("textbox", { name: "Message" }).fill("Where is Tritanium cheapest? Buy 10 there.");
  await page.keyboard.press("Enter");

  // The child's calls and approval are shown below the call. The approval in the inbox links to the
  // root session.
  const scout = page.locator(".child[data-agent=scout]");
  await scout.locator(APPROVAL).waitFor();
  await scout.locator('.call[data-tool="compare_regions"][data-phase="completed"]').waitFor();
  assert.equal(await scout.getAttribute("data-status"), "waiting");
  const sessionId = ann.sessionId();
  await ann.checkPage("delegation");
  await ann.openPage("approvals");
  await page.locator(APPROVAL).waitFor();
  assert.equal(await page.locator(APPROVAL).getByRole("link").getAttribute("href"), `#/chat/${sessionId}`);
  await ann.openPage(`chat/${sessionId}`);
  await scout.getByRole("button", { name: "Approve" }).click();
  await page.locator(RUN_END).waitFor();
  await scout.locator(".closed-approval.good").getByText("Approved by admin").waitFor();
  await scout.locator('.call[data-tool="market_order_create"][data-phase="completed"]').waitFor();
  assert.equal(await scout.getAttribute("data-status"), "closed");
  await ann.waitForText("The scout says: It is cheapest in The Forge");

  // The view is the same after a reload. The child session can also be opened by itself.
  await page.reload();
  await scout.locator(".closed-approval.good").waitFor();
  await scout.getByRole("link", { name: "Open" }).click();
  await page.locator(".answer").getByText("10 are bought").waitFor();
  await ann.close();
}
