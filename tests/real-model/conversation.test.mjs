// Tests a conversation with a real model through the real server: streamed text, usage, and a cancel
// that reaches the model. `make test-real-model` runs it; a small model is slow.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const root = resolve(here, "../..");
const target = resolve(root, process.env.CARGO_TARGET_DIR ?? "target");
const token = "the-token-of-the-real-model-test";
const POLL_INTERVAL_MS = 50;
/** A request that a small model answers well and with a long text. */
const STORY = "Write a long story about a lighthouse keeper and the sea.";

let folder, model, server;

before(async () => {
  folder = await mkdtemp(join(tmpdir(), "greenroom-real-model-"));
  model = await start(process.execPath, [join(here, "server.mjs"), join(root, "target/real-model")], /(http:\S+)/);
  const configuration = `
[models.small]
wire = "openai"
model = "smollm2"
base_url = "${model.address}/v1"
api_key_env = "MODEL_KEY"
[agents.default]
model = "small"
system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
max_tokens = 80
`;
  await writeFile(join(folder, "greenroom.toml"), configuration);
  const env = { ...process.env, MODEL_KEY: "none", GREENROOM_TOKEN: token, GREENROOM_LISTEN: "127.0.0.1:0" };
  server = await start(join(target, "debug/greenroom"), ["serve"], /API\s+(http:\S+)/, { cwd: folder, env });
});

after(async () => {
  for (const running of [server, model]) running?.child.kill();
  if (folder) await rm(folder, { recursive: true });
});

/** Starts a child process and waits until it has printed its address. */
function start(command, args, addressPattern, options = {}) {
  const child = spawn(command, args, { stdio: ["ignore", "pipe", "inherit"], ...options });
  return new Promise((resolvePromise, reject) => {
    let out = "";
    child.once("error", reject);
    child.once("exit", (code) => reject(new Error(`${command} ended with ${code}: ${out}`)));
    child.stdout.on("data", (chunk) => {
      out += chunk;
      const found = out.match(addressPattern);
      if (found) resolvePromise({ child, address: found[1] });
    });
  });
}

async function sendRequest(method, path, body, accept = "application/json") {
  const headers = { authorization: `Bearer ${token}`, accept, "content-type": "application/json" };
  const response = await fetch(server.address + path, { method, headers, body: body && JSON.stringify(body) });
  assert.ok(response.ok, `${method} ${path}: ${response.status} ${response.ok ? "" : await response.text()}`);
  return response;
}

async function createSession() {
  return (await (await sendRequest("POST", "/agent/session", {})).json()).session_id;
}

/** Sends a message and yields the events of its run. */
async function* chat(session_id, message) {
  const response = await sendRequest("POST", "/agent/chat/stream", { session_id, message }, "text/event-stream");
  let rest = "";
  for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop();
    for (const line of lines) if (line.startsWith("data:")) yield JSON.parse(line.slice(5));
  }
}

async function collectEvents(events) {
  const all = [];
  for await (const event of events) all.push(event);
  return all;
}

const textOf = (events) => events.filter(({ type }) => type === "text").map(({ text }) => text).join("");

test("M1 M6: a real conversation is streamed and counted", async () => {
  const id = await createSession();
  const first = await collectEvents(chat(id, STORY));
  console.log(textOf(first));
  assert.match(textOf(first), /lighthouse|sea/);
  assert.ok(first.filter(({ type }) => type === "text").length > 3, "the text is streamed in several events");
  assert.equal(first.at(-1).type, "done");
  assert.equal(first.at(-1).outcome, "completed");
  const second = await collectEvents(chat(id, "What is the name of the keeper?"));
  console.log(textOf(second));
  assert.notEqual(textOf(second), "");
  const usage = (events) => events.find(({ type }) => type === "step_completed").usage;
  assert.ok(usage(first).output_tokens > 0);
  assert.ok(usage(second).input_tokens > usage(first).input_tokens + usage(first).output_tokens,
    "the second request contains the first exchange");
  const messages = (await (await sendRequest("GET", `/agent/session/${id}/messages`)).json()).messages;
  assert.deepEqual(messages.map(({ role }) => role), ["user", "assistant", "user", "assistant"]);
});

test("S6: a cancel stops a real model during its answer", async () => {
  const id = await createSession();
  const events = [];
  for await (const event of chat(id, STORY)) {
    events.push(event);
    const count = events.filter(({ type }) => type === "text").length;
    if (event.type === "text" && count === 5) await sendRequest("POST", `/agent/session/${id}/cancel`, {});
  }
  assert.equal(events.at(-1).outcome, "cancelled", textOf(events));
  for (;;) {
    const ended = await (await fetch(`${model.address}/ended`)).json();
    if (ended.aborted === 1) break;
    await new Promise((resolvePromise) => setTimeout(resolvePromise, POLL_INTERVAL_MS));
  }
  const messages = (await (await sendRequest("GET", `/agent/session/${id}/messages`)).json()).messages;
  assert.ok(JSON.stringify(messages.at(-1)).includes(JSON.stringify(textOf(events)).slice(1, -1)), "the text so far is kept");
  const next = await collectEvents(chat(id, "Say hello."));
  assert.equal(next.at(-1).outcome, "completed");
});
