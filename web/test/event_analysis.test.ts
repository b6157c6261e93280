import { describe, expect, it } from "vitest";
import { traceCauses } from "../src/state/causality";
import { buildRuns } from "../src/state/run_spans";
import type { Statistics } from "../src/api/types";
import { fillTimeline, computeTotals } from "../src/pages/usage/totals";
import { SessionBuilder, USAGE } from "./session_builder";

/** A run with a read that is retried once and a write that is approved. */
function runWithRetryAndApproval(): SessionBuilder {
  const session = new SessionBuilder().startRun("buy it");
  session.emit("message_started", { message_id: "a-1" });
  session.emit("message_completed", { message_id: "a-1", text: "", stopped: false });
  session.emit("step_completed", { usage: USAGE });
  session.proposeCall("c-1", "look").proposeCall("c-2", "buy");
  session.emit("tool_call_allowed", { call_id: "c-1", by: { kind: "policy" } });
  session.emit("tool_call_attempt_started", { call_id: "c-1", attempt: 1 });
  session.emit("waiting_for_approval", { approval_id: "q", plan: { purpose: "Execute 1 tool", steps: [{ call_id: "c-2" }] } });
  session.emit("tool_call_retrying", { call_id: "c-1", attempt: 1, reason: "temporary" });
  session.emit("tool_call_attempt_started", { call_id: "c-1", attempt: 2 });
  session.emit("tool_call_completed", { call_id: "c-1", tool: "look", result: 1 });
  session.emit("approval_decided", { approval_id: "q", closed: true, steps: [{ call_id: "c-2", approved: true, by: "ada" }] }, { afterMs: 5_000 });
  session.emit("tool_call_allowed", { call_id: "c-2", by: { kind: "approval", approval_id: "q" } });
  session.emit("tool_call_attempt_started", { call_id: "c-2", attempt: 1 });
  session.emit("tool_call_completed", { call_id: "c-2", tool: "buy", result: 1 });
  session.emit("thinking", { iteration: 2, model: "rehearsal" }, { step: 2 });
  session.emit("step_completed", { usage: USAGE });
  session.emit("done", { outcome: "completed", usage: USAGE });
  return session;
}

/**
 * Returns the types of the causal chain that ends with the last event of a type, from effect to
 * cause.
 */
function causeTypes(session: SessionBuilder, type: string): string[] {
  const { cause } = traceCauses(session.frames);
  const types = [];
  let seq: number | undefined = session.frames.findLast((frame) => frame.type === type)?.seq ?? undefined;
  while (seq !== undefined) {
    types.push(session.frames[seq - 1]!.type);
    seq = cause.get(seq);
  }
  return types;
}

describe("traceCauses", () => {
  it("w2 links the end of a run back to its user message", () => {
    expect(causeTypes(runWithRetryAndApproval(), "done")).toEqual([
      "done", "step_completed", "thinking", "tool_call_completed", "tool_call_attempt_started", "tool_call_allowed", "approval_decided",
      "waiting_for_approval", "tool_call_started", "step_completed", "message_completed", "message_started", "thinking", "run_started", "message_accepted",
    ]);
  });

  it("w2 links only to earlier events, and effects are the inverse of causes", () => {
    const { cause, effects } = traceCauses(runWithRetryAndApproval().frames);
    for (const [effect, causeSeq] of cause) {
      expect(causeSeq).toBeLessThan(effect);
      expect(effects.get(causeSeq)).toContain(effect);
    }
  });

  it("w2 links a rejected call to its rejection", () => {
    const session = new SessionBuilder().startRun().proposeCall("c-1", "buy");
    session.emit("waiting_for_approval", { approval_id: "q", plan: { steps: [{ call_id: "c-1" }] } });
    session.emit("approval_decided", { approval_id: "q", closed: true, steps: [{ call_id: "c-1", approved: false }] });
    session.emit("tool_call_failed", { call_id: "c-1", reason: "rejected", error: "no" });
    expect(causeTypes(session, "tool_call_failed").slice(0, 2)).toEqual(["tool_call_failed", "approval_decided"]);
  });
});

