/** The server is killed and started again under an open page, which goes on by itself. */

import assert from "node:assert/strict";
import { ASKED, ENDED, Person } from "../browser.mjs";

export default async function restart({ house, browser }) {
  const ann = await Person.sit(browser, house);
  const { page } = ann;
  await ann.say("Buy 1000 Tritanium at market price", ASKED);
  const deadline = await page.locator(".deadline time").getAttribute("datetime");
  await house.kill();
  await page.locator(".connection.lost, .connection.connecting").waitFor();

  // What is said meanwhile is not lost: it stays where it was written.
  await page.getByRole("textbox", { name: "Message" }).fill("and sell it again");
  await page.getByRole("button", { name: "Send" }).click();
  await page.locator(".composer").getByText(/can’t be reached/).waitFor();
  assert.equal(await page.getByRole("textbox", { name: "Message" }).inputValue(), "and sell it again");
  await page.getByRole("textbox", { name: "Message" }).fill("");

  await house.restart();
  await page.locator(".connection.open").waitFor();
  assert.equal(await page.locator(".deadline time").getAttribute("datetime"), deadline);
  await ann.button("Approve").click();
  await ann.sees(/Done: order/);
  assert.equal(await page.locator(".bubble").count(), 1);

  // Killed in the middle of a message: the answer begins again, and comes to its end.
  await ann.say("Tell me a long story", ".markdown.streaming");
  await house.kill();
  await page.locator(".connection.lost, .connection.connecting").waitFor();
  await house.restart();
  await page.locator(ENDED).waitFor();
  const { messages } = await house.ask("GET", `/agent/session/${ann.session()}/messages`);
  const plain = (text) => text.replace(/[^\p{L}\p{N}]/gu, "");
  assert.equal(plain(await page.locator(".answer").last().innerText()), plain(messages.at(-1).content));
  await ann.leave();
}
