/** 100,000 events: the list shows those that can be seen, all of them can be reached, and a pause loses none. */

import assert from "node:assert/strict";
import { ENDED, Person } from "../browser.mjs";

const MANY = 100_000;
const SESSION = "0198c0de-0000-7000-8000-000000000001";

export default async function manyEvents({ house, browser }) {
  const ann = await Person.sit(browser, house, { token: null });
  const { page } = ann;
  // The server speaks for itself, and the test speaks for a very busy one.
  await page.addInitScript(() => {
    window.WebSocket = class extends WebSocket {
      constructor(...address) {
        super(...address);
        window.line = this;
      }
    };
  });
  await page.goto(`${house.url}/?token=the-token-of-the-tests-0123456789`);
  await ann.say("What is the current sell price of Tritanium in Jita?", ENDED);
  await ann.room("events");
  await page.locator(".virtual-row").first().waitFor();
  const hear = (first, last) => page.evaluate(([session, from, to, many]) => {
    for (let seq = from; seq <= to; seq++) {
      window.line.onmessage({ data: JSON.stringify({
        type: seq % 7 ? "tool_call_progress" : "tool_call_failed", session_id: session, plan_id: null, step_index: 1, seq, cursor: String(seq),
        timestamp: new Date(Date.now() - Math.max(0, many - seq)).toISOString(),
        payload: { call_id: `c-${seq}`, tool: `tool_${seq % 5}`, progress: seq, error: `number ${seq}`, run_id: session, agent_id: session, agent_type: "default" },
      }) });
    }
  }, [SESSION, first, last, MANY]);
  await hear(1, MANY);
  await page.locator(".event-footer").getByText(/^100,0\d\d/).waitFor();

  const rows = () => page.locator(".virtual-row").count();
  assert.ok(await rows() < 200, "only what can be seen is there");
  const list = page.getByRole("listbox", { name: "Events" });
  await page.locator(".virtual-row", { hasText: `number ${MANY}` }).waitFor();
  await list.focus();
  await page.keyboard.press("Home");
  await page.locator(".virtual-row[aria-posinset='1'][aria-selected=true]").waitFor();
  await page.keyboard.press("End");
  await page.locator(".virtual-row[aria-selected=true]", { hasText: `number ${MANY}` }).waitFor();
  await list.evaluate((element) => { element.scrollTop = element.scrollHeight / 2; });
  await page.locator(".virtual-row", { hasText: /number 50\d\d\d/ }).first().waitFor();
  assert.ok(await rows() < 200);

  // Filters and search look at all of them.
  await page.getByRole("combobox", { name: "Type" }).selectOption("trouble");
  await page.locator(".event-footer").getByText(/^14,28\d of 100,0\d\d/).waitFor();
  await page.getByRole("searchbox", { name: "Search events" }).fill("number 99995");
  await page.locator(".event-footer").getByText(/^1 of/).waitFor();
  await page.getByRole("searchbox", { name: "Search events" }).fill("");
  await page.getByRole("combobox", { name: "Type" }).selectOption("");

  // Paused, the list stands still; what came meanwhile is there afterwards.
  await page.getByRole("button", { name: "Pause" }).click();
  await hear(MANY + 1, MANY + 10);
  await page.getByRole("button", { name: "Go on, 10 new" }).click();
  await list.focus();
  await page.keyboard.press("End");
  await page.locator(".virtual-row", { hasText: `number ${MANY + 10}` }).waitFor();
  await ann.leave();
}
