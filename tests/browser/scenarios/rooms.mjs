/** Every room, light and dark: nothing that axe finds, and a picture of each. */

import assert from "node:assert/strict";
import { ASKED, ENDED, Person } from "../browser.mjs";

async function visit(person, name, see, found) {
  await see();
  await person.picture(name);
  found.push(...await person.faults(name));
}

export default async function rooms({ house, browser }) {
  const found = [];
  for (const dark of [false, true]) {
    const ann = await Person.sit(browser, house, { dark });
    const { page } = ann;
    const shade = dark ? "-dark" : "";
    const look = (name, see) => visit(ann, name + shade, see, found);
    await look("chat-new", () => page.locator(".welcome").waitFor());
    if (!dark) {
      await ann.say("Which ships were destroyed most in Jita last week?", ENDED);
      await ann.say("Get production cost for Vexor", ENDED);
      await ann.say("Transfer 100M ISK to character XYZ", ENDED);
      await ann.say("Buy 1000 Tritanium at market price", ASKED);
      await ann.button("Approve").click();
      await page.locator(ENDED).waitFor();
    }
    await ann.say("Find profitable manufacturing opportunities in Jita", ENDED);
    const long = ann.session();
    await look("chat-answer", async () => {
      await page.locator(".call").first().locator("summary").click();
      await page.locator(".session-row:not(:has([aria-current]))").first().hover();
    });
    await ann.say("Stock up", ASKED);
    const asked = ann.session();
    await look("chat-question", async () => {
      await page.getByRole("button", { name: "Edit arguments" }).first().click();
      await page.getByRole("textbox", { name: /^quantity/ }).fill("50000");
      await page.locator(".diff .added").waitFor();
    });
    await look("chat-side-by-side", async () => {
      await ann.room(`chat/${long},${asked}`);
      await page.locator(".pane").nth(1).locator(ASKED).waitFor();
      await page.locator(".pane").nth(0).locator(ENDED).waitFor();
    });
    await look("approvals", async () => {
      await ann.room("approvals");
      await page.locator(ASKED).first().waitFor();
    });
    await look("approvals-answered", async () => {
      await page.getByRole("button", { name: "Answered" }).click();
      await page.locator(".table tbody tr").first().waitFor();
    });
    await look("events", async () => {
      await ann.room("events");
      await page.locator(".virtual-row", { hasText: "tool_call_completed" }).last().click();
      await page.locator(".event-link").first().waitFor();
    });
    await look("timeline", async () => {
      await ann.room(`events/timeline?session=${long}`);
      await page.locator(".span").nth(4).waitFor();
    });
    await look("actors", async () => {
      await ann.room("actors");
      await page.locator(".actors .badge.warn").first().waitFor();
      await page.getByRole("button", { name: "desk" }).click();
    });
    await look("tools-all", async () => {
      await ann.room("tools");
      await page.locator(".tools tbody tr").first().hover();
    });
    await look("tools", async () => {
      await page.getByRole("button", { name: "market_order_create" }).click();
      await page.locator(".dry-run").waitFor();
    });
    await look("usage", async () => {
      await ann.room("usage");
      await page.locator(".chart canvas").nth(2).waitFor();
    });
    await look("context", async () => {
      await ann.room(`context/${long}`);
      await page.locator(".context, .empty").waitFor();
    });
    await look("audit", async () => {
      await ann.room("audit");
      await page.getByRole("button", { name: /^Row \d+$/ }).first().click();
      await page.locator(".event-detail").waitFor();
    });
    await ann.leave();
  }
  const stranger = await Person.sit(browser, house, { token: null });
  await visit(stranger, "signed-out", async () => {
    await stranger.page.goto(house.url);
    await stranger.page.getByText("This browser is not signed in").waitFor();
  }, found);
  await stranger.leave();
  assert.deepEqual(found, []);
}
