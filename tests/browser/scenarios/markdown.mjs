/** What models write in markdown: tables, lists of what is done, code and links by reference. */

import assert from "node:assert/strict";
import { ENDED, Person } from "../browser.mjs";

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

export default async function markdown({ house, browser }) {
  for (const dark of [false, true]) {
    const ann = await Person.sit(browser, house, { dark });
    const { page } = ann;
    await ann.say("in markdown", ENDED);
    const answer = page.locator(".answer");
    const aligned = await answer.locator("td").evaluateAll((cells) => cells.map((cell) => getComputedStyle(cell).textAlign));
    assert.deepEqual(aligned, ["left", "center", "right"]);
    assert.deepEqual(await answer.getByRole("img").evaluateAll((marks) => marks.map((mark) => mark.ariaLabel)), ["to do", "done"]);
    await answer.locator(".code").getByRole("button", { name: "Copy the code" }).waitFor();
    for (const name of ["this", "it too"]) {
      assert.equal(await answer.getByRole("link", { name }).getAttribute("href"), "https://example.org/page");
    }
    assert.ok(!(await answer.innerText()).includes("[the page]"), "what defines an address is not shown");
    await ann.look(`markdown-${dark ? "dark" : "light"}`);
    await ann.leave();
  }
}
