/** Elicitations of a real MCP server: a form with every kind of field, and a URL to open. */

import assert from "node:assert/strict";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { BrowserUser, RUN_END } from "../browser.mjs";

const root = process.env.GREENROOM_ROOT ?? join(dirname(fileURLToPath(import.meta.url)), "../../..");
const everythingServer = join(root, "target/test-deps/npm/node_modules/.bin/mcp-server-everything");

const toolCallRules = (user, tool, args) => `
[[rule]]
user = '${user}'
step = 0
[[rule.reply]]
[rule.reply.tool_call]
name = "${tool}"
arguments = ${args}

[[rule]]
user = '${user}'
step = 1
[[rule.reply]]
text = "It says: {{ last[0].text }}"
`;

export const setup = {
  script: toolCallRules("ask me", "trigger-elicitation-request", "{}")
    + toolCallRules("send me", "trigger-url-elicitation", '{ url = "https://accounts.example.org/connect?state=7", message = "Connect your account" }'),
  configuration: `
[mcpServers.everything]
command = ${JSON.stringify(everythingServer)}
args = ["stdio"]

[tools."trigger-*"]
server = "everything"
risk = "read_only"
timeout = "2m"
`,
};

export default async function elicitation({ server, browser }) {
  const ann = await BrowserUser.open(browser, server, { dark: true });
  const { page } = ann;
  await page.waitForFunction(async () => (await (await fetch("/agent/tools")).json()).tools.some((tool) => tool.name === "trigger-url-elicitation"));

  await ann.sendMessage("ask me", ".approval-card.elicitation");
  const card = page.locator(".approval-card.elicitation");
  assert.ok(await ann.button("Answer").isDisabled(), "a required field is empty");
  await card.getByRole("textbox", { name: "String *" }).fill("Ann");
  // The form starts with the defaults of the schema.
  assert.equal(await card.getByRole("textbox", { name: /^String with default/ }).inputValue(), "It was a dark and stormy night.");
  assert.equal(await card.getByRole("textbox", { name: /^Integer/ }).inputValue(), "42");
  await card.getByRole("textbox", { name: /^String with email format/ }).fill("nobody");
  await ann.waitForText("Enter an email address, such as ann@example.org.");
  assert.ok(await ann.button("Answer").isDisabled());
  await card.getByRole("textbox", { name: /^String with email format/ }).fill("ann@example.org");
  await card.getByLabel(/^String with date format/).fill("2001-02-03");
  await card.getByRole("combobox", { name: /^Titled Single Select/ }).selectOption({ label: "Wonder Woman" });
  await card.getByRole("combobox", { name: /^Legacy Titled/ }).selectOption({ label: "Dogs" });
  const fish = card.getByRole("group", { name: /^Titled Multiple Select/ });
  assert.ok(await fish.getByLabel("Tuna").isChecked());
  await fish.getByLabel("Trout").check();
  await card.scrollIntoViewIfNeeded();
  await ann.checkPage("elicitation-form");
  await ann.button("Answer").click();
  await page.locator(RUN_END).waitFor();
  const answer = await page.locator(".answer").last().innerText();
  for (const text of ["Ann", "ann@example.org"]) assert.ok(answer.includes(text), answer);
  const { approvals } = await server.request("GET", "/agent/approvals?limit=1");
  assert.deepEqual(approvals[0].answer.value, {
    name: "Ann", firstLine: "It was a dark and stormy night.", email: "ann@example.org", birthdate: "2001-02-03", integer: 42, number: 3.14,
    untitledSingleSelectEnum: "Monica", untitledMultipleSelectEnum: ["Guitar"], titledSingleSelectEnum: "hero-3",
    titledMultipleSelectEnum: ["fish-1", "fish-3"], legacyTitledEnum: "pet-2",
  });

  // A URL: completion can be confirmed only after the URL was opened.
  await ann.sendMessage("send me", ".approval-card.elicitation");
  await card.getByText("Connect your account").waitFor();
  assert.ok(await ann.button("Confirm completion").isDisabled());
  await ann.checkPage("elicitation-url");
  await ann.button("Open…").click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText("not the operator of this server").waitFor();
  await ann.checkPage("elicitation-url-confirm");
  const link = dialog.getByRole("link", { name: "Open accounts.example.org" });
  assert.equal(await link.getAttribute("href"), "https://accounts.example.org/connect?state=7");
  assert.match(await link.getAttribute("rel"), /noopener/);
  await page.context().route("https://accounts.example.org/**", (route) => route.fulfill({ body: "connected" }));
  const [openedPage] = await Promise.all([page.context().waitForEvent("page"), link.click()]);
  await openedPage.getByText("connected").waitFor();
  await openedPage.close();
  await ann.button("Confirm completion").click();
  await page.locator(RUN_END).waitFor();
  await ann.waitForText("Answered by admin");
  await ann.close();
}
