/** Four conversations side by side: what is in a pane fits into it, whatever the window's width. */

import assert from "node:assert/strict";
import { ASKED, ENDED, Person } from "../browser.mjs";

export default async function panes({ house, browser }) {
  const ann = await Person.sit(browser, house);
  const { page } = ann;
  const ids = [];
  for (const [text, until] of [["Get production cost for Stabber", ENDED], ["Stock up", ASKED], ["Buy 1000 Tritanium at market price", ASKED], ["Hello", ENDED]]) {
    await ann.say(text, until);
    ids.push(ann.session());
  }
  const fits = async (where) => {
    const cut = await page.evaluate(() => [...document.querySelectorAll(".approval-card, .call, .composer")].flatMap((box) => {
      const { right } = box.getBoundingClientRect();
      return [...box.querySelectorAll("*")].filter((one) => one.getBoundingClientRect().right > right + 1 && one.closest(".diff") === null).map((one) => one.outerHTML.slice(0, 120));
    }));
    assert.deepEqual(cut, [], where);
  };
  await ann.room(`chat/${ids.join(",")}`);
  await page.locator(ASKED).nth(1).waitFor();
  await fits("four panes");
  const title = await page.locator(".approval-title h3").first().boundingBox();
  assert.ok(title.width > 80, `the head of a question has ${title.width} pixels for its title`);
  await page.getByRole("button", { name: "Edit arguments" }).first().click();
  await page.getByRole("textbox", { name: /^quantity/ }).fill("10");
  await fits("an edit in one of four panes");
  await ann.look("panes-four");
  await ann.room(`chat/${ids.slice(1, 3).join(",")}`);
  await page.locator(".panes[data-count='2']").waitFor();
  await fits("two panes");
  await ann.leave();
}
