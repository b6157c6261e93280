/** What each room shows while there is nothing, while it loads, and while the server is away; and that it goes on by itself. */

import assert from "node:assert/strict";
import { ENDED, Person } from "../browser.mjs";

const ROOMS = ["chat", "approvals", "events", "events/timeline", "actors", "tools", "usage", "context", "audit"];
const named = (room) => room.replace("/", "-");

export default async function states({ house, browser }) {
  const ann = await Person.sit(browser, house);
  const { page } = ann;
  await page.locator(".welcome").waitFor();

  // Nothing has happened yet: every room says so, or has what is always there.
  for (const [room, seen] of [["approvals", "Nobody waits for you"], ["events", "Nothing has happened yet"], ["events/timeline", "No run to show"], ["usage", "Nothing to count"], ["context", "No step to look at"], ["audit", "Nobody has decided anything yet"]]) {
    await ann.room(room);
    await ann.sees(seen);
    await ann.look(`empty-${named(room)}`);
  }

  // While an answer is on its way, its place is kept.
  for (const [room, path] of [["tools", "/agent/tools"], ["usage", "/agent/statistics"], ["audit", "/admin/audit"]]) {
    let answer;
    const asked = new Promise((done) => { answer = done; });
    await page.route(`**${path}*`, async (route) => { await asked; await route.continue(); });
    await ann.room(room);
    await page.locator(".loading .skeleton").waitFor();
    if (room === "tools") await ann.look("loading-tools");
    answer();
    await page.locator(".loading").waitFor({ state: "detached" });
    await page.unroute(`**${path}*`);
  }

  // A refusal is told, and tried again by a click.
  await page.route("**/agent/policy*", (route) => route.fulfill({ status: 503, contentType: "application/problem+json", body: JSON.stringify({ code: "unavailable", detail: "the database is away" }) }));
  await ann.room("context");
  await ann.room("tools");
  await page.locator(".failed").getByText("the database is away").waitFor();
  await ann.look("failed-tools");
  await page.unroute("**/agent/policy*");
  await ann.button("Try again").click();
  await page.locator(".tools tbody tr").first().waitFor();

  // The server is away: what was heard stays, what was not says so, and all of it goes on by itself.
  await ann.say("What is the current sell price of Tritanium in Jita?", ENDED);
  await house.kill();
  await page.locator(".connection.lost").getByText("Server away").waitFor();
  await ann.look("away-chat");
  await page.setViewportSize({ width: 360, height: 740 });
  await page.locator(".offline-banner").getByText("The server is away").waitFor();
  await ann.look("away-phone");
  await page.setViewportSize({ width: 1360, height: 860 });
  for (const room of ROOMS.slice(1)) {
    await ann.room(room);
    await page.locator(".app-main h1").waitFor();
    await page.locator(".loading").waitFor({ state: "detached" });
    await ann.picture(`away-${named(room)}`);
    assert.equal(await page.locator("main.app-main").count(), 1, room);
  }
  await page.locator(".failed").getByText("goes on by itself").waitFor();
  await house.restart();
  await page.locator(".table.audit tbody tr").first().waitFor();
  await page.locator(".connection.open").waitFor();
  for (const [room, seen] of [["tools", ".tools tbody tr"], ["usage", ".tile"], ["actors", ".actors tbody tr"], ["events", ".virtual-row"], ["context", ".context"]]) {
    await ann.room(room);
    await page.locator(seen).first().waitFor();
  }
  await ann.leave();
}
