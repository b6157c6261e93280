/** A phone, 360 pixels wide: every page is reachable and nothing is wider than the screen. */

import assert from "node:assert/strict";
import { APPROVAL, BrowserUser, RUN_END } from "../browser.mjs";

export default async function mobileLayout({ server, browser }) {
  const ann = await BrowserUser.open(browser, server, { width: 360, height: 740, touch: true });
  const { page } = ann;
  const assertFits = async (label) => {
    const overflowing = await page.evaluate(() => [...document.querySelectorAll("body *")].filter((element) => {
      const box = element.getBoundingClientRect();
      let ancestor = element.parentElement;
      // Content that is wider than a scrolling parent is reachable by scrolling.
      for (; ancestor; ancestor = ancestor.parentElement) if (/auto|scroll|hidden/.test(getComputedStyle(ancestor).overflowX) && ancestor !== document.body) return false;
      return box.right > innerWidth + 1 && box.width > 0 && !element.closest(".sr-only");
    }).map((element) => element.outerHTML.slice(0, 120)));
    assert.deepEqual(overflowing, [], label);
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), label);
  };
  await ann.waitForText("No sessions yet");
  await assertFits("session list");
  await page.getByRole("link", { name: "New" }).tap();
  await page.locator(".welcome").waitFor();
  await assertFits("new session");
  await page.getByRole("button", { name: /Buy 1000 Tritanium/ }).tap();
  await page.locator(APPROVAL).waitFor();
  await assertFits("approval");
  await ann.screenshot("phone-approval");
  await page.getByRole("button", { name: "Edit arguments" }).tap();
  await page.getByRole("textbox", { name: /^quantity/ }).fill("10");
  await assertFits("edited arguments");
  await ann.button("Approve as edited").tap();
  await page.locator(RUN_END).waitFor();
  await page.locator(".call summary").first().tap();
  await assertFits("answer");
  await ann.screenshot("phone-answer");
  await page.getByRole("button", { name: "All sessions" }).tap();
  await page.locator(".session-row").first().waitFor();
  for (const [name, selector] of [["approvals", ".empty"], ["events", ".virtual-row"], ["events/timeline", ".span"], ["actors", ".actors tbody tr"], ["tools", ".tools tbody tr"], ["usage", ".chart canvas"], ["context", ".context"], ["audit", ".table tbody tr"]]) {
    await ann.openPage(name);
    await page.locator(selector).first().waitFor();
    await assertFits(name);
    await ann.screenshot(`phone-${name.replace("/", "-")}`);
  }
  await page.getByRole("link", { name: "Chat" }).tap();
  await page.locator(".session-row").first().waitFor();

  // The narrowest supported width.
  await page.setViewportSize({ width: 320, height: 568 });
  const { x, width } = await page.getByRole("button", { name: "Dark theme" }).boundingBox();
  assert.ok(x + width <= 320, `the last button ends at ${x + width}`);
  await ann.checkPage("phone-narrow");

  // A right-to-left message is displayed right to left.
  await page.setViewportSize({ width: 360, height: 740 });
  await ann.sendMessage("שלום", RUN_END);
  assert.equal(await page.locator(".bubble").evaluate((element) => getComputedStyle(element).direction), "rtl");
  await ann.close();
}
