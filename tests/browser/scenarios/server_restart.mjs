/** An open page continues after the server is killed and restarted. */

import assert from "node:assert/strict";
import { APPROVAL, BrowserUser, RUN_END } from "../browser.mjs";

export default async function serverRestart({ server, browser }) {
  const ann = await BrowserUser.open(browser, server);
  const { page } = ann;
  await ann.sendMessage("Buy 1000 Tritanium at market price", APPROVAL);
  const deadline = await page.locator(".deadline time").getAttribute("datetime");
  await server.kill();
  await page.locator(".connection.lost, .connection.connecting").waitFor();

  // A message that cannot be sent stays in the composer.
  await page.getByRole("textbox", { name: "Message" }).fill("and sell it again");
  await ann.button("Send").click();
  await page.locator(".composer").getByText(/server is unreachable/).waitFor();
  assert.equal(await page.getByRole("textbox", { name: "Message" }).inputValue(), "and sell it again");
  await page.getByRole("textbox", { name: "Message" }).fill("");

  await server.restart();
  await page.locator(".connection.open").waitFor();
  assert.equal(await page.locator(".deadline time").getAttribute("datetime"), deadline);
  await ann.button("Approve").click();
  await ann.waitForText(/Done: order/);
  assert.equal(await page.locator(".bubble").count(), 1);

  // The server is killed during a message: the step is retried and completes.
  await ann.sendMessage("Tell me a long story", ".markdown.streaming");
  await server.kill();
  await page.locator(".connection.lost, .connection.connecting").waitFor();
  await server.restart();
  await page.locator(RUN_END).waitFor();
  const { messages } = await server.request("GET", `/agent/session/${ann.sessionId()}/messages`);
  const lettersAndDigits = (text) => text.replace(/[^\p{L}\p{N}]/gu, "");
  assert.equal(lettersAndDigits(await page.locator(".answer").last().innerText()), lettersAndDigits(messages.at(-1).content));
  await ann.close();
}
