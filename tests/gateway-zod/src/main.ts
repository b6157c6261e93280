// Usage: node main.js URL TOKEN [SNAPSHOT …]
//
// Runs the tour against a live server and validates every frame against the schemas; then validates
// the
// frames of the snapshot files. Prints one line of JSON; exits with 1 at the first violation.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { parseServerMessage, serverTypes, type ServerMessage } from "./schema.js";
import { framesOfType, Gateway, receivedTypes } from "./socket.js";

const [url = "", token = "", ...snapshots] = process.argv.slice(2);

function sendChat(gateway: Gateway, content: string, options: { sessionId?: string; id?: string } = {}): string {
  const id = options.id ?? randomUUID();
  const sessionId = options.sessionId ? { sessionId: options.sessionId } : {};
  gateway.send({ type: "chat.send", id, content, ...sessionId });
  return id;
}

/** Checks the invariants of the frames of a finished request. */
function checkStream(frames: ServerMessage[], requestId: string): void {
  for (const frame of frames) {
    assert.equal("requestId" in frame ? frame.requestId : undefined, requestId);
  }
  assert.equal(frames[0]?.type, "chat.stream.start", "the first frame is the stream start");
  assert.equal(frames.at(-1)?.type, "chat.stream.end", "the last frame is the stream end");
  assert.equal(framesOfType(frames, "chat.stream.start").length, 1);
  const proposed: string[] = [];
  const completed: string[] = [];
  for (const frame of frames) {
    if (frame.type === "tool.call") proposed.push(frame.toolCallId);
    if (frame.type === "tool.result") {
      assert(proposed.includes(frame.toolCallId), "a result follows its call");
      completed.push(frame.toolCallId);
    }
  }
  assert.deepEqual([...completed].sort(), [...proposed].sort(), "each call has one result");
}

async function awaitStreamEnd(gateway: Gateway, requestId: string, earlierFrames: ServerMessage[] = []) {
  const { all, last } = await gateway.receiveUntil("chat.stream.end");
  const frames = [...earlierFrames, ...all];
  checkStream(frames, requestId);
  assert.equal(last.usage.totalTokens, last.usage.inputTokens + last.usage.outputTokens);
  assert(last.usage.outputTokens > 0, "the end carries the usage");
  return { frames, end: last };
}

const joinDeltas = (frames: ServerMessage[]) =>
  framesOfType(frames, "chat.stream.delta").map((frame) => frame.delta).join("");

async function checkReadOnlyCall(gateway: Gateway): Promise<void> {
  const id = sendChat(gateway, "What is the current sell price of Tritanium in Jita?");
  const { frames, end } = await awaitStreamEnd(gateway, id);
  assert.equal(end.outcome, "completed");
  assert.match(joinDeltas(frames), /4\.12 ISK/);
  assert.equal(framesOfType(frames, "tool.call").length, 1);
}

async function checkDenial(gateway: Gateway): Promise<void> {
  const id = sendChat(gateway, "Transfer 100M ISK to character XYZ");
  const { frames } = await awaitStreamEnd(gateway, id);
  const [result] = framesOfType(frames, "tool.result");
  assert(result && "isError" in result && result.isError);
  assert.equal(result.result.reason, "authorization_denied");
  assert.match(result.result.error, /requires autonomy level/);
}

async function checkApprovals(gateway: Gateway): Promise<void> {
  let sessionId: string | undefined;
  for (const [approved, sessionApprove] of [[false], [true], [true, true]] as const) {
    const content = "Buy 1000 Tritanium at market price";
    const id = sendChat(gateway, content, sessionId ? { sessionId } : {});
    const { all, last } = await gateway.receiveUntil("tool.approval.request");
    sessionId ??= framesOfType(all, "chat.stream.start")[0]?.sessionId;
    assert.equal(last.risk, "medium");
    gateway.send({
      type: "tool.approval.response",
      id: randomUUID(),
      toolCallId: last.toolCallId,
      approved,
      ...(sessionApprove ? { sessionApprove } : {}),
    });
    const { frames } = await awaitStreamEnd(gateway, id, all);
    const result = framesOfType(frames, "tool.result").find((frame) => frame.toolCallId === last.toolCallId);
    assert.equal(result !== undefined && "isError" in result, !approved);
  }
  // Approved for the session: later calls need no approval.
  assert(sessionId);
  const id = sendChat(gateway, "Buy 1000 Tritanium at market price", { sessionId });
  const { frames } = await awaitStreamEnd(gateway, id);
  assert.equal(framesOfType(frames, "tool.approval.request").length, 0);
}

