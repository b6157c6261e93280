/** The page of the policy shows ceilings and their owners; administrators change them by keyboard. */

import assert from "node:assert/strict";
import { BrowserUser } from "../browser.mjs";

export default async function ceilings({ server, browser }) {
  const admin = await BrowserUser.open(browser, server);
  const { page } = admin;
  await admin.openPage("tools");
  const rows = page.getByRole("table", { name: "Ceilings" }).getByRole("row");
  await rows.filter({ hasText: "the installation" }).filter({ hasText: "10000002" }).waitFor();

  // Change them with the keyboard alone: invalid JSON and unknown keys are reported, then it is saved.
  await admin.button("Change ceilings").focus();
  await page.keyboard.press("Enter");
  const dialog = page.getByRole("dialog", { name: "Ceilings" });
  const editor = dialog.getByLabel("Ceilings (JSON)");
  await editor.waitFor();
  assert.equal(await editor.inputValue(), "{}");
  await editor.fill("{");
  await dialog.getByText("Not JSON:").waitFor();
  assert.equal(await dialog.getByRole("button", { name: "Save" }).isDisabled(), true);
  await editor.fill('{"autonomy": 1}');
  await dialog.getByRole("button", { name: "Save" }).focus();
  await page.keyboard.press("Enter");
  await dialog.getByText("unknown field `autonomy`").waitFor();
  await admin.screenshot("ceilings-error");
  await editor.fill('{"roles": {"user": {"autonomy_level": 0}}, "users": {"admin": {"blocked_tools": ["wallet_*"]}}}');
  await dialog.getByRole("button", { name: "Save" }).focus();
  await page.keyboard.press("Enter");
  await dialog.waitFor({ state: "detached" });
  await rows.filter({ hasText: "user admin" }).filter({ hasText: "wallet_*" }).waitFor();
  await admin.screenshot("ceilings");

  // A change by another administrator is not overwritten.
  await admin.button("Change ceilings").click();
  await editor.waitFor();
  await server.request("PUT", "/admin/ceilings", { version: 1, ceilings: { autonomy_level: 2 } });
  await editor.fill("{}");
  await dialog.getByRole("button", { name: "Save" }).click();
  await dialog.getByText("the ceilings have version 2").waitFor();
  await dialog.getByRole("button", { name: "Discard and reload" }).click();
  await page.waitForFunction(() => document.querySelector("dialog textarea")?.value.includes('"autonomy_level": 2'));
  await page.keyboard.press("Escape");
  await admin.close();

  // A user sees whose ceiling limits the level, and can't change it.
  await server.request("PUT", "/admin/ceilings", { version: 2, ceilings: { roles: { user: { autonomy_level: 0 } } } });
  const { key } = await server.request("POST", "/admin/keys", { user_id: "ada", role: "user" });
  const ada = await BrowserUser.open(browser, server, { token: key });
  await ada.openPage("tools");
  await ada.page.getByRole("row").filter({ hasText: "at most L0" }).filter({ hasText: "role user" }).waitFor();
  assert.equal(await ada.page.getByRole("button", { name: "Change ceilings" }).count(), 0);
  await ada.close();
}
