/** An administrator stops and restarts an actor; both actions are in the audit log. */

import assert from "node:assert/strict";
import { APPROVAL, BrowserUser } from "../browser.mjs";

export default async function actorActions({ server, browser }) {
  const ann = await BrowserUser.open(browser, server);
  const { page } = ann;
  await ann.sendMessage("Buy 1000 Tritanium at market price", APPROVAL);
  await ann.openPage("actors");
  await page.getByRole("button", { name: /^Waiting/ }).click();
  await page.locator(".waiting-for", { hasText: "plan" }).first().waitFor();
  await page.getByRole("button", { name: /^All/ }).click();

  await page.getByRole("row", { name: /ToolConnection/ }).getByRole("button", { name: "market" }).click();
  await ann.button("Stop").click();
  await page.getByRole("dialog").getByText(/its tools are unavailable/).waitFor();
  await ann.button("Cancel").click();
  assert.equal(await page.getByRole("dialog").count(), 0);
  await ann.button("Stop").click();
  await ann.button("Stop actor").click();
  await page.getByRole("region", { name: "Actor details" }).locator(".badge", { hasText: "stopped" }).waitFor();
  await ann.openPage("tools");
  await page.getByText("unavailable").first().waitFor();
  await ann.openPage("actors");
  await page.getByRole("row", { name: /ToolConnection/ }).getByRole("button", { name: "market" }).click();
  await ann.button("Restart").click();
  await ann.button("Restart actor").click();
  await page.getByRole("region", { name: "Actor details" }).locator(".badge", { hasText: "ready" }).waitFor();

  // The desk accepts no actions.
  await page.getByRole("button", { name: "desk", exact: true }).click();
  assert.equal(await ann.button("Stop").count(), 0);

  await ann.openPage("audit");
  // The newest rows are first. The action filter shows only rows of that action.
  await page.getByRole("row").nth(1).getByRole("cell", { name: "actor restarted" }).waitFor();
  await page.getByRole("cell", { name: "actor stopped" }).waitFor();
  await page.getByRole("combobox", { name: "Action" }).selectOption("actor_stopped");
  await page.getByRole("cell", { name: "actor restarted" }).waitFor({ state: "detached" });
  assert.equal(await page.locator(".audit tbody tr").count(), 1);
  await ann.close();
}
