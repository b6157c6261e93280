// Usage: node document.js URL TOKEN (calls | preflight)
//
// A client of the gateway that is built from its founding document and from nothing else. Its ids are
// "1", "2", … on each connection, and it appends every delta to the answer. Prints one line of JSON:
// the types of the frames that it received. Exits with 1 at the first violation.

import assert from "node:assert/strict";
import { Connection, framesOfType, receivedTypes } from "./connection.js";
import { ServerMessage, type ClientMessage, type EditedStep, type MessageOf } from "./document-schema.js";

const [url = "", token = "", part = ""] = process.argv.slice(2);

/** A connection, as of one browser tab. */
class Tab extends Connection<ServerMessage> {
  private lastId = 0;

  static open(): Promise<Tab> {
    return new Tab(url, token, (value) => ServerMessage.parse(value)).opened();
  }

  /** Sends a message and returns its id. */
  send(message: ClientMessage): string {
    this.lastId += 1;
    const id = String(this.lastId);
    this.socket.send(JSON.stringify({ ...message, id }));
    return id;
  }
}

/** Returns the answer as the client shows it. */
const appended = (frames: ServerMessage[]) =>
  framesOfType(frames, "chat.stream.delta").map((frame) => frame.delta).join("");

/** Checks the frames of a finished request: one stream, and one result for each call. */
function checkStream(frames: ServerMessage[], requestId: string): void {
  for (const frame of frames) assert.equal(frame.requestId, requestId);
  assert.equal(frames[0]?.type, "chat.stream.start");
  assert.equal(frames.at(-1)?.type, "chat.stream.end");
  const ids = (type: "tool.call" | "tool.result") => framesOfType(frames, type).map((frame) => frame.toolCallId).sort();
  assert.deepEqual(ids("tool.result"), ids("tool.call"));
}

async function answer(tab: Tab, content: string, sessionId?: string): Promise<ServerMessage[]> {
  const id = tab.send({ type: "chat.send", content, ...(sessionId ? { sessionId } : {}) });
  const { all } = await tab.receiveUntil("chat.stream.end");
  checkStream(all, id);
  return all;
}

/** The session is in a further member of the start. */
function sessionOf(frames: ServerMessage[]): string {
  const sessionId = framesOfType(frames, "chat.stream.start")[0]?.["sessionId"];
  assert(typeof sessionId === "string");
  return sessionId;
}

/** Two tabs that count from "1" have their own conversations. */
async function checkTwoTabs(): Promise<void> {
  const [first, second, third] = [await Tab.open(), await Tab.open(), await Tab.open()];
  const hello = await answer(first, "hello");
  const look = await answer(second, "look");
  const again = await answer(third, "hello");
  assert.equal(appended(hello), "Here I am.");
  assert.equal(appended(look), "Looking.Looked.");
  assert.equal(appended(again), "Here I am.");
  assert.equal(new Set([hello, look, again].map(sessionOf)).size, 3);
  // Each continues its own conversation.
  for (const [tab, frames] of [[first, hello], [second, look]] as const) {
    assert.equal(sessionOf(await answer(tab, "hello", sessionOf(frames))), sessionOf(frames));
  }
  for (const tab of [first, second, third]) tab.close();
}

/** Sends a message whose call asks for approval, and answers it; returns the frames of the request. */
async function decide(
  tab: Tab,
  content: string,
  decision: { approved: boolean; sessionApprove?: boolean },
  sessionId?: string,
): Promise<ServerMessage[]> {
  const id = tab.send({ type: "chat.send", content, ...(sessionId ? { sessionId } : {}) });
  const before = await tab.receiveUntil("tool.approval.request");
  tab.send({ type: "tool.approval.response", toolCallId: before.last.toolCallId, ...decision });
  const { all } = await tab.receiveUntil("chat.stream.end");
  const frames = [...before.all, ...all];
  checkStream(frames, id);
  return frames;
}

async function checkApprovals(): Promise<void> {
  const tab = await Tab.open();
  const rejected = await decide(tab, "order", { approved: false });
  const session = sessionOf(rejected);
  assert.match(JSON.stringify(framesOfType(rejected, "tool.result")[0]?.result), /rejected/);
  await decide(tab, "order", { approved: true }, session);
  const granted = await decide(tab, "order", { approved: true, sessionApprove: true }, session);
  assert.equal(framesOfType(granted, "tool.approval.request")[0]?.risk, "medium");
  const covered = await answer(tab, "order", session);
  assert.equal(framesOfType(covered, "tool.approval.request").length, 0);
  // A critical call is approved once, and the answer says so.
  for (let i = 0; i < 2; i += 1) {
    const critical = await decide(tab, "transfer", { approved: true, sessionApprove: true }, session);
    assert.equal(framesOfType(critical, "tool.approval.request")[0]?.risk, "high");
    assert.match(appended(critical), /Approved once, not for the session: wallet_transfer is critical/);
  }
  tab.close();
}