describe("buildRuns", () => {
  it("w2 builds a lane for the model, each tool and approvals", () => {
    const [timeline] = buildRuns(runWithRetryAndApproval().frames);
    expect(timeline).toMatchObject({ title: "buy it", outcome: "completed" });
    expect(timeline!.lanes).toEqual(["model", "look", "buy", "approvals"].map((name) => ({ name, rows: 1 })));
    expect(timeline!.spans.map((span) => [span.lane, span.kind, span.state])).toEqual([
      ["model", "step", "good"], ["look", "attempt", "bad"], ["approvals", "approval", "good"], ["look", "backoff", "warn"],
      ["look", "attempt", "good"], ["buy", "attempt", "good"], ["model", "step", "good"],
    ]);
    for (const span of timeline!.spans) expect(span.to).toBeGreaterThanOrEqual(span.from);
  });

  it("w2 places overlapping calls of one tool in separate rows", () => {
    const session = new SessionBuilder().startRun().proposeCall("c-1").proposeCall("c-2").proposeCall("c-3");
    for (const call_id of ["c-1", "c-2"]) session.emit("tool_call_attempt_started", { call_id, attempt: 1 });
    for (const call_id of ["c-1", "c-2"]) session.emit("tool_call_completed", { call_id });
    session.emit("tool_call_attempt_started", { call_id: "c-3", attempt: 1 });
    const [timeline] = buildRuns(session.frames);
    expect(timeline!.lanes.find((lane) => lane.name === "look")).toEqual({ name: "look", rows: 2 });
    expect(timeline!.spans.filter((span) => span.lane === "look").map((span) => span.row)).toEqual([0, 1, 0]);
  });

  it("w2 leaves running spans open", () => {
    const session = runWithRetryAndApproval();
    const [timeline] = buildRuns(session.frames.slice(0, 12));
    expect(timeline!.to).toBeNull();
    expect(timeline!.spans.filter((span) => span.to === null).map((span) => span.lane)).toEqual(["look", "approvals"]);
  });
});

describe("usage statistics", () => {
  const durations = { count: 1, average: 1, p50: 1, p95: 1, longest: 1 };
  const agent = (runs: number, stars: number[], cost_usd: number | null) => ({
    runs, completed: runs, failed: 0, cancelled: 0, failure_rate: 0, steps: 2 * runs, step_retries: 1, run_ms: durations, usage: { ...USAGE, cost_usd },
    rating: { count: 0, average: null, stars },
  });
  const statistics = (overrides: Partial<Statistics>): Statistics => ({
    agents: {}, workflows: {}, models: {}, tools: {}, approvals: {}, timeline: { width_s: 60, buckets: [] },
    looked_at: { sessions: 0, events: 0, complete: true, since: null }, ...overrides,
  });

  it("w6 adds up totals, and an unknown price makes the total cost unknown", () => {
    const totals = computeTotals(statistics({ agents: { one: agent(2, [0, 0, 0, 1, 0], 1), other: agent(3, [1, 0, 0, 0, 2], null) } }));
    expect(totals).toMatchObject({ runs: 5, steps: 10, retries: 2, stars: [1, 0, 0, 1, 2], rating: 3.75 });
    expect(totals.usage).toMatchObject({ input_tokens: 20, cost_usd: null });
    expect(computeTotals(statistics({}))).toMatchObject({ runs: 0, rating: null, usage: { cost_usd: 0 } });
  });

  it("w6 fills gaps in the timeline", () => {
    const bucket = (at: string) => ({ at }) as Statistics["timeline"]["buckets"][number];
    const { times, buckets } = fillTimeline({ width_s: 60, buckets: [bucket("2026-01-01T00:00:00.000Z"), bucket("2026-01-01T00:03:00.000Z")] });
    expect(times.map((second) => second - times[0]!)).toEqual([0, 60, 120, 180]);
    expect(buckets.map((bucket) => bucket !== null)).toEqual([true, false, false, true]);
    expect(fillTimeline({ width_s: 60, buckets: [] })).toEqual({ times: [], buckets: [] });
  });
});