async function checkRepeatedRequest(gateway: Gateway): Promise<void> {
  const id = sendChat(gateway, "Which ships were destroyed most in Jita last week?");
  const { frames } = await awaitStreamEnd(gateway, id);
  const other = await Gateway.open(url, token);
  sendChat(other, "Which ships were destroyed most in Jita last week?", { id });
  const repeated = (await awaitStreamEnd(other, id)).frames;
  const events = (frames: ServerMessage[]) =>
    frames.filter((frame) => frame.type !== "chat.stream.delta");
  assert.deepEqual(events(repeated), events(frames));
  assert.equal(joinDeltas(repeated), joinDeltas(frames));
  other.close();
}

async function checkErrors(gateway: Gateway): Promise<void> {
  gateway.sendRaw("{");
  assert.equal((await gateway.receiveUntil("error")).last.code, "malformed_json");
  gateway.sendRaw(JSON.stringify({ type: "chat.unknown", id: "x" }));
  const unknown = (await gateway.receiveUntil("error")).last;
  assert.deepEqual([unknown.code, unknown.requestId], ["unknown_type", "x"]);
  const toolCallId = "0198c0de-0000-7000-8000-000000000001";
  gateway.send({ type: "tool.approval.response", id: "y", toolCallId, approved: true });
  assert.equal((await gateway.receiveUntil("error")).last.code, "approval_not_found");
  gateway.send({ type: "preflight.approval", id: "z", requestId: "none", approved: false });
  assert.equal((await gateway.receiveUntil("error")).last.requestId, "z");
  gateway.send({ type: "elicitation.response", id: "e", approvalId: toolCallId, action: "decline" });
  assert.equal((await gateway.receiveUntil("error")).last.code, "approval_not_found");
}

/** The members of `chat.send` that the founding document does not have, and the other edits. */
async function checkPreflight(gateway: Gateway): Promise<void> {
  const content = "Buy 1000 Tritanium at market price";
  const id = randomUUID();
  gateway.send({ type: "chat.send", id, content, preflight: true, autonomyLevel: 1 });
  const { all, last } = await gateway.receiveUntil("preflight.checklist");
  assert.deepEqual([last.estimatedCost.estimatedUSD, last.estimatedCost.costKnown], [0, false]);
  const steps = last.steps.map(({ description, toolName }) => ({ description, ...(toolName ? { toolName } : {}) }));
  gateway.send({ type: "preflight.approval", id: "short", requestId: id, approved: true, editedSteps: steps.slice(1) });
  assert.equal((await gateway.receiveUntil("error")).last.requestId, "short");
  // The plan is answered on another connection.
  const other = await Gateway.open(url, token);
  const editedSteps = steps.map((step) => ({ ...step, description: `${step.description}.` }));
  other.send({ type: "preflight.approval", id: "edit", requestId: id, approved: true, editedSteps });
  const { frames } = await awaitStreamEnd(gateway, id, all);
  assert.equal(framesOfType(frames, "tool.approval.request").length, 0);
  other.close();
}

async function checkCancel(gateway: Gateway): Promise<void> {
  const id = sendChat(gateway, "Buy 1000 Tritanium at market price");
  await gateway.receiveUntil("tool.approval.request");
  gateway.send({ type: "chat.cancel", id });
  assert.equal((await gateway.receiveUntil("chat.stream.end")).last.outcome, "cancelled");
}

async function checkAgentEvents(): Promise<void> {
  const gateway = await Gateway.open(`${url}?details=true`, token);
  const id = sendChat(gateway, "Get production cost for Stabber");
  const { frames } = await awaitStreamEnd(gateway, id);
  const nativeTypes = framesOfType(frames, "agent.event").map((frame) => frame.event.type);
  assert(nativeTypes.includes("tool_call_retrying"), nativeTypes.join());
  gateway.close();
}

/** Validates the frames in a snapshot file of the encoder's tests. Returns the number of frames. */
function validateSnapshot(path: string): number {
  const lines = readFileSync(path, "utf8").trim().split("\n");
  let frames = 0;
  for (const line of lines) {
    for (const frame of (JSON.parse(line) as { frames: unknown[] }).frames) {
      receivedTypes.add(parseServerMessage(frame).type);
      frames += 1;
    }
  }
  return frames;
}

const gateway = await Gateway.open(url, token);
for (const scenario of [checkReadOnlyCall, checkDenial, checkApprovals, checkRepeatedRequest, checkErrors, checkPreflight, checkCancel]) {
  await scenario(gateway);
}
gateway.close();
await checkAgentEvents();
const snapshotFrames = snapshots.map(validateSnapshot).reduce((sum, count) => sum + count, 0);
assert(snapshots.length === 0 || snapshotFrames > 30);
const missing = serverTypes.filter((type) => !receivedTypes.has(type));
assert.deepEqual(missing, snapshots.length === 0 ? ["elicitation.request"] : []);
console.log(JSON.stringify({ types: [...receivedTypes].sort(), onFile: snapshotFrames }));
