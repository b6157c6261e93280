/** A tool that asks, of a real MCP server: a form of every kind of field, and a page to visit. */

import assert from "node:assert/strict";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { ENDED, Person } from "../browser.mjs";

const root = process.env.GREENROOM_ROOT ?? join(dirname(fileURLToPath(import.meta.url)), "../../..");
const everything = join(root, "target/test-deps/npm/node_modules/.bin/mcp-server-everything");

const calls = (user, tool, args) => `
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
  script: calls("ask me", "trigger-elicitation-request", "{}")
    + calls("send me", "trigger-url-elicitation", '{ url = "https://accounts.example.org/connect?state=7", message = "Connect your account" }'),
  configuration: `
[mcpServers.everything]
command = ${JSON.stringify(everything)}
args = ["stdio"]

[tools."trigger-*"]
risk = "read_only"
timeout = "2m"
`,
};

export default async function asking({ house, browser }) {
  const ann = await Person.sit(browser, house, { dark: true });
  const { page } = ann;
  await page.waitForFunction(async () => (await (await fetch("/agent/tools")).json()).tools.some((tool) => tool.name === "trigger-url-elicitation"));

  await ann.say("ask me", ".approval-card.elicitation");
  const card = page.locator(".approval-card.elicitation");
  assert.ok(await ann.button("Answer").isDisabled(), "the name is missing");
  await card.getByRole("textbox", { name: "String *" }).fill("Ann");
  // What the schema says where nobody says anything is there already.
  assert.equal(await card.getByRole("textbox", { name: /^String with default/ }).inputValue(), "It was a dark and stormy night.");
  assert.equal(await card.getByRole("textbox", { name: /^Integer/ }).inputValue(), "42");
  await card.getByRole("textbox", { name: /^String with email format/ }).fill("nobody");
  await ann.sees("This must be an address such as ann@example.org.");
  assert.ok(await ann.button("Answer").isDisabled());
  await card.getByRole("textbox", { name: /^String with email format/ }).fill("ann@example.org");
  await card.getByLabel(/^String with date format/).fill("2001-02-03");
  await card.getByRole("combobox", { name: /^Titled Single Select/ }).selectOption({ label: "Wonder Woman" });
  await card.getByRole("combobox", { name: /^Legacy Titled/ }).selectOption({ label: "Dogs" });
  const fish = card.getByRole("group", { name: /^Titled Multiple Select/ });
  assert.ok(await fish.getByLabel("Tuna").isChecked());
  await fish.getByLabel("Trout").check();
  await card.scrollIntoViewIfNeeded();
  await ann.look("question-form");
  await ann.button("Answer").click();
  await page.locator(ENDED).waitFor();
  const answer = await page.locator(".answer").last().innerText();
  for (const said of ["Ann", "ann@example.org"]) assert.ok(answer.includes(said), answer);
  const { approvals } = await house.ask("GET", "/agent/approvals?limit=1");
  assert.deepEqual(approvals[0].answer.value, {
    name: "Ann", firstLine: "It was a dark and stormy night.", email: "ann@example.org", birthdate: "2001-02-03", integer: 42, number: 3.14,
    untitledSingleSelectEnum: "Monica", untitledMultipleSelectEnum: ["Guitar"], titledSingleSelectEnum: "hero-3",
    titledMultipleSelectEnum: ["fish-1", "fish-3"], legacyTitledEnum: "pet-2",
  });

  // A page: nobody has been there who has not looked at where it leads.
  await ann.say("send me", ".approval-card.elicitation");
  await card.getByText("Connect your account").waitFor();
  assert.ok(await ann.button("I have been there").isDisabled());
  await ann.look("question-page");
  await ann.button("Visit…").click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText("not the people who run this server").waitFor();
  await ann.look("question-page-confirm");
  const link = dialog.getByRole("link", { name: "Open accounts.example.org" });
  assert.equal(await link.getAttribute("href"), "https://accounts.example.org/connect?state=7");
  assert.match(await link.getAttribute("rel"), /noopener/);
  await page.context().route("https://accounts.example.org/**", (route) => route.fulfill({ body: "connected" }));
  const [visited] = await Promise.all([page.context().waitForEvent("page"), link.click()]);
  await visited.getByText("connected").waitFor();
  await visited.close();
  await ann.button("I have been there").click();
  await page.locator(ENDED).waitFor();
  await ann.sees("Answered by admin");
  await ann.leave();
}
