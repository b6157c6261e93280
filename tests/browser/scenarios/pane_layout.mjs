/** Four sessions side by side: the content of a pane fits into the pane. */

import assert from "node:assert/strict";
import { APPROVAL, BrowserUser, RUN_END } from "../browser.mjs";

export default async function paneLayout({ server, browser }) {
  const ann = await BrowserUser.open(browser, server);
  const { page } = ann;
  const ids = [];
  for (const [text, until] of [["Get production cost for Stabber", RUN_END], ["Stock up", APPROVAL], ["Buy 1000 Tritanium at market price", APPROVAL], ["Hello", RUN_END]]) {
    await ann.sendMessage(text, until);
    ids.push(ann.sessionId());
  }
  const assertFits = async (label) => {
    const overflowing = await page.evaluate(() => [...document.querySelectorAll(".approval-card, .call, .composer")].flatMap((container) => {
      const { right } = container.getBoundingClientRect();
      return [...container.querySelectorAll("*")].filter((element) => element.getBoundingClientRect().right > right + 1 && element.closest(".diff") === null).map((element) => element.outerHTML.slice(0, 120));
    }));
    assert.deepEqual(overflowing, [], label);
  };
  await ann.openPage(`chat/${ids.join(",")}`);
  await page.locator(APPROVAL).nth(1).waitFor();
  await assertFits("four panes");
  const title = await page.locator(".approval-title h3").first().boundingBox();
  assert.ok(title.width > 80, `the title of an approval is ${title.width} pixels wide`);
  await page.getByRole("button", { name: "Edit arguments" }).first().click();
  await page.getByRole("textbox", { name: /^quantity/ }).fill("10");
  await assertFits("an edit in one of four panes");
  await ann.checkPage("panes-four");
  await ann.openPage(`chat/${ids.slice(1, 3).join(",")}`);
  await page.locator(".panes[data-count='2']").waitFor();
  await assertFits("two panes");
  await ann.close();
}
