import { describe, expect, it } from "vitest";
import { toFlat } from "../src/api/frames";
import type { Frame } from "../src/api/types";
import { addUsage, childSessionsOfCall, EMPTY_VIEW, applyFrames, viewForFork, keepContiguous, pendingApprovals, sessionStatus } from "../src/state/session_view";
import { runEndBetween } from "../src/state/announcements";
import { Session, USAGE } from "./session_builder";

const whole = (session: Session) => applyFrames(EMPTY_VIEW, session.frames);

function answered(): Session {
  const session = new Session().begin();
  session.say("message_started", { message_id: "a-1" });
  session.text("a-1", "Hel", 3);
  session.text("a-1", "lo", 5);
  session.say("message_completed", { message_id: "a-1", text: "Hello", stopped: false });
  session.say("step_completed", { usage: USAGE });
  session.say("done", { outcome: "completed", usage: USAGE });
  return session;
}

describe("a conversation", () => {
  it("w1 is the same however its frames arrive", () => {
    const { frames } = answered();
    const once = applyFrames(EMPTY_VIEW, frames);
    for (let cut = 0; cut <= frames.length; cut++) {
      const parts = applyFrames(applyFrames(EMPTY_VIEW, frames.slice(0, cut)), frames.slice(cut));
      expect(parts).toEqual(once);
      // A reconnect may say what was heard already.
      expect(applyFrames(parts, frames.slice(Math.max(0, cut - 3)))).toEqual(once);
    }
  });

  it("w7 tells those who don't see it that an answer is complete, once", () => {
    const { frames } = answered();
    const said = frames.map((_, at) => runEndBetween(applyFrames(EMPTY_VIEW, frames.slice(0, at)), applyFrames(EMPTY_VIEW, frames.slice(0, at + 1)))?.text);
    expect(said.filter(Boolean)).toEqual(["Answer complete"]);
    const failed = new Session().begin();
    failed.say("error", { error: "too many steps", code: "max_steps" });
    expect(runEndBetween(EMPTY_VIEW, whole(failed))?.text).toBe("The run failed: too many steps");
  });

  it("w1 grows by text and ends as the whole message", () => {
    const { frames } = answered();
    const text = (upTo: number) => applyFrames(EMPTY_VIEW, frames.slice(0, upTo)).items.filter((item) => item.kind === "assistant").map((item) => item.text);
    expect(text(6)).toEqual(["Hel"]);
    expect(text(7)).toEqual(["Hello"]);
    expect(text(frames.length)).toEqual(["Hello"]);
    expect(applyFrames(EMPTY_VIEW, frames.slice(0, 7)).cursor).toBe("5.5");
  });

  it("w1 e2 loses nothing to an event that is ahead of its turn", () => {
    const { frames } = answered();
    const events = frames.filter((frame) => frame.type !== "text");
    for (let at = 0; at < events.length; at++) {
      let state = applyFrames(EMPTY_VIEW, events.slice(0, at));
      // Heard by the way, before its turn; then all that is left, in order.
      for (const batch of [events.slice(at + 1, at + 2), events.slice(at)]) state = applyFrames(state, keepContiguous(state, batch));
      expect(state).toEqual(applyFrames(EMPTY_VIEW, events));
    }
  });

  it("s1 is called by its first message, unless people call it otherwise", () => {
    const session = new Session();
    session.say("session_created", { agent: "default", owner: "ada", settings: {} }, { run: null });
    expect(whole(session).title).toBe(null);
    session.say("run_started", { message_id: "m-1", title: "Buy ore" });
    expect(whole(session).title).toBe("Buy ore");
    session.say("session_settings_changed", { settings: {}, title: "Ore", by: "ada" }, { run: null });
    session.say("run_started", { message_id: "m-2" });
    expect(whole(session).title).toBe("Ore");
  });

  it("tells what it is doing", () => {
    const session = new Session().begin();
    expect(sessionStatus(whole(session))).toBe("running");
    session.say("waiting_for_approval", { approval_id: "q-1", plan: { kind: "budget", purpose: "?" } });
    expect(sessionStatus(whole(session))).toBe("waiting");
    session.say("approval_decided", { approval_id: "q-1", closed: true, answer: { decision: "raise", by: "ada" } });
    expect(sessionStatus(whole(session))).toBe("running");
    session.say("done", { outcome: "completed", usage: USAGE });
    expect(sessionStatus(whole(session))).toBe("idle");
    session.say("session_closed", { by: "ada" });
    expect(sessionStatus(whole(session))).toBe("closed");
  });

  it("r2 tells the story of a call that was tried again", () => {
    const session = new Session().begin().call();
    session.say("tool_call_allowed", { call_id: "c-1", by: { kind: "policy", why: "it reads" } });
    session.say("tool_call_attempt_started", { call_id: "c-1", attempt: 1 });
    session.say("tool_call_retrying", { call_id: "c-1", attempt: 1, until: "2026-01-01T00:00:09Z", reason: "temporary" });
    expect(whole(session).calls["c-1"]).toMatchObject({ phase: "backing_off", retryUntil: "2026-01-01T00:00:09Z" });
    session.say("tool_call_attempt_started", { call_id: "c-1", attempt: 2 });
    session.say("tool_call_completed", { call_id: "c-1", tool: "look", result: { ok: true }, truncated: false });
    const call = whole(session).calls["c-1"]!;
    expect(call).toMatchObject({ phase: "completed", result: { ok: true }, retryUntil: null });
    expect(call.attempts.map((attempt) => [attempt.attempt, attempt.reason, attempt.endedAt !== null])).toEqual([[1, "temporary", true], [2, null, true]]);
  });

  it("g8 keeps the decisions of a plan's steps until it closes", () => {
    const session = new Session().begin().call("c-1").call("c-2");
    session.say("waiting_for_approval", { approval_id: "q-1", plan: { kind: "plan", purpose: "Execute 2 tools", steps: [{ call_id: "c-1" }, { call_id: "c-2" }] } });
    expect(whole(session).calls["c-2"]).toMatchObject({ phase: "waiting", approval_id: "q-1" });
    session.say("approval_decided", { approval_id: "q-1", closed: false, steps: [{ call_id: "c-1", approved: true, by: "ada" }] });
    session.say("tool_call_allowed", { call_id: "c-1", by: { kind: "approval", approval_id: "q-1" }, edit: { arguments: { n: 2 } } });
    expect(whole(session).questions["q-1"]).toMatchObject({ state: "pending", decisions: [{ call_id: "c-1" }] });
    expect(whole(session).calls["c-1"]).toMatchObject({ phase: "allowed", edit: { arguments: { n: 2 } } });
    session.say("approval_decided", { approval_id: "q-1", closed: true, steps: [{ call_id: "c-2", approved: false, by: "bob" }] });
    session.say("tool_call_failed", { call_id: "c-2", error: "no", reason: "rejected" });
    expect(whole(session).questions["q-1"]).toMatchObject({ state: "decided" });
    expect(whole(session).calls["c-2"]).toMatchObject({ phase: "failed", reason: "rejected" });
  });

  it("d3 does not show a call as running whose outcome nobody knows", () => {
    const session = new Session().begin().call();
    session.say("tool_call_attempt_started", { call_id: "c-1", attempt: 1 });
    session.say("waiting_for_approval", { approval_id: "q-1", plan: { kind: "unknown_outcome", purpose: "?", call: { call_id: "c-1" } } });
    expect(whole(session).calls["c-1"]).toMatchObject({ phase: "waiting", approval_id: "q-1" });
    session.say("approval_decided", { approval_id: "q-1", closed: true, answer: { decision: "done", by: "ada" } });
    session.say("tool_call_completed", { call_id: "c-1", result: 7 });
    expect(whole(session).calls["c-1"]).toMatchObject({ phase: "completed", result: 7 });
  });

  it("g10 never tells an expiry as a refusal", () => {
    const session = new Session().begin();
    session.say("waiting_for_approval", { approval_id: "q-1", plan: { kind: "plan", purpose: "?", steps: [] } });
    session.say("approval_expired", { approval_id: "q-1" });
    expect(whole(session).questions["q-1"]).toMatchObject({ state: "expired", decisions: [] });
  });

  it("m3 drops what was discarded, and says what comes of it", () => {
    const session = new Session().begin();
    session.say("message_started", { message_id: "a-1" });
    session.text("a-1", "half of", 7);
    session.say("message_discarded", { message_id: "a-1", reason: "cut" });
    const said = () => whole(session).items.slice(1).map((item) => (item.kind === "notice" ? item.text : item.kind));
    expect(said()).toEqual([]);
    session.say("step_retrying", { reason: "cut" });
    expect(said()).toEqual(["The model is asked again, and begins anew"]);
    session.say("message_started", { message_id: "a-2" });
    session.say("message_discarded", { message_id: "a-2", reason: "bad key" });
    session.say("error", { error: "bad key", code: "model_error" });
    expect(said()).toEqual(["The model is asked again, and begins anew", "end"]);
  });

  it("s4 shows queued messages until they are accepted", () => {
    const session = new Session().begin();
    session.say("message_queued", { message_id: "m-2", text: "and then", delivery: "next_run" });
    expect(whole(session).queued).toEqual([{ message_id: "m-2", text: "and then", delivery: "next_run" }]);
    session.say("message_accepted", { message_id: "m-2", text: "and then" });
    expect(whole(session).queued).toEqual([]);
  });

  it("s6 keeps the text of a run that was cancelled", () => {
    const session = new Session().begin();
    session.say("message_started", { message_id: "a-1" });
    session.text("a-1", "as far as", 9);
    session.say("done", { outcome: "cancelled", by: "ada", usage: USAGE });
    expect(whole(session).items.slice(1)).toMatchObject([{ kind: "assistant", text: "as far as", stopped: true }, { kind: "end", outcome: "cancelled" }]);
  });

  it("s1 leaves nothing open in a fork", () => {
    const session = new Session().begin().call();
    session.say("tool_call_attempt_started", { call_id: "c-1", attempt: 1 });
    const fork = viewForFork(whole(session));
    expect(fork.calls["c-1"]).toMatchObject({ phase: "failed", reason: "cancelled" });
    expect(fork).toMatchObject({ seq: 0, run: null, queued: [], questions: {} });
  });

  it("passes over frames of a newer server", () => {
    const session = new Session().begin();
    const before = whole(session);
    session.say("weather_changed", { to: "rain" });
    expect(whole(session).items).toEqual(before.items);
    expect(whole(session).seq).toBe(before.seq + 1);
  });

  it("m6 does not take an unknown price for zero", () => {
    const priced = { ...USAGE, cost_usd: 1 };
    expect(addUsage(priced, priced)).toMatchObject({ cost_usd: 2, input_tokens: 20 });
    expect(addUsage(priced, USAGE).cost_usd).toBeNull();
  });

  it("c5 knows what each person thinks last, of an answer and of a call", () => {
    const session = answered();
    session.say("tool_call_started", { call_id: "c-1", tool: "look", digest: "d" });
    const rate = (by: string, rating: number, comment?: string) => session.say("feedback_given", { about: "message", message_id: "a-1", rating, by, ...(comment ? { comment } : {}) });
    rate("ada", 2);
    rate("bob", 5, "right");
    rate("ada", 4);
    session.say("feedback_given", { about: "call", call_id: "c-1", verdict: "wrong", by: "ada" });
    const { ratings, calls } = whole(session);
    expect(ratings["a-1"]!.map((one) => [one.by, one.value, one.comment])).toEqual([["bob", 5, "right"], ["ada", 4, null]]);
    expect(calls["c-1"]!.verdicts.map((one) => one.value)).toEqual(["wrong"]);
  });

  it("c4 shows where a summary stands for what is older", () => {
    const session = answered();
    session.say("thinking", { iteration: 1, model: "m", compacting: true });
    session.say("context_compacted", { through: 6, summary: "They traded.", usage: USAGE });
    session.say("context_compaction_failed", { reason: "too long" });
    expect(whole(session).items.slice(-2)).toMatchObject([{ kind: "summary", through: 6, text: "They traded." }, { kind: "notice", tone: "warn", detail: "too long" }]);
  });

  it("s8 shows what a child does under the call that it works for, and what its child does under that", () => {
    const root = new Session().begin().call("c-1", "delegate");
    const [child, grandchild] = [new Session("s-2"), new Session("s-3")];
    const mirror = (call_id: string, frame: Frame) => root.say("child_event", { call_id, event: { ...toFlat(frame), agent_type: "scout" } });
    mirror("c-1", child.say("session_created", { agent: "scout", owner: "ada", settings: {} }, { run: null }));
    mirror("c-1", child.say("message_accepted", { message_id: "m" }));
    mirror("c-1", child.say("run_started", { message_id: "m" }));
    mirror("c-1", child.say("tool_call_started", { call_id: "c-2", tool: "delegate", digest: "d" }));
    mirror("c-2", grandchild.say("run_started", { message_id: "m" }));
    mirror("c-2", grandchild.say("waiting_for_approval", { approval_id: "q", plan: { kind: "plan", purpose: "Execute 1 tool", steps: [] } }));
    const waiting = whole(root);
    expect(childSessionsOfCall(waiting, "c-1").map((one) => [one.session_id, one.agent])).toEqual([["s-2", "scout"]]);
    expect(childSessionsOfCall(waiting, "c-2").map((one) => one.session_id)).toEqual(["s-3"]);
    expect(Object.keys(waiting.children["s-2"]!.conversation.calls)).toEqual(["c-2"]);
    expect([sessionStatus(waiting), pendingApprovals(waiting)[0]!.session_id]).toEqual(["waiting", "s-3"]);
    mirror("c-2", grandchild.say("approval_decided", { approval_id: "q", closed: true, steps: [] }));
    mirror("c-2", grandchild.say("done", { outcome: "completed", usage: USAGE }));
    const done = whole(root);
    expect([sessionStatus(done), sessionStatus(done.children["s-3"]!.conversation)]).toEqual(["running", "idle"]);
    root.say("child_gone", { call_id: "c-1" });
    expect(whole(root).children["s-2"]!.gone).toBe(true);
  });
});
