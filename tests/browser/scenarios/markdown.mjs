/** Markdown of models: tables, task lists, code and reference links. */

import assert from "node:assert/strict";
import { BrowserUser, RUN_END } from "../browser.mjs";

const TEXT = `
| left | centre | right |
|:---|:---:|---:|
| a | b | 1 |

- [ ] first
- [x] second

\`\`\`rust
fn main() {}
\`\`\`

[the page]: https://example.org/page "A page"
See [this][the page], and [it too][the page].
`;

export const setup = {
  script: `
[[rule]]
user = 'in markdown'
chunk = { text = 5, delay_ms = 1 }
[[rule.reply]]
text = '''${TEXT}'''
`,
};

export default async function markdown({ server, browser }) {
  for (const dark of [false, true]) {
    const ann = await BrowserUser.open(browser, server, { dark });
    const { page } = ann;
    await ann.sendMessage("in markdown", RUN_END);
    const answer = page.locator(".answer");
    const alignments = await answer.locator("td").evaluateAll((cells) => cells.map((cell) => getComputedStyle(cell).textAlign));
    assert.deepEqual(alignments, ["left", "center", "right"]);
    assert.deepEqual(await answer.getByRole("img").evaluateAll((marks) => marks.map((mark) => mark.ariaLabel)), ["to do", "done"]);
    await answer.locator(".code").getByRole("button", { name: "Copy code" }).waitFor();
    for (const name of ["this", "it too"]) {
      assert.equal(await answer.getByRole("link", { name }).getAttribute("href"), "https://example.org/page");
    }
    assert.ok(!(await answer.innerText()).includes("[the page]"), "link definitions are not shown");
    await ann.checkPage(`markdown-${dark ? "dark" : "light"}`);
    await ann.close();
  }
}
