/**
 * 100,000 events: the list renders only the visible rows, every event is reachable, and a pause
 * loses none.
 */

import assert from "node:assert/strict";
import { BrowserUser, RUN_END } from "../browser.mjs";

const MANY = 100_000;
const SESSION = "0198c0de-0000-7000-8000-000000000001";

export default async function manyEvents({ server, browser }) {
  const ann = await BrowserUser.open(browser, server, { token: null });
  const { page } = ann;
  // The test injects frames into the WebSocket of the page.
  await page.addInitScript(() => {
    window.WebSocket = class extends WebSocket {
      constructor(...args) {
        super(...args);
        window.eventSocket = this;
      }
    };
  });
  await page.goto(`${server.url}/?token=the-token-of-the-tests-0123456789`);
  await ann.sendMessage("What is the current sell price of Tritanium in Jita?", RUN_END);
  await ann.openPage("events");
  await page.locator(".virtual-row").first().waitFor();
  const injectEvents = (first, last) => page.evaluate(([session, from, to, many]) => {
    for (let seq = from; seq <= to; seq++) {
      window.eventSocket.onmessage({ data: JSON.stringify({
        type: seq % 7 ? "tool_call_progress" : "tool_call_failed", session_id: session, plan_id: null, step_index: 1, seq, cursor: String(seq),
        timestamp: new Date(Date.now() - Math.max(0, many - seq)).toISOString(),
        payload: { call_id: `c-${seq}`, tool: `tool_${seq % 5}`, progress: seq, error: `number ${seq}`, run_id: session, agent_id: session, agent_type: "default" },
      }) });
    }
  }, [SESSION, first, last, MANY]);
  await injectEvents(1, MANY);
  await page.locator(".event-footer").getByText(/^100,0\d\d/).waitFor();

  const countRows = () => page.locator(".virtual-row").count();
  assert.ok(await countRows() < 200, "only the visible rows are rendered");
  const list = page.getByRole("listbox", { name: "Events" });
  await page.locator(".virtual-row", { hasText: `number ${MANY}` }).waitFor();
  await list.focus();
  await page.keyboard.press("Home");
  await page.locator(".virtual-row[aria-posinset='1'][aria-selected=true]").waitFor();
  await page.keyboard.press("End");
  await page.locator(".virtual-row[aria-selected=true]", { hasText: `number ${MANY}` }).waitFor();
  await list.evaluate((element) => { element.scrollTop = element.scrollHeight / 2; });
  await page.locator(".virtual-row", { hasText: /number 50\d\d\d/ }).first().waitFor();
  assert.ok(await countRows() < 200);

  // Filters and search cover all events.
  await page.getByRole("combobox", { name: "Type" }).selectOption("trouble");
  await page.locator(".event-footer").getByText(/^14,28\d of 100,0\d\d/).waitFor();
  await page.getByRole("searchbox", { name: "Search events" }).fill("number 99995");
  await page.locator(".event-footer").getByText(/^1 of/).waitFor();
  await page.getByRole("searchbox", { name: "Search events" }).fill("");
  await page.getByRole("combobox", { name: "Type" }).selectOption("");

  // A paused list does not change. Events received during the pause are shown afterwards.
  await page.getByRole("button", { name: "Pause" }).click();
  await injectEvents(MANY + 1, MANY + 10);
  await page.getByRole("button", { name: "Resume, 10 new" }).click();
  await list.focus();
  await page.keyboard.press("End");
  await page.locator(".virtual-row", { hasText: `number ${MANY + 10}` }).waitFor();
  await ann.close();
}
