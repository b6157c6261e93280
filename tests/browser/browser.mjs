/** The browser, and the actions of a user on the dashboard. */

import assert from "node:assert/strict";
import { mkdir, readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { TIMEOUT_MS, TOKEN } from "./server.mjs";

const screenshots = process.env.GREENROOM_SCREENSHOTS ?? join(dirname(fileURLToPath(import.meta.url)), "../../target/browser");

const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** The selector of the end of a run. */
export const RUN_END = ".item-end";
/** The selector of a pending approval. */
export const APPROVAL = ".approval-card";

export function launchBrowser() {
  return chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });
}

/** A user with their own browser context. */
export class BrowserUser {
  /** Opens the dashboard; without a token the page stays blank. */
  static async open(browser, server, { width = 1360, height = 860, dark = false, token = TOKEN, touch = false } = {}) {
    const context = await browser.newContext({ viewport: { width, height }, colorScheme: dark ? "dark" : "light", hasTouch: touch, reducedMotion: "reduce" });
    context.setDefaultTimeout(TIMEOUT_MS);
    const page = await context.newPage();
    const user = new BrowserUser(context, page, server);
    page.on("pageerror", (error) => user.pageErrors.push(`error: ${error.message}`));
    page.on("console", (message) => {
      // Network errors of a killed server are expected.
      if (message.type() === "error" && !/net::|WebSocket|Failed to load resource/.test(message.text())) user.pageErrors.push(message.text());
    });
    page.on("dialog", (dialog) => {
      user.pageErrors.push(`a dialog: ${dialog.message()}`);
      void dialog.dismiss();
    });
    if (token) await page.goto(`${server.url}/?token=${token}`);
    return user;
  }

  constructor(context, page, server) {
    Object.assign(this, { context, page, server, pageErrors: [] });
  }

  /** Closes the browser context. Fails if the page reported errors. */
  async close() {
    assert.deepEqual(this.pageErrors, []);
    await this.context.close();
  }

  /** Opens a page of the dashboard by its route. */
  async openPage(route) {
    await this.page.evaluate((hash) => { location.hash = hash; }, `#/${route}`);
  }

  /** Starts a session with a message by clicks, and waits until `selector` is visible. */
  async sendMessage(text, selector) {
    await this.openPage("chat/new");
    await this.page.locator(".new-pane").waitFor();
    await this.page.getByRole("textbox", { name: "Message" }).fill(text);
    await this.button("Send").click();
    if (selector) await this.page.locator(selector).last().waitFor();
  }

  /** Returns the id of the session in the URL. */
  sessionId() {
    return /#\/chat\/([0-9a-f-]{36})/.exec(this.page.url())?.[1];
  }

  /** Returns the locator of a tool's call cards, optionally in one phase. */
  callCard(tool, phase) {
    return this.page.locator(`.call[data-tool="${tool}"]${phase ? `[data-phase="${phase}"]` : ""}`);
  }

  button(name) {
    return this.page.getByRole("button", { name, exact: true });
  }

  async screenshot(name) {
    await mkdir(screenshots, { recursive: true });
    await this.page.screenshot({ path: join(screenshots, `${name}.png`) });
  }

  /** Saves a screenshot of every open page after a failure, and closes the contexts. */
  static async saveFailureScreenshots(browser, name) {
    for (const [index, context] of browser.contexts().entries()) {
      for (const page of context.pages()) {
        await mkdir(screenshots, { recursive: true });
        await page.screenshot({ path: join(screenshots, `failed-${name}-${index}.png`) }).catch(() => undefined);
      }
      await context.close();
    }
  }

  /**
   * Returns the accessibility violations that axe finds. Uses CDP, because the page's CSP blocks
   * other scripts.
   */
  async findViolations(pageName) {
    await this.page.waitForFunction(() => document.fonts.status === "loaded");
    const cdpSession = await this.context.newCDPSession(this.page);
    await cdpSession.send("Runtime.evaluate", { expression: axe });
    const { result } = await cdpSession.send("Runtime.evaluate", {
      expression: `axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"], rules: { region: { enabled: false } } })
        .then((found) => JSON.stringify(found.violations.map((violation) => [violation.id, violation.nodes.map((node) => node.html.slice(0, 160) + " " + (node.any[0]?.message ?? ""))])))`,
      awaitPromise: true,
    });
    return JSON.parse(result.value).map(([id, nodes]) => `${pageName}: ${id}: ${nodes.slice(0, 3).join(" | ")}`);
  }

  /** Saves a screenshot and asserts that there are no accessibility violations. */
  async checkPage(name) {
    await this.screenshot(name);
    assert.deepEqual(await this.findViolations(name), []);
  }

  /** Waits until the text is visible. */
  async waitForText(text) {
    await this.page.getByText(text).first().waitFor();
  }
}
