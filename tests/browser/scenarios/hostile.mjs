/** Model text, tool arguments and results full of HTML and script: nothing of it runs, loads or is markup. */

import assert from "node:assert/strict";
import { ENDED, Person } from "../browser.mjs";

const HOSTILE = `<script>window.pwned = 1</script><img src=x onerror="window.pwned = 2"><svg onload="window.pwned = 3"></svg>
<iframe srcdoc="<script>parent.pwned = 4</script>"></iframe> <style>body { display: none }</style> <a href="javascript:window.pwned = 5">inline</a>
[click me](javascript:window.pwned=6) [and me](data:text/html,<script>1</script>) ![pixel](http://127.0.0.1:1/pixel.png) <form action=/x><input name=q></form>
<div style="position:fixed;inset:0" onclick="window.pwned=7">cover</div>`;

export const setup = {
  script: `
[[rule]]
user = 'be hostile'
step = 0
[[rule.reply]]
text = '''${HOSTILE}'''
[[rule.reply]]
[rule.reply.tool_call]
name = "create_shopping_list"
[rule.reply.tool_call.arguments]
name = '''<img src=x onerror="window.pwned = 8"><script>window.pwned = 9</script>'''

[[rule]]
user = 'be hostile'
step = 1
[[rule.reply]]
text = '''${HOSTILE}'''
`,
};

export default async function hostile({ house, browser }) {
  const ann = await Person.sit(browser, house);
  const { page } = ann;
  const fetched = [];
  page.on("request", (request) => fetched.push(request.url()));
  await ann.say("be hostile <b onclick=\"window.pwned=10\">now</b>", ENDED);
  await page.locator(".call summary").click();
  await page.getByRole("group", { name: "arguments" }).getByText("onerror").waitFor();
  const answer = page.locator(".answer").last();
  for (const text of ["<script>window.pwned = 1</script>", "onerror", "<iframe"]) {
    assert.ok((await answer.innerText()).includes(text), `${text} is shown as the text it is`);
  }
  for (const tag of ["script", "img", "svg", "iframe", "style", "form", "input", "object", "b"]) {
    assert.equal(await page.locator(`.items .markdown ${tag}, .bubble ${tag}, .json ${tag}:not(.icon)`).filter({ hasNot: page.locator("path") }).count(), 0, tag);
  }
  for (const link of await answer.locator("a[href]").all()) assert.match(await link.getAttribute("href"), /^(https?|mailto):/);
  for (const link of await answer.locator("a").all()) await link.click({ force: true });
  await page.getByRole("link", { name: "Events", exact: true }).click();
  await page.locator(".virtual-row").last().click();
  for (const type of ["message_completed", "tool_call_completed", "tool_call_started"]) {
    await page.locator(".virtual-row", { hasText: type }).last().click();
    await page.locator(".event-detail .json").waitFor();
  }
  assert.equal(await page.evaluate(() => window.pwned), undefined);
  const foreign = fetched.filter((url) => !url.startsWith(house.url) && !url.startsWith("data:"));
  assert.deepEqual(foreign, []);

  // The policy of the page would stop what the sanitiser let through.
  const refused = await page.evaluate(() => {
    const tried = [];
    try { document.body.insertAdjacentHTML("beforeend", "<p>markup</p>"); } catch { tried.push("markup"); }
    // What the tools of the browser run may evaluate; what the page runs later may not.
    try { setTimeout("window.pwned = 11", 0); } catch { tried.push("eval"); }
    return tried;
  });
  assert.deepEqual(refused, ["markup", "eval"]);
  assert.equal(await page.evaluate(() => new Promise((done) => setTimeout(() => done(window.pwned), 20))), undefined);
  ann.troubles = ann.troubles.filter((trouble) => !/Content Security Policy|Trusted ?HTML|Trusted ?Script/i.test(trouble));
  await ann.leave();
}
