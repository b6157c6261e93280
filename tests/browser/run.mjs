/** Runs all scenarios or the named ones: `node run.mjs [NAME…]`. */

import { readdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { BrowserUser, launchBrowser } from "./browser.mjs";
import { TestServer } from "./server.mjs";

const folder = join(dirname(fileURLToPath(import.meta.url)), "scenarios");
const allNames = (await readdir(folder)).filter((name) => name.endsWith(".mjs")).map((name) => name.slice(0, -4)).sort();
const requestedNames = process.argv.slice(2);
const unknownNames = requestedNames.filter((name) => !allNames.includes(name));
if (unknownNames.length) {
  console.error(`unknown scenario ${unknownNames.join(", ")}; known scenarios: ${allNames.join(", ")}`);
  process.exit(2);
}

let [passed, failed] = [0, 0];
const browser = await launchBrowser();
for (const name of requestedNames.length ? requestedNames : allNames) {
  const { setup = {}, default: scenario } = await import(join(folder, `${name}.mjs`));
  const server = await TestServer.launch(setup);
  try {
    await scenario({ server, browser });
    passed += 1;
    console.log(`ok     ${name}`);
  } catch (error) {
    failed += 1;
    await BrowserUser.saveFailureScreenshots(browser, name);
    console.log(`FAILED ${name}\n${error.stack}`);
  } finally {
    await server.close();
  }
}
await browser.close();
console.log(`test result: ${failed ? "FAILED" : "ok"}. ${passed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
