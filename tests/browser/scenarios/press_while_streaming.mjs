/** A click on the message list meets its target although the answer grows and the list follows its end. */

import assert from "node:assert/strict";
import { BrowserUser, RUN_END } from "../browser.mjs";

export default async function pressWhileStreaming({ server, browser }) {
  const ann = await BrowserUser.open(browser, server);
  const { page } = ann;
  await ann.sendMessage("What is the current sell price of Tritanium in Jita?", RUN_END);
  await page.getByRole("textbox", { name: "Message" }).fill("Tell me a long story");
  await page.keyboard.press("Enter");

  // The list follows the end of the answer: the call card moves.
  const scroller = page.getByRole("log", { name: "Messages" });
  await page.waitForFunction(() => document.querySelector(".scroller").scrollTop > 0);
  const call = ann.callCard("get_market_stats", "completed");
  const { x, y, height } = await call.locator("summary").first().boundingBox();
  await page.mouse.move(x + 60, y + height / 2);
  const scrolledTo = () => scroller.evaluate((element) => element.scrollTop);
  const textLength = () => page.locator(".answer").last().evaluate((element) => element.textContent.length);

  await page.mouse.down();
  const [pressedAt, lengthBefore] = [await scrolledTo(), await textLength()];
  await page.waitForFunction((length) => [...document.querySelectorAll(".answer")].at(-1).textContent.length > length + 300, lengthBefore);
  assert.equal(await scrolledTo(), pressedAt, "the list does not move during a press");
  await page.mouse.up();
  await call.locator("details[open]").first().waitFor();

  // After the press the list follows its end again, and ends there.
  await page.locator(RUN_END).nth(1).waitFor();
  await page.waitForFunction(() => {
    const { scrollTop, scrollHeight, clientHeight } = document.querySelector(".scroller");
    return scrollHeight - scrollTop - clientHeight < 2;
  });

  // A form that opens moves the list at once: nothing is clicked at its position before the scroll.
  const distanceToEnd = await page.evaluate(() => new Promise((resolve) => {
    const element = document.querySelector(".scroller");
    new MutationObserver((_, observer) => {
      observer.disconnect();
      resolve(element.scrollHeight - element.scrollTop - element.clientHeight);
    }).observe(element, { childList: true, subtree: true });
    [...document.querySelectorAll("[aria-label='Rate this answer']")].at(-1).click();
  }));
  assert.ok(distanceToEnd < 2, `the list is ${distanceToEnd} pixels away from its end`);
  await ann.close();
}