/** A client that only appends deltas shows that an interrupted text was withdrawn. */
async function checkDiscardedText(): Promise<void> {
  const tab = await Tab.open();
  const text = appended(await answer(tab, "stall"));
  const [before = "", after, ...rest] = text.split("\n[The answer was interrupted. The text above is withdrawn.]\n");
  assert(after !== undefined && rest.length === 0, text);
  assert(before.length > 0 && after.length > before.length && after.startsWith(before), text);
  tab.close();
}

async function checkErrors(): Promise<void> {
  const tab = await Tab.open();
  const empty = tab.send({ type: "chat.send", content: "" });
  const error = (await tab.receiveUntil("error")).last;
  assert.equal(error.requestId, empty);
  assert.match(error.message, /`content`/);
  const id = tab.send({ type: "tool.approval.response", toolCallId: "0198c0de-0000-7000-8000-000000000001", approved: true });
  assert.equal((await tab.receiveUntil("error")).last.requestId, id);
  // The connection stays open. A failed request has an error before its end.
  const failed = tab.send({ type: "chat.send", content: "refuse" });
  const { all } = await tab.receiveUntil("chat.stream.end");
  checkStream(all, failed);
  assert.equal(framesOfType(all, "error").length, 1);
  tab.close();
}

async function startPlan(tab: Tab): Promise<{ id: string; checklist: MessageOf<"preflight.checklist"> }> {
  const id = tab.send({ type: "chat.send", content: "plan" });
  const checklist = (await tab.receiveUntil("preflight.checklist")).last;
  assert.equal(checklist.requestId, id);
  assert.deepEqual(checklist.steps.map((step) => step.needsApproval), [false, true, true]);
  return { id, checklist };
}

/** Answers a plan and returns the answer's text; the run's calls are covered by the plan. */
async function runPlan(edit?: (steps: EditedStep[]) => EditedStep[]): Promise<string> {
  const tab = await Tab.open();
  const { id, checklist } = await startPlan(tab);
  const steps = checklist.steps.map(({ description, toolName }) => ({
    description,
    ...(toolName === undefined ? {} : { toolName }),
  }));
  const editedSteps = edit?.(steps);
  tab.send({ type: "preflight.approval", requestId: id, approved: true, ...(editedSteps ? { editedSteps } : {}) });
  const { all } = await tab.receiveUntil("chat.stream.end");
  assert.equal(framesOfType(all, "tool.approval.request").length, 0);
  assert.equal(framesOfType(all, "tool.result").length, 1);
  tab.close();
  return appended(all);
}

async function checkPreflights(): Promise<void> {
  // The price of the model is unknown: a number, with a warning.
  const tab = await Tab.open();
  const { id, checklist } = await startPlan(tab);
  assert.equal(checklist.estimatedCost.estimatedUSD, 0);
  assert(checklist.warnings.some((warning) => warning.includes("price")));
  // Steps of another plan are refused, and the plan can still be answered.
  for (const editedSteps of [[], [{ description: "x" }], [1, 2, 3].map(() => ({ description: "x", toolName: "none" }))]) {
    const wrong = tab.send({ type: "preflight.approval", requestId: id, approved: true, editedSteps });
    const error = (await tab.receiveUntil("error")).last;
    assert.equal(error.requestId, wrong);
    assert.match(error.message, /editedSteps\[\d\]/);
  }
  tab.send({ type: "preflight.approval", requestId: id, approved: false });
  const refused = (await tab.receiveUntil("chat.stream.end")).all;
  assert.equal(framesOfType(refused, "tool.call").length, 0);
  tab.close();

  assert.equal(await runPlan(), "Placed.");
  assert.equal(await runPlan((steps) => steps), "Placed.");
  const reworded = (steps: EditedStep[]) => steps.map((step) => ({ ...step, description: `${step.description}, please` }));
  assert.equal(await runPlan(reworded), "Placed as changed.");
  const skipLast = (steps: EditedStep[]) => steps.map((step, index) => ({ ...step, skip: index === 2 }));
  assert.equal(await runPlan(skipLast), "Placed without one.");
}

const checks = { calls: [checkTwoTabs, checkApprovals, checkDiscardedText, checkErrors], preflight: [checkPreflights] };
assert(part === "calls" || part === "preflight", "usage: document.js URL TOKEN (calls | preflight)");
for (const check of checks[part]) await check();
console.log(JSON.stringify([...receivedTypes].sort()));
