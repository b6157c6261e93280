/** A call with numbers that JavaScript would round: they are shown and edited with every digit. */

import assert from "node:assert/strict";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { APPROVAL, BrowserUser, RUN_END } from "../browser.mjs";

const WEI = "123456789012345678901234567890";
const PRICE = "0.1000000000000000055511151231257827";
const EDITED = "987654321098765432109876543210";

export const setup = {
  script: `
[[rule]]
user = 'send wei'
step = 0
[[rule.reply]]
tool_call = { name = "first", arguments = '{"amount":${WEI},"price":${PRICE}}' }

[[rule]]
user = 'send wei'
step = 1
[[rule.reply]]
text = "Done."
`,
  configuration: `
[mcpServers.odd]
command = "python3"
args = ["${join(dirname(fileURLToPath(import.meta.url)), "../../mcp/odd_server.py")}", "numbers"]
[tools.first]
risk = "write_high_risk"
`,
};

export default async function exactNumbers({ server, browser }) {
  await server.request("PATCH", "/agent/settings", { autonomy_level: 1 });
  const ann = await BrowserUser.open(browser, server);
  const { page } = ann;
  await ann.sendMessage("send wei", APPROVAL);
  const shows = async (element, ...numbers) => {
    const text = await element.innerText();
    for (const number of numbers) assert.ok(text.includes(number), text);
  };
  await shows(page.locator(APPROVAL), WEI, PRICE);
  await ann.button("Edit arguments").click();
  const amount = page.getByRole("textbox", { name: /^amount/ });
  assert.equal(await amount.inputValue(), WEI);
  assert.equal(await page.getByRole("textbox", { name: /^price/ }).inputValue(), PRICE);
  await amount.fill(EDITED);
  await shows(page.locator(".diff"), WEI, EDITED);
  await ann.button("Approve as edited").click();
  await page.locator(RUN_END).waitFor();
  await shows(page.locator(".call-summary"), EDITED);
  await page.locator(".call summary").first().click();
  // The tool returns the text of the arguments that it received.
  await shows(page.locator(".call"), EDITED, PRICE);
  await ann.close();
}
