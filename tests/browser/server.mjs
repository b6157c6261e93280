/**
 * A test server: the real binary with the example market tools and a scripted model. It can be
 * killed.
 */

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
/** The time limit of each wait, in milliseconds. */
export const TIMEOUT_MS = Number(process.env.GREENROOM_BROWSER_TIMEOUT_MS ?? 60_000);

/** A running server with its own folder, database and configuration. */
export class TestServer {
  /**
   * Starts a server. `script` is placed before the rules of the tour, `configuration` after the
   * example's.
   */
  static async launch({ script = "", configuration = "", market = {} } = {}) {
    const folder = await mkdtemp(join(tmpdir(), "greenroom-browser-"));
    const server = new TestServer(folder);
    await server.configure(script, configuration, market);
    await server.start("127.0.0.1:0");
    return server;
  }

  constructor(folder) {
    this.folder = folder;
  }

  /** Writes the script and the configuration: those of the tour with the additions of the test. */
  async configure(script, configuration, market) {
    const tour = await readFile(join(root, "examples/rehearsal/market.toml"), "utf8");
    const fastTour = tour.replace("delay_ms = 120\nchunk = { text = 12, delay_ms = 12 }", "delay_ms = 5\nchunk = { text = 12, delay_ms = 1 }");
    if (fastTour === tour) throw new Error("market.toml does not contain the expected delays");
    const [defaults, ...rules] = fastTour.split(/^(?=\[\[rule\]\])/m);
    await writeFile(join(this.folder, "script.toml"), `${defaults}\n${script}\n${rules.join("")}`);
    await cp(join(root, "examples/market/catalog.toml"), join(this.folder, "catalog.toml"));
    await cp(join(root, "examples/workflows"), join(this.folder, "workflows"), { recursive: true });
    const exampleConfiguration = await readFile(join(root, "examples/greenroom.toml"), "utf8");
    await writeFile(
      join(this.folder, "greenroom.toml"),
      exampleConfiguration.replace("rehearsal/market.toml", "script.toml").replace("market/catalog.toml", "catalog.toml")
        .replace("../target/debug/greenroom-market", join(dirname(binary), "greenroom-market"))
        .replace("env = {", `env = {${Object.entries(market).map(([name, value]) => ` ${name} = "${value}",`).join("")}`) + `\n${configuration}\n`,
    );
  }

  /** Starts the process and waits until it prints its URL. */
  async start(listen) {
    const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(GREENROOM|ANTHROPIC|OPENAI|MARKET)_/.test(name)));
    this.process = spawn(binary, ["serve", "--config", "greenroom.toml"], {
      cwd: this.folder, stdio: ["ignore", "pipe", openSync(join(this.folder, "log"), "a")],
      env: { ...env, GREENROOM_LISTEN: listen, GREENROOM_TOKEN: TOKEN, GREENROOM_DATABASE: "green.db", MARKET_FILE: join(this.folder, "market.jsonl") },
    });
    const lines = createInterface({ input: this.process.stdout });
    this.url = await new Promise((resolve, reject) => {
      this.process.once("exit", (code) => reject(new Error(`the server exited with code ${code} before it was ready`)));
      lines.on("line", (line) => {
        const url = /(http:\/\/\S+)\/\?token=/.exec(line)?.[1];
        if (url) resolve(url);
      });
    });
  }

  /** Kills the process with SIGKILL. */
  async kill() {
    const exited = new Promise((resolve) => this.process.once("exit", resolve));
    this.process.kill("SIGKILL");
    await exited;
  }

  /** Starts the server again with the same database and address. */
  async restart() {
    await this.start(new URL(this.url).host);
  }

  async close() {
    await this.kill();
    await rm(this.folder, { recursive: true, force: true });
  }

  /** Sends an API request and returns the JSON body. Throws for an error response. */
  async request(method, path, body, token = TOKEN) {
    const response = await fetch(this.url + path, {
      method, body: body && JSON.stringify(body),
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    });
    const responseBody = await response.json();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${JSON.stringify(responseBody)}`);
    return responseBody;
  }
}
