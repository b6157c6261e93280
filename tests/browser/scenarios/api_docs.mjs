/**
 * The page of the HTTP API shows every operation, calls one, and loads nothing from other hosts.
 */

import assert from "node:assert/strict";

export default async function apiDocs({ server, browser }) {
  const page = await (await browser.newContext()).newPage();
  const pageErrors = [];
  const requestedUrls = [];
  page.on("console", (message) => message.type() === "error" && pageErrors.push(message.text()));
  page.on("pageerror", (error) => pageErrors.push(String(error)));
  page.on("request", (request) => requestedUrls.push(request.url()));
  await page.goto(`${server.url}/docs`);
  const document = await (await fetch(`${server.url}/openapi.json`)).json();
  const operations = Object.values(document.paths).flatMap(Object.values);
  await page.locator(".opblock").first().waitFor();
  assert.equal(await page.locator(".opblock").count(), operations.length);

  // An operation without authentication can be called immediately.
  const health = page.locator("#operations-operations-healthz");
  await health.locator(".opblock-summary-control").click();
  await health.getByRole("button", { name: "Try it out" }).click();
  await health.getByRole("button", { name: "Execute" }).click();
  const responseTable = health.locator(".live-responses-table");
  await responseTable.waitFor();
  assert.match(await responseTable.innerText(), /200[^]*"status": "ok"/);
  assert.deepEqual(pageErrors, []);
  const externalUrls = requestedUrls.filter((url) => !url.startsWith(server.url) && !url.startsWith("data:"));
  assert.deepEqual(externalUrls, []);
}
