/** A whole house: the real server with the market's tools and a scripted model, which can be killed. */

import { spawn } from "node:child_process";
import { openSync } from "node:fs";
import { cp, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const root = process.env.GREENROOM_ROOT ?? join(dirname(fileURLToPath(import.meta.url)), "../..");
const binary = process.env.GREENROOM_BINARY ?? join(root, "target/debug/greenroom");
export const TOKEN = "the-token-of-the-tests-0123456789";
/** Nothing here takes so long unless it is broken. */
export const PATIENCE_MS = Number(process.env.PATIENCE_MS ?? 60_000);

export class House {
  static async open({ script = "", configuration = "", market = {} } = {}) {
    const folder = await mkdtemp(join(tmpdir(), "greenroom-browser-"));
    const house = new House(folder);
    await house.configure(script, configuration, market);
    await house.start("127.0.0.1:0");
    return house;
  }

  constructor(folder) {
    this.folder = folder;
  }

  /** The tour, with what a test says differently before it. */
  async configure(script, configuration, market) {
    const tour = await readFile(join(root, "examples/rehearsal/market.toml"), "utf8");
    const quick = tour.replace("delay_ms = 120\nchunk = { text = 12, delay_ms = 12 }", "delay_ms = 5\nchunk = { text = 12, delay_ms = 1 }");
    if (quick === tour) throw new Error("the tour's pace stands elsewhere");
    const [defaults, ...rules] = quick.split(/^(?=\[\[rule\]\])/m);
    await writeFile(join(this.folder, "script.toml"), `${defaults}\n${script}\n${rules.join("")}`);
    await cp(join(root, "examples/market/catalog.toml"), join(this.folder, "catalog.toml"));
    await cp(join(root, "examples/workflows"), join(this.folder, "workflows"), { recursive: true });
    const own = await readFile(join(root, "examples/greenroom.toml"), "utf8");
    await writeFile(
      join(this.folder, "greenroom.toml"),
      own.replace("rehearsal/market.toml", "script.toml").replace("market/catalog.toml", "catalog.toml")
        .replace("../target/debug/greenroom-market", join(dirname(binary), "greenroom-market"))
        .replace("env = {", `env = {${Object.entries(market).map(([name, value]) => ` ${name} = "${value}",`).join("")}`) + `\n${configuration}\n`,
    );
  }

  async start(listen) {
    const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(GREENROOM|ANTHROPIC|OPENAI|MARKET)_/.test(name)));
    this.server = spawn(binary, ["serve", "--config", "greenroom.toml"], {
      cwd: this.folder, stdio: ["ignore", "pipe", openSync(join(this.folder, "log"), "a")],
      env: { ...env, GREENROOM_LISTEN: listen, GREENROOM_TOKEN: TOKEN, GREENROOM_DATABASE: "green.db", MARKET_FILE: join(this.folder, "market.jsonl") },
    });
    const lines = createInterface({ input: this.server.stdout });
    this.url = await new Promise((found, failed) => {
      this.server.once("exit", (code) => failed(new Error(`the server ended with ${code} before it was ready`)));
      lines.on("line", (line) => {
        const url = /Open\s+(http:\/\/\S+)\/\?token=/.exec(line)?.[1];
        if (url) found(url);
      });
    });
  }

  /** As the power would. */
  async kill() {
    const ended = new Promise((done) => this.server.once("exit", done));
    this.server.kill("SIGKILL");
    await ended;
  }

  /** On the same database and at the same address. */
  async restart() {
    await this.start(new URL(this.url).host);
  }

  async close() {
    await this.kill();
    await rm(this.folder, { recursive: true, force: true });
  }

  async ask(method, path, body, token = TOKEN) {
    const answer = await fetch(this.url + path, {
      method, body: body && JSON.stringify(body),
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    });
    const said = await answer.json();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${JSON.stringify(said)}`);
    return said;
  }
}
