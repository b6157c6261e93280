/**
 * Runs the blocks of docs/tour.md and the example of README.md in a shell, against a real server, and compares
 * what they print: `node run.mjs SHELL`. In the page a block ```sh is input, and a block without a language after it is its
 * output: `…` stands for a part of a line, a line `…` for any lines.
 */

import { spawn } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, symlink } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** The time limit of a block, in milliseconds. */
const BLOCK_TIMEOUT_MS = 60_000;
/** The time limit of the output of background jobs after the block. */
const JOBS_TIMEOUT_MS = 10_000;
/** The heading of the part whose blocks start the server themselves. */
const OWN_SERVER = "## 10.";
/** A line that the shell prints after each block. */
const BLOCK_END = "\u0001end of block\u0001";

/** Blocks that are not in the page, run after the functions: errors of the server are shown, and texts are quoted. */
const PROBLEM = '{"code":"unauthorized","detail":"unknown token","status":401,…}\n';
const FURTHER_BLOCKS = [
  {
    heading: "a wrong token",
    input: "KEPT=$TOKEN; TOKEN=wrong-token-0123456789\ncreate 2>&1; chat 1 2 2>errors.txt; answer execute 2>&1; TOKEN=$KEPT\n",
    output: `curl: (22) …401\n${PROBLEM}${PROBLEM}curl: (22) …401\n${PROBLEM}`,
  },
  { heading: "no approval", input: "answer execute 2>&1\n", output: 'curl: (22) …\n{"code":…}\n' },
  {
    heading: "quotes and backslashes",
    input: "chat \"$(create)\" 'say \"hi\" \\ there'\n",
    output: '…\n{"type":"message_completed",…no rule for \\"say \\"hi\\" \\\\ there\\"…}\n{"type":"done",…}\n',
  },
];

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
const binary = process.env.GREENROOM_BINARY ?? join(root, "target/debug/greenroom");
const shellName = process.argv[2] ?? "sh";

/** Returns the blocks of the page in order, each with the heading above it. */
function parseBlocks(page) {
  const blocks = [];
  let heading = "";
  for (const [text, title, language, content] of page.matchAll(/^(## .*)$|^```(\w*)\n([^]*?)^```$/gm)) {
    if (title) heading = title;
    else if (language === "sh") blocks.push({ heading, input: content, output: "" });
    else if (language === "") blocks.at(-1).output = content;
    else throw new Error(`unexpected block: ${text}`);
  }
  return blocks;
}

/** Returns the pattern of an output: the whole text, with omissions. */
function outputPattern(output) {
  const escape = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const lines = output.split("\n").slice(0, -1);
  return new RegExp(`^${lines.map((line) => (line === "…" ? "(?:.*\n)*?" : `${line.split("…").map(escape).join(".*")}\n`)).join("")}$`);
}

/** A process whose output is collected. */
class Process {
  constructor(command, args, options) {
    this.output = "";
    this.child = spawn(command, args, { ...options, stdio: ["pipe", "pipe", "pipe"] });
    this.exited = new Promise((resolve) => this.child.once("exit", resolve));
    void this.exited.then(() => { this.hasExited = true; this.changed?.(); });
    for (const stream of [this.child.stdout, this.child.stderr]) {
      stream.setEncoding("utf8");
      stream.on("data", (text) => { this.output += text; this.changed?.(); });
    }
  }

  /** Waits until `condition` is true for the output. Returns false after `timeoutMs`, or if the process ends. */
  async waitFor(condition, timeoutMs = BLOCK_TIMEOUT_MS) {
    const deadline = Date.now() + timeoutMs;
    while (!condition(this.output)) {
      if (Date.now() > deadline || this.hasExited) return false;
      const changed = new Promise((resolve) => { this.changed = resolve; });
      let timer;
      await Promise.race([changed, new Promise((resolve) => { timer = setTimeout(resolve, deadline - Date.now()); })]);
      clearTimeout(timer);
    }
    return true;
  }

  async stop(signal) {
    this.child.kill(signal);
    await this.exited;
  }
}

async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

const [functions, ...stops] = parseBlocks(await readFile(join(root, "docs/tour.md"), "utf8"));
const readme = parseBlocks((await readFile(join(root, "README.md"), "utf8")).replaceAll("```toml", "```"));
const example = readme.find(({ heading }) => heading === "## Example");
example.output = '…\ndata: {"type":"waiting_for_approval",…\n…\ndata: {"type":"approval_decided",…\n…\ndata: {"type":"done",…"outcome":"completed",…\n…\n';
const ownServer = stops.findIndex(({ heading }) => heading.startsWith(OWN_SERVER));
stops.splice(ownServer, 0, { ...example, heading: "README.md, Example" });
const blocks = [functions, ...FURTHER_BLOCKS, ...stops];
const folder = await mkdtemp(join(tmpdir(), "greenroom-tour-"));
await mkdir(join(folder, "target/debug"), { recursive: true });
await symlink(join(root, "examples"), join(folder, "examples"));
await symlink(binary, join(folder, "target/debug/greenroom"));
const address = `127.0.0.1:${await freePort()}`;
const cleanEnv = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(GREENROOM|ANTHROPIC|OPENAI|MARKET)_/.test(name)));
// The tour as the page describes it, at another address.
const env = { ...cleanEnv, GREENROOM_LISTEN: address, MARKET_COMMAND: join(dirname(binary), "greenroom-market"), MARKET_FILE: join(folder, "market.jsonl") };
const options = { cwd: folder, env };

const server = new Process("target/debug/greenroom", ["serve", "--config", "examples/greenroom.toml"], options);
const shell = new Process(shellName, shellName.endsWith("bash") ? ["--norc"] : [], { ...options, detached: true });
let [passed, failed] = [0, 0];
try {
  if (!await server.waitFor((text) => text.includes("Greenroom is ready"))) throw new Error(`the server does not start: ${server.output}`);
  let serverRuns = true;
  for (const [index, { heading, input, output }] of blocks.entries()) {
    if (serverRuns && heading.startsWith(OWN_SERVER)) {
      await server.stop("SIGINT");
      serverRuns = false;
    }
    shell.output = "";
    const isShellComment = /(^|\s)#(\s|$)/m.test(input);
    shell.child.stdin.write(`${input.replaceAll("127.0.0.1:7878", address)}\nprintf '%s\\n' '${BLOCK_END}'\n`);
    const pattern = outputPattern(output);
    const printed = () => shell.output.replace(`${BLOCK_END}\n`, "");
    // A job in the background prints after the end of its block.
    const matches = await shell.waitFor((text) => text.includes(`${BLOCK_END}\n`)) && await shell.waitFor(() => pattern.test(printed()), JOBS_TIMEOUT_MS);
    // An interactive zsh has no comments.
    if (matches && !isShellComment) {
      passed += 1;
    } else {
      failed += 1;
      console.log(`FAILED block ${index + 1} of ${shellName} (${heading || "the functions"})${isShellComment ? ": it contains a comment" : ""}\n${input}\nexpected:\n${output}\nprinted:\n${printed()}`);
      break;
    }
  }
} finally {
  // The process group contains the servers that the last part started.
  try { process.kill(-shell.child.pid, "SIGKILL"); } catch { /* it has ended */ }
  await server.stop("SIGKILL");
  await rm(folder, { recursive: true, force: true });
}
console.log(`test result: ${failed || passed !== blocks.length ? "FAILED" : "ok"}. ${passed} passed, ${failed} failed`);
process.exit(failed || passed !== blocks.length ? 1 : 0);
