/** Signing in by the page itself, with a wrong key first; and again when that ends on an open page. */

import assert from "node:assert/strict";
import { Person } from "../browser.mjs";
import { TOKEN } from "../house.mjs";

export default async function signIn({ house, browser }) {
  const ann = await Person.sit(browser, house, { token: null });
  const { page } = ann;
  const asked = [];
  page.on("request", (request) => asked.push(request.url()));
  await page.goto(`${house.url}/#/tools`);
  const field = page.getByLabel("Token or API key");
  await field.waitFor();
  assert.ok(await field.evaluate((element) => element === document.activeElement));
  await ann.look("signed-out");
  const enter = async (token) => {
    await field.fill(token);
    await page.keyboard.press("Enter");
  };
  await enter("gr_wrong");
  await page.getByRole("alert").getByText("does not know this token").waitFor();
  await ann.look("signed-out-wrong");
  await enter(TOKEN);
  await page.getByRole("heading", { name: "Tools" }).waitFor();
  assert.equal(new URL(page.url()).hash, "#/tools");

  // The cookie ends while the page is open: whatever asks next finds out, and nobody is told “Live”.
  await page.locator(".connection.open").waitFor();
  await ann.context.clearCookies();
  await page.getByRole("link", { name: "Usage", exact: true }).click();
  await field.waitFor();
  await ann.sees("not signed in any more");
  assert.equal(await page.locator(".connection").count(), 0);
  await enter(TOKEN);
  await page.getByRole("heading", { name: "Usage", level: 1 }).waitFor();
  await page.locator(".connection.open").waitFor();
  assert.equal(new URL(page.url()).hash, "#/usage");
  await ann.say("Buy 1000 Tritanium at market price", ".approval-card");
  assert.deepEqual(asked.filter((url) => url.includes("token=") || url.includes("gr_wrong") || url.includes(TOKEN)), []);
  await ann.leave();

  // A link of another start says so, and leads to the same form.
  const bob = await Person.sit(browser, house, { token: null });
  await bob.page.goto(`${house.url}/?token=of-another-start`);
  await bob.page.getByRole("alert").getByText("does not know this link’s token").waitFor();
  await bob.look("signed-out-old-link");
  assert.equal(new URL(bob.page.url()).search, "");
  await bob.page.getByLabel("Token or API key").fill(TOKEN);
  await bob.page.keyboard.press("Enter");
  await bob.page.locator(".connection.open").waitFor();
  await bob.leave();
}
