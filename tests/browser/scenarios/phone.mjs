/** A phone, 360 pixels wide: everything can be reached, and nothing is wider than the screen. */

import assert from "node:assert/strict";
import { ASKED, ENDED, Person } from "../browser.mjs";

export default async function phone({ house, browser }) {
  const ann = await Person.sit(browser, house, { width: 360, height: 740, touch: true });
  const { page } = ann;
  const fits = async (where) => {
    const wide = await page.evaluate(() => [...document.querySelectorAll("body *")].filter((element) => {
      const box = element.getBoundingClientRect();
      let at = element.parentElement;
      // What is wider than its scrolling parent can be scrolled to.
      for (; at; at = at.parentElement) if (/auto|scroll|hidden/.test(getComputedStyle(at).overflowX) && at !== document.body) return false;
      return box.right > innerWidth + 1 && box.width > 0 && !element.closest(".sr-only");
    }).map((element) => element.outerHTML.slice(0, 120)));
    assert.deepEqual(wide, [], where);
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), where);
  };
  await ann.sees("No conversations yet");
  await fits("the list");
  await page.getByRole("link", { name: "New" }).tap();
  await page.locator(".welcome").waitFor();
  await fits("a new conversation");
  await page.getByRole("button", { name: /Buy 1000 Tritanium/ }).tap();
  await page.locator(ASKED).waitFor();
  await fits("a question");
  await ann.picture("phone-question");
  await page.getByRole("button", { name: "Edit arguments" }).tap();
  await page.getByRole("textbox", { name: /^quantity/ }).fill("10");
  await fits("an edit");
  await ann.button("Approve as edited").tap();
  await page.locator(ENDED).waitFor();
  await page.locator(".call summary").first().tap();
  await fits("an answer");
  await ann.picture("phone-answer");
  await page.getByRole("button", { name: "All conversations" }).tap();
  await page.locator(".session-row").first().waitFor();
  for (const [name, seen] of [["approvals", ".empty"], ["events", ".virtual-row"], ["events/timeline", ".span"], ["actors", ".actors tbody tr"], ["tools", ".tools tbody tr"], ["usage", ".chart canvas"], ["context", ".context"], ["audit", ".table tbody tr"]]) {
    await ann.room(name);
    await page.locator(seen).first().waitFor();
    await fits(name);
    await ann.picture(`phone-${name.replace("/", "-")}`);
  }
  await page.getByRole("link", { name: "Chat" }).tap();
  await page.locator(".session-row").first().waitFor();

  // The narrowest there are.
  await page.setViewportSize({ width: 320, height: 568 });
  const { x, width } = await page.getByRole("button", { name: "Dark colours" }).boundingBox();
  assert.ok(x + width <= 320, `the last button ends at ${x + width}`);
  await ann.look("phone-narrow");

  // Who writes from right to left is read so.
  await page.setViewportSize({ width: 360, height: 740 });
  await ann.say("שלום", ENDED);
  assert.equal(await page.locator(".bubble").evaluate((one) => getComputedStyle(one).direction), "rtl");
  await ann.leave();
}
