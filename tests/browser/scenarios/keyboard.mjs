/** Everything by keyboard: ask, approve, look, and always see where one is. */

import assert from "node:assert/strict";
import { ASKED, ENDED, Person } from "../browser.mjs";

export default async function keyboard({ house, browser }) {
  const ann = await Person.sit(browser, house);
  const { page } = ann;
  const { keyboard: keys } = page;
  const focused = () => page.evaluate(() => {
    const element = document.activeElement;
    return (element?.getAttribute("aria-label") ?? element?.textContent ?? "").trim();
  });
  /** Tabs until it is on what is named, and sees each stop. */
  const tabTo = async (name) => {
    for (let stops = 0; stops < 80; stops++) {
      await keys.press("Tab");
      const seen = await page.evaluate(() => {
        const element = document.activeElement;
        if (!element || element === document.body) return true;
        const style = getComputedStyle(element);
        return style.boxShadow !== "none" || style.borderColor !== "" || element.closest(":focus-within") !== null;
      });
      assert.ok(seen, `the focus shows on ${await focused()}`);
      if (name.test(await focused())) return;
    }
    throw new Error(`nothing named ${name} can be reached by Tab; the last was ${await focused()}`);
  };
  await page.locator(".welcome").waitFor();
  await page.getByRole("textbox", { name: "Message" }).waitFor();
  await keys.type("Buy 1000 Tritanium at market price");
  await keys.press("Enter");
  await page.locator(ASKED).waitFor();
  await page.locator("body").click({ position: { x: 5, y: 400 } });
  await tabTo(/^Approve$/);
  await keys.press("Enter");
  await page.locator(ENDED).last().waitFor();
  assert.equal(await focused(), "Message", "the question went, and one goes on writing");

  // A list of workflows closes, and opens with the next letter.
  await keys.type("/");
  await page.getByRole("listbox", { name: "Workflows" }).waitFor();
  await keys.press("Escape");
  await page.getByRole("listbox", { name: "Workflows" }).waitFor({ state: "detached" });
  await keys.type("p");
  await page.getByRole("listbox", { name: "Workflows" }).waitFor();
  await keys.press("Backspace");
  await keys.press("Backspace");
  // What becomes of a message is chosen, and Enter sends it.
  await keys.type("Buy 2000 Tritanium at market price");
  await keys.press("Enter");
  await page.locator(ASKED).waitFor();
  await keys.type("quickly");
  await ann.button("Steer").click();
  assert.equal(await focused(), "Message");
  await keys.press("Enter");
  await page.locator(".queued").waitFor();
  // In the inbox the next question has the focus, or the page where there is none.
  await ann.room("approvals");
  await page.locator(ASKED).waitFor();
  await tabTo(/^Reject$/);
  await keys.press("Enter");
  await page.getByText("Nobody waits for you").waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute("aria-label")), "Approvals");
  await ann.room("chat");
  await page.locator(".session-row a").last().click();
  await page.locator(ENDED).first().waitFor();
  await page.getByRole("textbox", { name: "Message" }).focus();

  // Stars by arrow keys, and words.
  await tabTo(/^Rate this answer$/);
  await keys.press("Enter");
  await tabTo(/^$/);
  assert.equal(await page.evaluate(() => document.activeElement.type), "radio");
  await keys.press("ArrowRight");
  await keys.press("ArrowRight");
  await page.locator(".star-field label:has(:focus-visible)").waitFor();
  await keys.press("Tab");
  await keys.type("quick");
  await keys.press("Enter");
  await page.getByRole("img", { name: "3 of 5 stars" }).waitFor();

  await page.reload();
  await page.locator(ENDED).last().waitFor();
  await keys.press("Tab");
  for (let n = 0; n < 3 && !/Skip to the content/.test(await focused()); n++) await keys.press("Shift+Tab");
  await tabTo(/^Events$/);
  await keys.press("Enter");
  await page.locator(".virtual-row").first().waitFor();
  await page.getByRole("listbox", { name: "Events" }).focus();
  await keys.press("Home");
  await keys.press("ArrowDown");
  await page.locator(".virtual-row[aria-posinset='2'][aria-selected=true]").waitFor();
  await page.locator(".event-detail").waitFor();
  await tabTo(/^Close the event$/);
  await keys.press("Enter");
  assert.equal(await page.locator(".event-detail").count(), 0);

  // The timeline zooms and goes back to the whole run.
  await ann.room("events/timeline");
  await page.locator(".span").first().waitFor();
  assert.ok(await ann.button("Whole run").isDisabled());
  await page.getByRole("group", { name: /^Timeline/ }).focus();
  await keys.press("+");
  await keys.press("ArrowRight");
  await page.locator(".timeline-bar button:not([disabled])", { hasText: "Whole run" }).waitFor();
  await keys.press("0");
  await page.locator(".timeline-bar button[disabled]", { hasText: "Whole run" }).waitFor();

  // A dialog takes the focus, and Escape gives it back.
  await ann.room("chat");
  await page.locator(".session-row a").first().click();
  await page.locator(ENDED).last().waitFor();
  await page.getByRole("button", { name: "More about this conversation" }).focus();
  await keys.press("Enter");
  await page.getByRole("menuitem", { name: "Timeline" }).waitFor();
  for (let n = 0; n < 5; n++) await keys.press("ArrowDown");
  assert.equal(await focused(), "Settings");
  await keys.press("Enter");
  await page.getByRole("dialog", { name: "Settings of this session" }).waitFor();
  await page.evaluate(() => {
    new MutationObserver((_, watch) => {
      if (document.querySelector("dialog")) return;
      watch.disconnect();
      window.focusedThen = document.activeElement.getAttribute("aria-label");
    }).observe(document.body, { childList: true, subtree: true });
  });
  await keys.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  assert.equal(await page.evaluate(() => window.focusedThen), "More about this conversation", "no key falls in between");
  assert.equal(await focused(), "More about this conversation");
  await keys.press("Enter");
  await page.getByRole("menuitem", { name: "Timeline" }).waitFor();
  await keys.press("Escape");
  assert.equal(await page.getByRole("menu").count(), 0);
  assert.equal(await focused(), "More about this conversation");
  await ann.leave();
}
