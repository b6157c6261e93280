/** The main actions by keyboard. The focus is always visible. */

import assert from "node:assert/strict";
import { APPROVAL, BrowserUser, RUN_END } from "../browser.mjs";

export default async function keyboard({ server, browser }) {
  const ann = await BrowserUser.open(browser, server);
  const { page } = ann;
  const { keyboard: keys } = page;
  const focused = () => page.evaluate(() => {
    const element = document.activeElement;
    return (element?.getAttribute("aria-label") ?? element?.textContent ?? "").trim();
  });
  /**
   * Presses Tab until the focus is on an element with the name. Asserts that each focus is visible.
   */
  const tabTo = async (name) => {
    for (let stops = 0; stops < 80; stops++) {
      await keys.press("Tab");
      const isVisible = await page.evaluate(() => {
        const element = document.activeElement;
        if (!element || element === document.body) return true;
        const style = getComputedStyle(element);
        return style.boxShadow !== "none" || style.borderColor !== "" || element.closest(":focus-within") !== null;
      });
      assert.ok(isVisible, `the focus is visible on ${await focused()}`);
      if (name.test(await focused())) return;
    }
    throw new Error(`no element named ${name} is reachable by Tab; the last was ${await focused()}`);
  };
  await page.locator(".welcome").waitFor();
  await page.getByRole("textbox", { name: "Message" }).waitFor();
  await keys.type("Buy 1000 Tritanium at market price");
  await keys.press("Enter");
  await page.locator(APPROVAL).waitFor();
  await page.locator("body").click({ position: { x: 5, y: 400 } });
  await tabTo(/^Approve$/);
  await keys.press("Enter");
  await page.locator(RUN_END).last().waitFor();
  assert.equal(await focused(), "Message", "the focus moves to the composer after the answer");

  // Escape closes the workflow list; the next letter opens it.
  await keys.type("/");
  await page.getByRole("listbox", { name: "Workflows" }).waitFor();
  await keys.press("Escape");
  await page.getByRole("listbox", { name: "Workflows" }).waitFor({ state: "detached" });
  await keys.type("p");
  await page.getByRole("listbox", { name: "Workflows" }).waitFor();
  await keys.press("Backspace");
  await keys.press("Backspace");
  // After the selection of a delivery mode, Enter sends the message.
  await keys.type("Buy 2000 Tritanium at market price");
  await keys.press("Enter");
  await page.locator(APPROVAL).waitFor();
  await keys.type("quickly");
  await ann.button("Steer").click();
  assert.equal(await focused(), "Message");
  await keys.press("Enter");
  await page.locator(".queued").waitFor();
  // In the inbox the focus moves to the next approval, or to the page if there is none.
  await ann.openPage("approvals");
  await page.locator(APPROVAL).waitFor();
  await tabTo(/^Reject$/);
  await keys.press("Enter");
  await page.getByText("No pending approvals").waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute("aria-label")), "Approvals");
  await ann.openPage("chat");
  await page.locator(".session-row a").last().click();
  await page.locator(RUN_END).first().waitFor();
  await page.getByRole("textbox", { name: "Message" }).focus();

  // A rating by arrow keys, with a comment.
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
  await page.locator(RUN_END).last().waitFor();
  await keys.press("Tab");
  for (let n = 0; n < 3 && !/Skip to content/.test(await focused()); n++) await keys.press("Shift+Tab");
  await tabTo(/^Events$/);
  await keys.press("Enter");
  await page.locator(".virtual-row").first().waitFor();
  await page.getByRole("listbox", { name: "Events" }).focus();
  await keys.press("Home");
  await keys.press("ArrowDown");
  await page.locator(".virtual-row[aria-posinset='2'][aria-selected=true]").waitFor();
  await page.locator(".event-detail").waitFor();
  await tabTo(/^Close details$/);
  await keys.press("Enter");
  assert.equal(await page.locator(".event-detail").count(), 0);

  // The timeline zooms and resets to the whole run.
  await ann.openPage("events/timeline");
  await page.locator(".span").first().waitFor();
  assert.ok(await ann.button("Whole run").isDisabled());
  await page.getByRole("group", { name: /^Timeline/ }).focus();
  await keys.press("+");
  await keys.press("ArrowRight");
  await page.locator(".timeline-bar button:not([disabled])", { hasText: "Whole run" }).waitFor();
  await keys.press("0");
  await page.locator(".timeline-bar button[disabled]", { hasText: "Whole run" }).waitFor();

  // A dialog takes the focus; Escape returns it.
  await ann.openPage("chat");
  await page.locator(".session-row a").first().click();
  await page.locator(RUN_END).last().waitFor();
  await page.getByRole("button", { name: "Session menu" }).focus();
  await keys.press("Enter");
  await page.getByRole("menuitem", { name: "Timeline" }).waitFor();
  for (let n = 0; n < 5; n++) await keys.press("ArrowDown");
  assert.equal(await focused(), "Settings");
  await keys.press("Enter");
  await page.getByRole("dialog", { name: "Session settings" }).waitFor();
  await page.evaluate(() => {
    new MutationObserver((_, observer) => {
      if (document.querySelector("dialog")) return;
      observer.disconnect();
      window.focusedAfterClose = document.activeElement.getAttribute("aria-label");
    }).observe(document.body, { childList: true, subtree: true });
  });
  await keys.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  assert.equal(await page.evaluate(() => window.focusedAfterClose), "Session menu", "the focus returns synchronously");
  assert.equal(await focused(), "Session menu");
  await keys.press("Enter");
  await page.getByRole("menuitem", { name: "Timeline" }).waitFor();
  await keys.press("Escape");
  assert.equal(await page.getByRole("menu").count(), 0);
  assert.equal(await focused(), "Session menu");
  await ann.close();
}
