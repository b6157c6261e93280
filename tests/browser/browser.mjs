/** The browser, and what a person does with the page. */

import assert from "node:assert/strict";
import { mkdir, readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { PATIENCE_MS, TOKEN } from "./house.mjs";

const pictures = process.env.GREENROOM_PICTURES ?? join(dirname(fileURLToPath(import.meta.url)), "../../target/browser");

const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

export function launch() {
  return chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });
}

/** A person with a browser of their own. */
export class Person {
  static async sit(browser, house, { width = 1360, height = 860, dark = false, token = TOKEN, touch = false } = {}) {
    const context = await browser.newContext({ viewport: { width, height }, colorScheme: dark ? "dark" : "light", hasTouch: touch, reducedMotion: "reduce" });
    context.setDefaultTimeout(PATIENCE_MS);
    const page = await context.newPage();
    const person = new Person(context, page, house);
    page.on("pageerror", (error) => person.troubles.push(`error: ${error.message}`));
    page.on("console", (message) => {
      // What the network says of a killed server is no trouble of the page.
      if (message.type() === "error" && !/net::|WebSocket|Failed to load resource/.test(message.text())) person.troubles.push(message.text());
    });
    page.on("dialog", (dialog) => {
      person.troubles.push(`a dialog: ${dialog.message()}`);
      void dialog.dismiss();
    });
    if (token) await page.goto(`${house.url}/?token=${token}`);
    return person;
  }

  constructor(context, page, house) {
    Object.assign(this, { context, page, house, troubles: [] });
  }

  /** Nothing went wrong behind the page. */
  async leave() {
    assert.deepEqual(this.troubles, []);
    await this.context.close();
  }

  async room(name) {
    await this.page.evaluate((hash) => { location.hash = hash; }, `#/${name}`);
  }

  /** Begins a conversation by clicks, and waits until `until` can be seen. */
  async say(text, until) {
    await this.room("chat/new");
    await this.page.locator(".new-pane").waitFor();
    await this.page.getByRole("textbox", { name: "Message" }).fill(text);
    await this.page.getByRole("button", { name: "Send" }).click();
    if (until) await this.page.locator(until).last().waitFor();
  }

  /** The session in the address. */
  session() {
    return /#\/chat\/([0-9a-f-]{36})/.exec(this.page.url())?.[1];
  }

  call(tool, phase) {
    return this.page.locator(`.call[data-tool="${tool}"]${phase ? `[data-phase="${phase}"]` : ""}`);
  }

  button(name) {
    return this.page.getByRole("button", { name, exact: true });
  }

  async picture(name) {
    await mkdir(pictures, { recursive: true });
    await this.page.screenshot({ path: join(pictures, `${name}.png`) });
  }

  /** What could be seen when it went wrong. */
  static async pictures(browser, name) {
    for (const [at, context] of browser.contexts().entries()) {
      for (const page of context.pages()) {
        await mkdir(pictures, { recursive: true });
        await page.screenshot({ path: join(pictures, `failed-${name}-${at}.png`) }).catch(() => undefined);
      }
      await context.close();
    }
  }

  /** What is wrong with the page, as axe sees it. The check itself must get past the page's policy. */
  async faults(where) {
    await this.page.waitForFunction(() => document.fonts.status === "loaded");
    const session = await this.context.newCDPSession(this.page);
    await session.send("Runtime.evaluate", { expression: axe });
    const { result } = await session.send("Runtime.evaluate", {
      expression: `axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"], rules: { region: { enabled: false } } })
        .then((found) => JSON.stringify(found.violations.map((one) => [one.id, one.nodes.map((node) => node.html.slice(0, 160) + " " + (node.any[0]?.message ?? ""))])))`,
      awaitPromise: true,
    });
    return JSON.parse(result.value).map(([id, nodes]) => `${where}: ${id}: ${nodes.slice(0, 3).join(" | ")}`);
  }

  /** A picture, of a page in which nothing is wrong. */
  async look(name) {
    await this.picture(name);
    assert.deepEqual(await this.faults(name), []);
  }

  async sees(text) {
    await this.page.getByText(text).first().waitFor();
  }
}

export const ENDED = ".item-end";
export const ASKED = ".approval-card";
