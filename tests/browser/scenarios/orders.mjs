/** An administrator looks at the actors, stops one and restarts it, and finds that in the audit log. */

import assert from "node:assert/strict";
import { ASKED, Person } from "../browser.mjs";

export default async function orders({ house, browser }) {
  const ann = await Person.sit(browser, house);
  const { page } = ann;
  await ann.say("Buy 1000 Tritanium at market price", ASKED);
  await ann.room("actors");
  await page.getByRole("button", { name: /^Waiting/ }).click();
  await page.getByText(/plan approval/).first().waitFor();
  await page.getByRole("button", { name: /^All/ }).click();

  await page.getByRole("row", { name: /ToolConnection/ }).getByRole("button", { name: "market" }).click();
  await ann.button("Stop").click();
  await page.getByRole("dialog").getByText(/its tools are unavailable/).waitFor();
  await ann.button("Leave it").click();
  assert.equal(await page.getByRole("dialog").count(), 0);
  await ann.button("Stop").click();
  await ann.button("Stop it").click();
  await page.getByRole("region", { name: "The actor" }).locator(".badge", { hasText: "stopped" }).waitFor();
  await ann.room("tools");
  await page.getByText("unavailable").first().waitFor();
  await ann.room("actors");
  await page.getByRole("row", { name: /ToolConnection/ }).getByRole("button", { name: "market" }).click();
  await ann.button("Restart").click();
  await ann.button("Restart it").click();
  await page.getByRole("region", { name: "The actor" }).locator(".badge", { hasText: "ready" }).waitFor();

  // The desk takes no orders.
  await page.getByRole("button", { name: "desk", exact: true }).click();
  assert.equal(await ann.button("Stop").count(), 0);

  await ann.room("audit");
  // The newest stand first; and a choice of action leaves those of its kind.
  await page.getByRole("row").nth(1).getByRole("cell", { name: "actor restarted" }).waitFor();
  await page.getByRole("cell", { name: "actor stopped" }).waitFor();
  await page.getByRole("combobox", { name: "Action" }).selectOption("actor_stopped");
  await page.getByRole("cell", { name: "actor restarted" }).waitFor({ state: "detached" });
  assert.equal(await page.locator(".audit tbody tr").count(), 1);
  await ann.leave();
}
