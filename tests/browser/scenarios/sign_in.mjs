/**
 * Sign-in on the page, first with an invalid key; and again after the sign-in expires on an open
 * page.
 */

import assert from "node:assert/strict";
import { BrowserUser } from "../browser.mjs";
import { TOKEN } from "../server.mjs";

export default async function signIn({ server, browser }) {
  const ann = await BrowserUser.open(browser, server, { token: null });
  const { page } = ann;
  const requestedUrls = [];
  page.on("request", (request) => requestedUrls.push(request.url()));
  await page.goto(`${server.url}/#/tools`);
  const field = page.getByLabel("Token or API key");
  await field.waitFor();
  assert.ok(await field.evaluate((element) => element === document.activeElement));
  await ann.checkPage("signed-out");
  const submitToken = async (token) => {
    await field.fill(token);
    await page.keyboard.press("Enter");
  };
  await submitToken("gr_wrong");
  await page.getByRole("alert").getByText("Invalid token or API key").waitFor();
  await ann.checkPage("signed-out-wrong");
  await submitToken(TOKEN);
  await page.getByRole("heading", { name: "Tools" }).waitFor();
  assert.equal(new URL(page.url()).hash, "#/tools");

  // The cookie disappears while the page is open. The next request shows the sign-in page.
  await page.locator(".connection.open").waitFor();
  await ann.context.clearCookies();
  await page.getByRole("link", { name: "Usage", exact: true }).click();
  await field.waitFor();
  await ann.waitForText("You have been signed out");
  assert.equal(await page.locator(".connection").count(), 0);
  await submitToken(TOKEN);
  await page.getByRole("heading", { name: "Usage", level: 1 }).waitFor();
  await page.locator(".connection.open").waitFor();
  assert.equal(new URL(page.url()).hash, "#/usage");
  await ann.sendMessage("Buy 1000 Tritanium at market price", ".approval-card");
  assert.deepEqual(requestedUrls.filter((url) => url.includes("token=") || url.includes("gr_wrong") || url.includes(TOKEN)), []);
  await ann.close();

  // A link with an old token shows an error and the same form.
  const bob = await BrowserUser.open(browser, server, { token: null });
  await bob.page.goto(`${server.url}/?token=of-another-start`);
  await bob.page.getByRole("alert").getByText("The token in this link is not valid").waitFor();
  await bob.checkPage("signed-out-old-link");
  assert.equal(new URL(bob.page.url()).search, "");
  await bob.page.getByLabel("Token or API key").fill(TOKEN);
  await bob.page.keyboard.press("Enter");
  await bob.page.locator(".connection.open").waitFor();
  await bob.close();
}
