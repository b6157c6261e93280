// Usage: node main.js URL TOKEN [SNAPSHOT …]
//
// Talks with a live server that serves the tour, and holds every frame against the schemas; does the
// same with the frames that are on file. Prints one line of JSON; exits 1 at the first contradiction.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { parse, serverTypes, type ServerMessage } from "./schema.js";
import { Gateway, heardTypes, only } from "./socket.js";

const [url = "", token = "", ...snapshots] = process.argv.slice(2);

function send(gateway: Gateway, content: string, more: { sessionId?: string; id?: string } = {}): string {
  const id = more.id ?? randomUUID();
  const sessionId = more.sessionId ? { sessionId: more.sessionId } : {};
  gateway.say({ type: "chat.send", id, content, ...sessionId });
  return id;
}

/** What holds of every finished request. */
function checkStream(frames: ServerMessage[], requestId: string): void {
  for (const frame of frames) {
    assert.equal("requestId" in frame ? frame.requestId : undefined, requestId);
  }
  assert.equal(frames[0]?.type, "chat.stream.start", "a stream starts with its start");
  assert.equal(frames.at(-1)?.type, "chat.stream.end", "and ends with its end");
  assert.equal(only(frames, "chat.stream.start").length, 1);
  const proposed: string[] = [];
  const done: string[] = [];
  for (const frame of frames) {
    if (frame.type === "tool.call") proposed.push(frame.toolCallId);
    if (frame.type === "tool.result") {
      assert(proposed.includes(frame.toolCallId), "a result comes after its call");
      done.push(frame.toolCallId);
    }
  }
  assert.deepEqual([...done].sort(), [...proposed].sort(), "each call has one result");
}

async function finish(gateway: Gateway, requestId: string, before: ServerMessage[] = []) {
  const { all, last } = await gateway.until("chat.stream.end");
  const frames = [...before, ...all];
  checkStream(frames, requestId);
  assert.equal(last.usage.totalTokens, last.usage.inputTokens + last.usage.outputTokens);
  assert(last.usage.outputTokens > 0, "the end carries the usage");
  return { frames, end: last };
}

const text = (frames: ServerMessage[]) =>
  only(frames, "chat.stream.delta").map((frame) => frame.delta).join("");

async function prices(gateway: Gateway): Promise<void> {
  const id = send(gateway, "What is the current sell price of Tritanium in Jita?");
  const { frames, end } = await finish(gateway, id);
  assert.equal(end.outcome, "completed");
  assert.match(text(frames), /4\.12 ISK/);
  assert.equal(only(frames, "tool.call").length, 1);
}

async function denial(gateway: Gateway): Promise<void> {
  const id = send(gateway, "Transfer 100M ISK to character XYZ");
  const { frames } = await finish(gateway, id);
  const [result] = only(frames, "tool.result");
  assert(result && "isError" in result && result.isError);
  assert.equal(result.result.reason, "authorization_denied");
  assert.match(result.result.error, /requires autonomy level/);
}

async function approvals(gateway: Gateway): Promise<void> {
  let sessionId: string | undefined;
  for (const [approved, sessionApprove] of [[false], [true], [true, true]] as const) {
    const content = "Buy 1000 Tritanium at market price";
    const id = send(gateway, content, sessionId ? { sessionId } : {});
    const { all, last } = await gateway.until("tool.approval.request");
    sessionId ??= only(all, "chat.stream.start")[0]?.sessionId;
    assert.equal(last.risk, "medium");
    gateway.say({
      type: "tool.approval.response",
      id: randomUUID(),
      toolCallId: last.toolCallId,
      approved,
      ...(sessionApprove ? { sessionApprove } : {}),
    });
    const { frames } = await finish(gateway, id, all);
    const result = only(frames, "tool.result").find((frame) => frame.toolCallId === last.toolCallId);
    assert.equal(result !== undefined && "isError" in result, !approved);
  }
  // Approved for the session: nobody is asked any more.
  assert(sessionId);
  const id = send(gateway, "Buy 1000 Tritanium at market price", { sessionId });
  const { frames } = await finish(gateway, id);
  assert.equal(only(frames, "tool.approval.request").length, 0);
}

async function repetition(gateway: Gateway): Promise<void> {
  const id = send(gateway, "Which ships were destroyed most in Jita last week?");
  const { frames } = await finish(gateway, id);
  const other = await Gateway.open(url, token);
  send(other, "Which ships were destroyed most in Jita last week?", { id });
  const again = (await finish(other, id)).frames;
  const events = (frames: ServerMessage[]) =>
    frames.filter((frame) => frame.type !== "chat.stream.delta");
  assert.deepEqual(events(again), events(frames));
  assert.equal(text(again), text(frames));
  other.close();
}

async function refusals(gateway: Gateway): Promise<void> {
  gateway.sayNonsense("{");
  assert.equal((await gateway.until("error")).last.code, "malformed_json");
  gateway.sayNonsense(JSON.stringify({ type: "chat.shout", id: "x" }));
  const unknown = (await gateway.until("error")).last;
  assert.deepEqual([unknown.code, unknown.requestId], ["unknown_type", "x"]);
  const toolCallId = "0198c0de-0000-7000-8000-000000000001";
  gateway.say({ type: "tool.approval.response", id: "y", toolCallId, approved: true });
  assert.equal((await gateway.until("error")).last.code, "approval_not_found");
  gateway.say({ type: "preflight.approval", id: "z", requestId: "none", approved: false });
  assert.equal((await gateway.until("error")).last.requestId, "z");
  gateway.say({ type: "elicitation.response", id: "e", approvalId: toolCallId, action: "decline" });
  assert.equal((await gateway.until("error")).last.code, "approval_not_found");
}

async function details(): Promise<void> {
  const gateway = await Gateway.open(`${url}?details=true`, token);
  const id = send(gateway, "Get production cost for Stabber");
  const { frames } = await finish(gateway, id);
  const native = only(frames, "agent.event").map((frame) => frame.event.type);
  assert(native.includes("tool_call_retrying"), native.join());
  gateway.close();
}

/** The frames that the encoder's own tests have on file; returns how many. */
function onFile(path: string): number {
  const lines = readFileSync(path, "utf8").trim().split("\n");
  let frames = 0;
  for (const line of lines) {
    for (const frame of (JSON.parse(line) as { frames: unknown[] }).frames) {
      heardTypes.add(parse(frame).type);
      frames += 1;
    }
  }
  return frames;
}

const gateway = await Gateway.open(url, token);
for (const scenario of [prices, denial, approvals, repetition, refusals]) {
  await scenario(gateway);
}
gateway.close();
await details();
const frames = snapshots.map(onFile).reduce((sum, count) => sum + count, 0);
assert(snapshots.length === 0 || frames > 30);
const missing = serverTypes.filter((type) => !heardTypes.has(type));
assert.deepEqual(missing, snapshots.length === 0 ? ["preflight.checklist", "elicitation.request"] : []);
console.log(JSON.stringify({ types: [...heardTypes].sort(), onFile: frames }));
