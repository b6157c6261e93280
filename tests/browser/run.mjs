/** Runs scenarios, all or those that are named: `node run.mjs [NAME…]`. */

import { readdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { launch, Person } from "./browser.mjs";
import { House } from "./house.mjs";

const folder = join(dirname(fileURLToPath(import.meta.url)), "scenarios");
const all = (await readdir(folder)).filter((name) => name.endsWith(".mjs")).map((name) => name.slice(0, -4)).sort();
const wanted = process.argv.slice(2);
const unknown = wanted.filter((name) => !all.includes(name));
if (unknown.length) {
  console.error(`there is no scenario ${unknown.join(", ")}, only: ${all.join(", ")}`);
  process.exit(2);
}

let [passed, failed] = [0, 0];
const browser = await launch();
for (const name of wanted.length ? wanted : all) {
  const { setup = {}, default: scenario } = await import(join(folder, `${name}.mjs`));
  const house = await House.open(setup);
  try {
    await scenario({ house, browser });
    passed += 1;
    console.log(`ok     ${name}`);
  } catch (error) {
    failed += 1;
    await Person.pictures(browser, name);
    console.log(`FAILED ${name}\n${error.stack}`);
  } finally {
    await house.close();
  }
}
await browser.close();
console.log(`test result: ${failed ? "FAILED" : "ok"}. ${passed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
