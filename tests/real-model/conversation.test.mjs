// A conversation with a real model through the real server: streamed text, usage, and a cancel that
// reaches the model. `make test-real-model` runs it; a small model on a small machine takes its time.

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
const LOOK_AGAIN = 50;
/** What so small a model answers well, and at length. */
const STORY = "Write a long story about a lighthouse keeper and the sea.";

let folder, model, server;

before(async () => {
  folder = await mkdtemp(join(tmpdir(), "greenroom-real-model-"));
  model = await started(process.execPath, [join(here, "server.mjs"), join(root, "target/real-model")], /(http:\S+)/);
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
  server = await started(join(target, "debug/greenroom"), ["serve"], /API\s+(http:\S+)/, { cwd: folder, env });
});

after(async () => {
  for (const one of [server, model]) one?.child.kill();
  if (folder) await rm(folder, { recursive: true });
});

/** A child that has said its address. */
function started(command, args, says, options = {}) {
  const child = spawn(command, args, { stdio: ["ignore", "pipe", "inherit"], ...options });
  return new Promise((done, failed) => {
    let out = "";
    child.once("error", failed);
    child.once("exit", (code) => failed(new Error(`${command} ended with ${code}: ${out}`)));
    child.stdout.on("data", (piece) => {
      out += piece;
      const found = out.match(says);
      if (found) done({ child, address: found[1] });
    });
  });
}

async function ask(method, path, body, accept = "application/json") {
  const headers = { authorization: `Bearer ${token}`, accept, "content-type": "application/json" };
  const answer = await fetch(server.address + path, { method, headers, body: body && JSON.stringify(body) });
  assert.ok(answer.ok, `${method} ${path}: ${answer.status} ${answer.ok ? "" : await answer.text()}`);
  return answer;
}

async function session() {
  return (await (await ask("POST", "/agent/session", {})).json()).session_id;
}

/** The events of one message's run. */
async function* chat(session_id, message) {
  const answer = await ask("POST", "/agent/chat/stream", { session_id, message }, "text/event-stream");
  let rest = "";
  for await (const piece of answer.body.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + piece).split("\n");
    rest = lines.pop();
    for (const line of lines) if (line.startsWith("data:")) yield JSON.parse(line.slice(5));
  }
}

async function heard(events) {
  const all = [];
  for await (const event of events) all.push(event);
  return all;
}

const textOf = (events) => events.filter(({ type }) => type === "text").map(({ text }) => text).join("");

test("M1 M6: a real conversation is streamed and counted", async () => {
  const id = await session();
  const first = await heard(chat(id, STORY));
  console.log(textOf(first));
  assert.match(textOf(first), /lighthouse|sea/);
  assert.ok(first.filter(({ type }) => type === "text").length > 3, "it comes in pieces");
  assert.equal(first.at(-1).type, "done");
  assert.equal(first.at(-1).outcome, "completed");
  const second = await heard(chat(id, "What is the name of the keeper?"));
  console.log(textOf(second));
  assert.notEqual(textOf(second), "");
  const used = (events) => events.find(({ type }) => type === "step_completed").usage;
  assert.ok(used(first).output_tokens > 0);
  assert.ok(used(second).input_tokens > used(first).input_tokens + used(first).output_tokens,
    "the conversation so far was told again");
  const messages = (await (await ask("GET", `/agent/session/${id}/messages`)).json()).messages;
  assert.deepEqual(messages.map(({ role }) => role), ["user", "assistant", "user", "assistant"]);
});

test("S6: a cancel reaches a real model in the middle of its answer", async () => {
  const id = await session();
  const seen = [];
  for await (const event of chat(id, STORY)) {
    seen.push(event);
    const pieces = seen.filter(({ type }) => type === "text").length;
    if (event.type === "text" && pieces === 5) await ask("POST", `/agent/session/${id}/cancel`, {});
  }
  assert.equal(seen.at(-1).outcome, "cancelled", textOf(seen));
  for (;;) {
    const ended = await (await fetch(`${model.address}/ended`)).json();
    if (ended.aborted === 1) break;
    await new Promise((done) => setTimeout(done, LOOK_AGAIN));
  }
  const messages = (await (await ask("GET", `/agent/session/${id}/messages`)).json()).messages;
  assert.ok(JSON.stringify(messages.at(-1)).includes(JSON.stringify(textOf(seen)).slice(1, -1)), "what was said is kept");
  const next = await heard(chat(id, "Say hello."));
  assert.equal(next.at(-1).outcome, "completed");
});
