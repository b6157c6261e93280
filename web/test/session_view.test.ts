import { describe, expect, it } from "vitest";
import { toFlat } from "../src/api/frames";
import type { Frame } from "../src/api/types";
import { addUsage, childSessionsOfCall, EMPTY_VIEW, applyFrames, viewForFork, keepContiguous, pendingApprovals, sessionStatus } from "../src/state/session_view";
import { formatUsage } from "../src/components/format";
import { runEndBetween } from "../src/state/announcements";
import { SessionBuilder, USAGE } from "./session_builder";

const viewOf = (session: SessionBuilder) => applyFrames(EMPTY_VIEW, session.frames);

function answeredSession(): SessionBuilder {
  const session = new SessionBuilder().startRun();
  session.emit("message_started", { message_id: "a-1" });
  session.emitDelta("a-1", "Hel", 3);
  session.emitDelta("a-1", "lo", 5);
  session.emit("message_completed", { message_id: "a-1", text: "Hello", stopped: false });
  session.emit("step_completed", { usage: USAGE });
  session.emit("done", { outcome: "completed", usage: USAGE });
  return session;
}

describe("session view", () => {
  it("w1 does not depend on how frames are batched", () => {
    const { frames } = answeredSession();
    const fullView = applyFrames(EMPTY_VIEW, frames);
    for (let splitAt = 0; splitAt <= frames.length; splitAt++) {
      const splitView = applyFrames(applyFrames(EMPTY_VIEW, frames.slice(0, splitAt)), frames.slice(splitAt));
      expect(splitView).toEqual(fullView);
      // A reconnect may deliver frames again.
      expect(applyFrames(splitView, frames.slice(Math.max(0, splitAt - 3)))).toEqual(fullView);
    }
  });

  it("w7 announces the end of a run once", () => {
    const { frames } = answeredSession();
    const announcedTexts = frames.map((_, index) => runEndBetween(applyFrames(EMPTY_VIEW, frames.slice(0, index)), applyFrames(EMPTY_VIEW, frames.slice(0, index + 1)))?.text);
    expect(announcedTexts.filter(Boolean)).toEqual(["Answer complete"]);
    const failed = new SessionBuilder().startRun();
    failed.emit("error", { error: "too many steps", code: "max_steps" });
    expect(runEndBetween(EMPTY_VIEW, viewOf(failed))?.text).toBe("Run failed: too many steps");
  });

  it("m3 w7 announces how an answer ended", () => {
    const announcedText = (stop_reason?: string) => {
      const session = new SessionBuilder().startRun();
      session.emit("done", { outcome: "completed", ...(stop_reason ? { stop_reason } : {}), usage: USAGE });
      return runEndBetween(EMPTY_VIEW, viewOf(session))?.text;
    };
    expect([undefined, "end", "length", "refusal", "content_filter", "empty", "a newer one"].map(announcedText)).toEqual([
      "Answer complete", "Answer complete", "Answer truncated", "Refused by the model",
      "Blocked by the provider's content filter", "The model returned no text", "Answer complete",
    ]);
  });

  it("m3 marks truncated, refused, filtered and empty answers", () => {
    const shownItems = (text: string, message_stop: string, stop_reason?: string) => {
      const session = new SessionBuilder().startRun();
      session.emit("message_started", { message_id: "a-1" });
      session.emit("message_completed", { message_id: "a-1", text, stop_reason: message_stop, stopped: false });
      session.emit("done", { message_id: "a-1", outcome: "completed", ...(stop_reason ? { stop_reason } : {}), usage: USAGE });
      return viewOf(session).items.slice(1).map((item) => item.kind === "assistant" ? [item.text, item.notice] : item.kind === "notice" ? item.text : item.kind);
    };
    expect(shownItems("Hello", "end_turn", "end")).toEqual([["Hello", null], "end"]);
    expect(shownItems("Hello", "end_turn")).toEqual([["Hello", null], "end"]);
    expect(shownItems("half an ans", "max_tokens", "length")).toEqual([["half an ans", "Truncated at the token limit"], "end"]);
    expect(shownItems("Hell", "text_limit", "length")).toEqual([["Hell", "Truncated at the text limit"], "end"]);
    expect(shownItems("", "max_tokens", "length")).toEqual([["", "Truncated at the token limit"], "end"]);
    expect(shownItems("No.", "refusal", "refusal")).toEqual([["No.", "Refused by the model"], "end"]);
    expect(shownItems("", "content_filter", "content_filter")).toEqual([["", "Blocked by the provider's content filter"], "end"]);
    expect(shownItems("", "end_turn", "empty")).toEqual(["The model returned no text", "end"]);
  });

  it("w1 appends text deltas and ends with the complete message", () => {
    const { frames } = answeredSession();
    const assistantTexts = (count: number) => applyFrames(EMPTY_VIEW, frames.slice(0, count)).items.filter((item) => item.kind === "assistant").map((item) => item.text);
    expect(assistantTexts(6)).toEqual(["Hel"]);
    expect(assistantTexts(7)).toEqual(["Hello"]);
    expect(assistantTexts(frames.length)).toEqual(["Hello"]);
    expect(applyFrames(EMPTY_VIEW, frames.slice(0, 7)).cursor).toBe("5.5");
  });

  it("w1 e2 handles an event that arrives early", () => {
    const { frames } = answeredSession();
    const events = frames.filter((frame) => frame.type !== "text");
    for (let index = 0; index < events.length; index++) {
      let state = applyFrames(EMPTY_VIEW, events.slice(0, index));
      // One event arrives early, then all remaining events arrive in order.
      for (const batch of [events.slice(index + 1, index + 2), events.slice(index)]) state = applyFrames(state, keepContiguous(state, batch));
      expect(state).toEqual(applyFrames(EMPTY_VIEW, events));
    }
  });

  it("s1 takes its title from the first message unless the user sets one", () => {
    const session = new SessionBuilder();
    session.emit("session_created", { agent: "default", owner: "ada", settings: {} }, { run: null });
    expect(viewOf(session).title).toBe(null);
    session.emit("run_started", { message_id: "m-1", title: "Buy ore" });
    expect(viewOf(session).title).toBe("Buy ore");
    session.emit("session_settings_changed", { settings: {}, title: "Ore", by: "ada" }, { run: null });
    session.emit("run_started", { message_id: "m-2" });
    expect(viewOf(session).title).toBe("Ore");
  });

  it("w1 derives the session status", () => {
    const session = new SessionBuilder().startRun();
    expect(sessionStatus(viewOf(session))).toBe("running");
    session.emit("waiting_for_approval", { approval_id: "q-1", plan: { kind: "budget", purpose: "?" } });
    expect(sessionStatus(viewOf(session))).toBe("waiting");
    session.emit("approval_decided", { approval_id: "q-1", closed: true, answer: { decision: "raise", by: "ada" } });
    expect(sessionStatus(viewOf(session))).toBe("running");
    session.emit("done", { outcome: "completed", usage: USAGE });
    expect(sessionStatus(viewOf(session))).toBe("idle");
    session.emit("session_closed", { by: "ada" });
    expect(sessionStatus(viewOf(session))).toBe("closed");
  });

  it("r2 records the attempts of a retried call", () => {
    const session = new SessionBuilder().startRun().proposeCall();
    session.emit("tool_call_allowed", { call_id: "c-1", by: { kind: "policy", why: "it reads" } });
    session.emit("tool_call_attempt_started", { call_id: "c-1", attempt: 1 });
    session.emit("tool_call_retrying", { call_id: "c-1", attempt: 1, until: "2026-01-01T00:00:09Z", reason: "temporary" });
    expect(viewOf(session).calls["c-1"]).toMatchObject({ phase: "backing_off", retryUntil: "2026-01-01T00:00:09Z" });
    session.emit("tool_call_attempt_started", { call_id: "c-1", attempt: 2 });
    session.emit("tool_call_completed", { call_id: "c-1", tool: "look", result: { ok: true }, truncated: false });
    const call = viewOf(session).calls["c-1"]!;
    expect(call).toMatchObject({ phase: "completed", result: { ok: true }, retryUntil: null });
    expect(call.attempts.map((attempt) => [attempt.attempt, attempt.reason, attempt.endedAt !== null])).toEqual([[1, "temporary", true], [2, null, true]]);
  });

  it("g8 keeps the decisions of a plan's steps until the approval closes", () => {
    const session = new SessionBuilder().startRun().proposeCall("c-1").proposeCall("c-2");
    session.emit("waiting_for_approval", { approval_id: "q-1", plan: { kind: "plan", purpose: "Execute 2 tools", steps: [{ call_id: "c-1" }, { call_id: "c-2" }] } });
    expect(viewOf(session).calls["c-2"]).toMatchObject({ phase: "waiting", approval_id: "q-1" });
    session.emit("approval_decided", { approval_id: "q-1", closed: false, steps: [{ call_id: "c-1", approved: true, by: "ada" }] });
    session.emit("tool_call_allowed", { call_id: "c-1", by: { kind: "approval", approval_id: "q-1" }, edit: { arguments: { n: 2 } } });
    expect(viewOf(session).approvals["q-1"]).toMatchObject({ state: "pending", decisions: [{ call_id: "c-1" }] });
    expect(viewOf(session).calls["c-1"]).toMatchObject({ phase: "allowed", edit: { arguments: { n: 2 } } });
    session.emit("approval_decided", { approval_id: "q-1", closed: true, steps: [{ call_id: "c-2", approved: false, by: "bob" }] });
    session.emit("tool_call_failed", { call_id: "c-2", error: "no", reason: "rejected" });
    expect(viewOf(session).approvals["q-1"]).toMatchObject({ state: "decided" });
    expect(viewOf(session).calls["c-2"]).toMatchObject({ phase: "failed", reason: "rejected" });
  });

  it("d3 does not show a call with an unknown outcome as running", () => {
    const session = new SessionBuilder().startRun().proposeCall();
    session.emit("tool_call_attempt_started", { call_id: "c-1", attempt: 1 });
    session.emit("waiting_for_approval", { approval_id: "q-1", plan: { kind: "unknown_outcome", purpose: "?", call: { call_id: "c-1" } } });
    expect(viewOf(session).calls["c-1"]).toMatchObject({ phase: "waiting", approval_id: "q-1" });
    session.emit("approval_decided", { approval_id: "q-1", closed: true, answer: { decision: "done", by: "ada" } });
    session.emit("tool_call_completed", { call_id: "c-1", result: 7 });
    expect(viewOf(session).calls["c-1"]).toMatchObject({ phase: "completed", result: 7 });
  });

  it("g10 does not show an expiry as a rejection", () => {
    const session = new SessionBuilder().startRun();
    session.emit("waiting_for_approval", { approval_id: "q-1", plan: { kind: "plan", purpose: "?", steps: [] } });
    session.emit("approval_expired", { approval_id: "q-1" });
    expect(viewOf(session).approvals["q-1"]).toMatchObject({ state: "expired", decisions: [] });
  });

  it("m3 removes a discarded message and shows the retry or the failure", () => {
    const session = new SessionBuilder().startRun();
    session.emit("message_started", { message_id: "a-1" });
    session.emitDelta("a-1", "half of", 7);
    session.emit("message_discarded", { message_id: "a-1", reason: "cut" });
    const itemLabels = () => viewOf(session).items.slice(1).map((item) => (item.kind === "notice" ? item.text : item.kind));
    expect(itemLabels()).toEqual([]);
    session.emit("step_retrying", { reason: "cut" });
    expect(itemLabels()).toEqual(["Retrying the model call"]);
    session.emit("message_started", { message_id: "a-2" });
    session.emit("message_discarded", { message_id: "a-2", reason: "bad key" });
    session.emit("error", { error: "bad key", code: "model_error" });
    expect(itemLabels()).toEqual(["Retrying the model call", "end"]);
  });

  it("s4 shows queued messages until they are accepted", () => {
    const session = new SessionBuilder().startRun();
    session.emit("message_queued", { message_id: "m-2", text: "and then", delivery: "next_run" });
    expect(viewOf(session).queued).toEqual([{ message_id: "m-2", text: "and then", delivery: "next_run", run_id: "r-1" }]);
    session.emit("message_accepted", { message_id: "m-2", text: "and then" });
    expect(viewOf(session).queued).toEqual([]);
  });

  it("s10 shows changes of queued messages and removes withdrawn ones", () => {
    const session = new SessionBuilder().startRun();
    for (const id of ["m-2", "m-3"]) session.emit("message_queued", { message_id: id, text: id, delivery: "next_run" }, { run: `r-${id}` });
    session.emit("queued_message_changed", { message_id: "m-2", text: "and less", by: "ada" }, { run: "r-m-2" });
    session.emit("queued_message_withdrawn", { message_id: "m-3", by: "ada" }, { run: "r-m-3" });
    session.emit("done", { outcome: "cancelled", by: "ada", usage: USAGE }, { run: "r-m-3" });
    const view = viewOf(session);
    expect(view.queued).toMatchObject([{ message_id: "m-2", text: "and less" }]);
    expect(view.run).toMatchObject({ run_id: "r-1" });
    expect(view.items.some((item) => item.kind === "end")).toBe(false);
  });

  it("s6 removes a queued message whose run is cancelled and keeps the active run", () => {
    const session = new SessionBuilder().startRun();
    session.emit("message_queued", { message_id: "m-2", text: "and then", delivery: "next_run" }, { run: "r-2" });
    session.emit("done", { outcome: "cancelled", by: "ada", usage: USAGE }, { run: "r-2" });
    expect(viewOf(session)).toMatchObject({ queued: [], run: { run_id: "r-1" } });
  });

  it("s6 keeps the partial text of a cancelled run", () => {
    const session = new SessionBuilder().startRun();
    session.emit("message_started", { message_id: "a-1" });
    session.emitDelta("a-1", "as far as", 9);
    session.emit("done", { outcome: "cancelled", by: "ada", usage: USAGE });
    expect(viewOf(session).items.slice(1)).toMatchObject([{ kind: "assistant", text: "as far as", stopped: true }, { kind: "end", outcome: "cancelled" }]);
  });

  it("s1 closes open calls in a fork", () => {
    const session = new SessionBuilder().startRun().proposeCall();
    session.emit("tool_call_attempt_started", { call_id: "c-1", attempt: 1 });
    const fork = viewForFork(viewOf(session));
    expect(fork.calls["c-1"]).toMatchObject({ phase: "failed", reason: "cancelled" });
    expect(fork).toMatchObject({ seq: 0, run: null, queued: [], approvals: {} });
  });

  it("w1 ignores event types of newer servers", () => {
    const session = new SessionBuilder().startRun();
    const before = viewOf(session);
    session.emit("weather_changed", { to: "rain" });
    expect(viewOf(session).items).toEqual(before.items);
    expect(viewOf(session).seq).toBe(before.seq + 1);
  });

  it("m6 does not treat an unknown price as zero", () => {
    const priced = { ...USAGE, cost_usd: 1 };
    expect(addUsage(priced, priced)).toMatchObject({ cost_usd: 2, input_tokens: 20 });
    expect(addUsage(priced, USAGE).cost_usd).toBeNull();
    const lost = { ...USAGE, estimated: true };
    expect(addUsage(addUsage(priced, lost), priced)).toMatchObject({ estimated: true, cost_usd: null, input_tokens: 30 });
    expect([priced, USAGE, lost].map(formatUsage)).toEqual(["10 in · 5 out · $1.00", "10 in · 5 out", "about 10 in · 5 out · cost unknown"]);
  });

  it("m2 keeps arguments as an object and what the model wrote instead as text", () => {
    const session = answeredSession();
    session.emit("tool_call_started", { call_id: "c-1", tool: "look", arguments: {}, arguments_text: "{\"n\":", digest: "d" });
    session.emit("tool_call_started", { call_id: "c-2", tool: "look", arguments: { n: 1 }, digest: "d" });
    const { calls } = viewOf(session);
    expect([calls["c-1"]!.arguments, calls["c-1"]!.argumentsText]).toEqual([{}, "{\"n\":"]);
    expect([calls["c-2"]!.arguments, calls["c-2"]!.argumentsText]).toEqual([{ n: 1 }, null]);
  });

  it("c5 keeps the latest feedback of each user on answers and calls", () => {
    const session = answeredSession();
    session.emit("tool_call_started", { call_id: "c-1", tool: "look", digest: "d" });
    const giveRating = (by: string, rating: number, comment?: string) => session.emit("feedback_given", { about: "message", message_id: "a-1", rating, by, ...(comment ? { comment } : {}) });
    giveRating("ada", 2);
    giveRating("bob", 5, "right");
    giveRating("ada", 4);
    session.emit("feedback_given", { about: "call", call_id: "c-1", verdict: "wrong", by: "ada" });
    const { ratings, calls } = viewOf(session);
    expect(ratings["a-1"]!.map((feedback) => [feedback.by, feedback.value, feedback.comment])).toEqual([["bob", 5, "right"], ["ada", 4, null]]);
    expect(calls["c-1"]!.verdicts.map((feedback) => feedback.value)).toEqual(["wrong"]);
  });

  it("c4 shows where a summary replaces older messages", () => {
    const session = answeredSession();
    session.emit("thinking", { iteration: 1, model: "m", compacting: true });
    session.emit("context_compacted", { through: 6, summary: "They traded.", usage: USAGE });
    session.emit("context_compaction_failed", { reason: "too long" });
    expect(viewOf(session).items.slice(-2)).toMatchObject([{ kind: "summary", through: 6, text: "They traded." }, { kind: "notice", tone: "warn", detail: "too long" }]);
  });

  it("s8 assigns child and grandchild sessions to their calls", () => {
    const root = new SessionBuilder().startRun().proposeCall("c-1", "delegate");
    const [child, grandchild] = [new SessionBuilder("s-2"), new SessionBuilder("s-3")];
    const mirrorEvent = (call_id: string, frame: Frame) => root.emit("child_event", { call_id, event: { ...toFlat(frame), agent_type: "scout" } });
    mirrorEvent("c-1", child.emit("session_created", { agent: "scout", owner: "ada", settings: {} }, { run: null }));
    mirrorEvent("c-1", child.emit("message_accepted", { message_id: "m" }));
    mirrorEvent("c-1", child.emit("run_started", { message_id: "m" }));
    mirrorEvent("c-1", child.emit("tool_call_started", { call_id: "c-2", tool: "delegate", digest: "d" }));
    mirrorEvent("c-2", grandchild.emit("run_started", { message_id: "m" }));
    mirrorEvent("c-2", grandchild.emit("waiting_for_approval", { approval_id: "q", plan: { kind: "plan", purpose: "Execute 1 tool", steps: [] } }));
    const waiting = viewOf(root);
    expect(childSessionsOfCall(waiting, "c-1").map((child) => [child.session_id, child.agent])).toEqual([["s-2", "scout"]]);
    expect(childSessionsOfCall(waiting, "c-2").map((child) => child.session_id)).toEqual(["s-3"]);
    expect(Object.keys(waiting.children["s-2"]!.view.calls)).toEqual(["c-2"]);
    expect([sessionStatus(waiting), pendingApprovals(waiting)[0]!.session_id]).toEqual(["waiting", "s-3"]);
    mirrorEvent("c-2", grandchild.emit("approval_decided", { approval_id: "q", closed: true, steps: [] }));
    mirrorEvent("c-2", grandchild.emit("done", { outcome: "completed", usage: USAGE }));
    const done = viewOf(root);
    expect([sessionStatus(done), sessionStatus(done.children["s-3"]!.view)]).toEqual(["running", "idle"]);
    root.emit("child_gone", { call_id: "c-1" });
    expect(viewOf(root).children["s-2"]!.gone).toBe(true);
  });
});
