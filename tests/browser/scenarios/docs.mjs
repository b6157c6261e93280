/** The page of the HTTP API: it shows every operation, calls one, and loads nothing foreign. */

import assert from "node:assert/strict";

export default async function docs({ house, browser }) {
  const page = await (await browser.newContext()).newPage();
  const [complaints, fetched] = [[], []];
  page.on("console", (message) => message.type() === "error" && complaints.push(message.text()));
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("request", (request) => fetched.push(request.url()));
  await page.goto(`${house.url}/docs`);
  const document = await (await fetch(`${house.url}/openapi.json`)).json();
  const operations = Object.values(document.paths).flatMap(Object.values);
  await page.locator(".opblock").first().waitFor();
  assert.equal(await page.locator(".opblock").count(), operations.length);

  // What needs no credential can be tried at once.
  const health = page.locator("#operations-operations-healthz");
  await health.locator(".opblock-summary-control").click();
  await health.getByRole("button", { name: "Try it out" }).click();
  await health.getByRole("button", { name: "Execute" }).click();
  const answer = health.locator(".live-responses-table");
  await answer.waitFor();
  assert.match(await answer.innerText(), /200[^]*"status": "ok"/);
  assert.deepEqual(complaints, []);
  const foreign = fetched.filter((url) => !url.startsWith(house.url) && !url.startsWith("data:"));
  assert.deepEqual(foreign, []);
}
