import { describe, expect, it } from "vitest";
import { traceCauses } from "../src/state/causality";
import { buildRuns } from "../src/state/run_spans";
import type { Statistics } from "../src/api/types";
import { fillTimeline, computeTotals } from "../src/pages/usage/totals";
import { Session, USAGE } from "./session_builder";

/** A run with a read that is tried twice, and a write that a person approves. */
function run(): Session {
  const session = new Session().begin("buy it");
  session.say("message_started", { message_id: "a-1" });
  session.say("message_completed", { message_id: "a-1", text: "", stopped: false });
  session.say("step_completed", { usage: USAGE });
  session.call("c-1", "look").call("c-2", "buy");
  session.say("tool_call_allowed", { call_id: "c-1", by: { kind: "policy" } });
  session.say("tool_call_attempt_started", { call_id: "c-1", attempt: 1 });
  session.say("waiting_for_approval", { approval_id: "q", plan: { purpose: "Execute 1 tool", steps: [{ call_id: "c-2" }] } });
  session.say("tool_call_retrying", { call_id: "c-1", attempt: 1, reason: "temporary" });
  session.say("tool_call_attempt_started", { call_id: "c-1", attempt: 2 });
  session.say("tool_call_completed", { call_id: "c-1", tool: "look", result: 1 });
  session.say("approval_decided", { approval_id: "q", closed: true, steps: [{ call_id: "c-2", approved: true, by: "ada" }] }, { after: 5_000 });
  session.say("tool_call_allowed", { call_id: "c-2", by: { kind: "approval", approval_id: "q" } });
  session.say("tool_call_attempt_started", { call_id: "c-2", attempt: 1 });
  session.say("tool_call_completed", { call_id: "c-2", tool: "buy", result: 1 });
  session.say("thinking", { iteration: 2, model: "rehearsal" }, { step: 2 });
  session.say("step_completed", { usage: USAGE });
  session.say("done", { outcome: "completed", usage: USAGE });
  return session;
}

/** From the event of that type on, what led to it, each by its type. */
function chain(session: Session, type: string): string[] {
  const { cause } = traceCauses(session.frames);
  const found = [];
  let seq: number | undefined = session.frames.findLast((frame) => frame.type === type)?.seq ?? undefined;
  while (seq !== undefined) {
    found.push(session.frames[seq - 1]!.type);
    seq = cause.get(seq);
  }
  return found;
}

describe("links between events", () => {
  it("w2 lead from the end of a run back to the message that began it", () => {
    expect(chain(run(), "done")).toEqual([
      "done", "step_completed", "thinking", "tool_call_completed", "tool_call_attempt_started", "tool_call_allowed", "approval_decided",
      "waiting_for_approval", "tool_call_started", "step_completed", "message_completed", "message_started", "thinking", "run_started", "message_accepted",
    ]);
  });

  it("w2 point back in time only, and effects are causes turned round", () => {
    const { cause, effects } = traceCauses(run().frames);
    for (const [effect, of] of cause) {
      expect(of).toBeLessThan(effect);
      expect(effects.get(of)).toContain(effect);
    }
  });

  it("w2 lead from a rejected call to who rejected it", () => {
    const session = new Session().begin().call("c-1", "buy");
    session.say("waiting_for_approval", { approval_id: "q", plan: { steps: [{ call_id: "c-1" }] } });
    session.say("approval_decided", { approval_id: "q", closed: true, steps: [{ call_id: "c-1", approved: false }] });
    session.say("tool_call_failed", { call_id: "c-1", reason: "rejected", error: "no" });
    expect(chain(session, "tool_call_failed").slice(0, 2)).toEqual(["tool_call_failed", "approval_decided"]);
  });
});

describe("a timeline", () => {
  it("w2 has a lane for the model, for each tool, and for people", () => {
    const [only] = buildRuns(run().frames);
    expect(only).toMatchObject({ title: "buy it", outcome: "completed" });
    expect(only!.lanes).toEqual(["model", "look", "buy", "people"].map((name) => ({ name, rows: 1 })));
    expect(only!.spans.map((span) => [span.lane, span.kind, span.state])).toEqual([
      ["model", "step", "good"], ["look", "attempt", "bad"], ["people", "person", "good"], ["look", "backoff", "warn"],
      ["look", "attempt", "good"], ["buy", "attempt", "good"], ["model", "step", "good"],
    ]);
    for (const span of only!.spans) expect(span.to).toBeGreaterThanOrEqual(span.from);
  });

  it("w2 puts calls of one tool that overlap beneath one another", () => {
    const session = new Session().begin().call("c-1").call("c-2").call("c-3");
    for (const call_id of ["c-1", "c-2"]) session.say("tool_call_attempt_started", { call_id, attempt: 1 });
    for (const call_id of ["c-1", "c-2"]) session.say("tool_call_completed", { call_id });
    session.say("tool_call_attempt_started", { call_id: "c-3", attempt: 1 });
    const [only] = buildRuns(session.frames);
    expect(only!.lanes.find((lane) => lane.name === "look")).toEqual({ name: "look", rows: 2 });
    expect(only!.spans.filter((span) => span.lane === "look").map((span) => span.row)).toEqual([0, 1, 0]);
  });

  it("w2 leaves open what goes on", () => {
    const session = run();
    const [only] = buildRuns(session.frames.slice(0, 12));
    expect(only!.to).toBeNull();
    expect(only!.spans.filter((span) => span.to === null).map((span) => span.lane)).toEqual(["look", "people"]);
  });
});

describe("figures", () => {
  const times = { count: 1, average: 1, p50: 1, p95: 1, longest: 1 };
  const agent = (runs: number, stars: number[], cost_usd: number | null) => ({
    runs, completed: runs, failed: 0, cancelled: 0, failure_rate: 0, steps: 2 * runs, step_retries: 1, run_ms: times, usage: { ...USAGE, cost_usd },
    rating: { count: 0, average: null, stars },
  });
  const statistics = (more: Partial<Statistics>): Statistics => ({
    agents: {}, workflows: {}, models: {}, tools: {}, approvals: {}, timeline: { width_s: 60, buckets: [] },
    looked_at: { sessions: 0, events: 0, complete: true, since: null }, ...more,
  });

  it("w6 of several add up, and an unknown price makes the sum unknown", () => {
    const sums = computeTotals(statistics({ agents: { one: agent(2, [0, 0, 0, 1, 0], 1), other: agent(3, [1, 0, 0, 0, 2], null) } }));
    expect(sums).toMatchObject({ runs: 5, steps: 10, retries: 2, stars: [1, 0, 0, 1, 2], rating: 3.75 });
    expect(sums.usage).toMatchObject({ input_tokens: 20, cost_usd: null });
    expect(computeTotals(statistics({}))).toMatchObject({ runs: 0, rating: null, usage: { cost_usd: 0 } });
  });

  it("w6 over time have no gaps", () => {
    const bucket = (at: string) => ({ at }) as Statistics["timeline"]["buckets"][number];
    const { times: at, timelineBuckets: of } = fillTimeline({ width_s: 60, buckets: [bucket("2026-01-01T00:00:00.000Z"), bucket("2026-01-01T00:03:00.000Z")] });
    expect(at.map((second) => second - at[0]!)).toEqual([0, 60, 120, 180]);
    expect(of.map((one) => one !== null)).toEqual([true, false, false, true]);
    expect(fillTimeline({ width_s: 60, buckets: [] })).toEqual({ at: [], of: [] });
  });
});
