/** HTML and scripts in model text, arguments and results are not run, loaded or rendered. */

import assert from "node:assert/strict";
import { BrowserUser, RUN_END } from "../browser.mjs";

const UNTRUSTED = `<script>window.pwned = 1</script><img src=x onerror="window.pwned = 2"><svg onload="window.pwned = 3"></svg>
<iframe srcdoc="<script>parent.pwned = 4</script>"></iframe> <style>body { display: none }</style> <a href="javascript:window.pwned = 5">inline</a>
[click me](javascript:window.pwned=6) [and me](data:text/html,<script>1</script>) ![pixel](http://127.0.0.1:1/pixel.png) <form action=/x><input name=q></form>
<div style="position:fixed;inset:0" onclick="window.pwned=7">cover</div>`;

export const setup = {
  script: `
[[rule]]
user = 'be untrusted'
step = 0
[[rule.reply]]
text = '''${UNTRUSTED}'''
[[rule.reply]]
[rule.reply.tool_call]
name = "create_shopping_list"
[rule.reply.tool_call.arguments]
name = '''<img src=x onerror="window.pwned = 8"><script>window.pwned = 9</script>'''

[[rule]]
user = 'be untrusted'
step = 1
[[rule.reply]]
text = '''${UNTRUSTED}'''
`,
};

export default async function untrustedContent({ server, browser }) {
  const ann = await BrowserUser.open(browser, server);
  const { page } = ann;
  const requestedUrls = [];
  page.on("request", (request) => requestedUrls.push(request.url()));
  await ann.sendMessage("be untrusted <b onclick=\"window.pwned=10\">now</b>", RUN_END);
  await page.locator(".call summary").click();
  await page.getByRole("group", { name: "arguments" }).getByText("onerror").waitFor();
  const answer = page.locator(".answer").last();
  for (const text of ["<script>window.pwned = 1</script>", "onerror", "<iframe"]) {
    assert.ok((await answer.innerText()).includes(text), `${text} is shown as text`);
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
  const externalUrls = requestedUrls.filter((url) => !url.startsWith(server.url) && !url.startsWith("data:"));
  assert.deepEqual(externalUrls, []);

  // The content security policy blocks markup and scripts that pass the sanitiser.
  const blocked = await page.evaluate(() => {
    const blockedActions = [];
    try { document.body.insertAdjacentHTML("beforeend", "<p>markup</p>"); } catch { blockedActions.push("markup"); }
    // A CDP evaluation may use eval, so the script runs from a timer.
    try { setTimeout("window.pwned = 11", 0); } catch { blockedActions.push("eval"); }
    return blockedActions;
  });
  assert.deepEqual(blocked, ["markup", "eval"]);
  assert.equal(await page.evaluate(() => new Promise((done) => setTimeout(() => done(window.pwned), 20))), undefined);
  ann.pageErrors = ann.pageErrors.filter((error) => !/Content Security Policy|Trusted ?HTML|Trusted ?Script/i.test(error));
  await ann.close();
}
