/** The list of conversations: the newest, older ones when somebody asks, and a search in both. */

import assert from "node:assert/strict";
import { ENDED, Person } from "../browser.mjs";

const NEWER = 270;

export const setup = { configuration: "[limits]\nrequests_per_second = 10000" };

export default async function search({ house, browser }) {
  await house.ask("POST", "/agent/session", { title: "Which hangar?" });
  for (let n = 0; n < NEWER; n += 30) {
    await Promise.all(Array.from({ length: 30 }, (_, at) => house.ask("POST", "/agent/session", { title: `Number ${n + at}` })));
  }
  const ann = await Person.sit(browser, house);
  const { page } = ann;
  const rows = page.locator(".session-row");
  await rows.first().waitFor();
  assert.equal(await rows.count(), 50);
  await page.getByRole("searchbox", { name: "Search conversations" }).fill("hangar");
  await ann.sees("These were the newest 50.");
  await ann.look("search-newest");
  await ann.button("Search in older ones").click();
  await rows.getByText("Which hangar?").waitFor();
  assert.equal(await ann.button("Search in older ones").count(), 0, "all of them were read");
  await page.getByRole("searchbox", { name: "Search conversations" }).fill("nowhere");
  await ann.sees("Nothing matches");

  // What was read stays when something happens.
  await page.getByRole("searchbox", { name: "Search conversations" }).fill("");
  await ann.say("Hello", ENDED);
  await page.locator(".session-row[class*=idle]").first().getByText("Hello").waitFor();
  assert.equal(await rows.count(), NEWER + 2);
  await ann.leave();
}
