/**
 * The view of a session, built from its frames: messages, tool calls with their history, approvals and
 * the current run. Pure. The result does not depend on when the page started to receive frames.
 */

import { fromFlat } from "../api/frames";
import { isObject } from "../api/json";
import type { RecordedAnswer, Frame, Json, JsonObject, Approval, ApprovalState, MessageStopReason, Risk, RunStopReason, Usage } from "../api/types";
import {
  type Attempt, type Call, type CallPhase, type ChildSession, type SessionView, EMPTY_VIEW, type SessionItem, type Feedback, type CallRating,
} from "./session_view_types";

export * from "./session_view_types";

const str = (value: Json | undefined): string => (typeof value === "string" ? value : "");
const strOrNull = (value: Json | undefined): string | null => (typeof value === "string" ? value : null);
const num = (value: Json | undefined): number => (typeof value === "number" ? value : 0);
const obj = (value: Json | undefined): JsonObject | null =>
  isObject(value) ? value : null;
const list = (value: Json | undefined): Json[] => (Array.isArray(value) ? value : []);

const MESSAGE_NOTICES: Readonly<Record<string, string | undefined>> = {
  max_tokens: "Truncated at the token limit",
  text_limit: "Truncated at the text limit",
  refusal: "Refused by the model",
  content_filter: "Blocked by the provider's content filter",
} satisfies Partial<Record<MessageStopReason, string>>;

/** Adds two usages. The cost of the sum is null if either cost is null. */
export function addUsage(a: Usage, b: Usage): Usage {
  const unknown = a.cost_usd === null || b.cost_usd === null;
  return {
    input_tokens: a.input_tokens + b.input_tokens,
    output_tokens: a.output_tokens + b.output_tokens,
    cached_tokens: a.cached_tokens + b.cached_tokens,
    ...(a.estimated || b.estimated ? { estimated: true } : {}),
    cost_usd: unknown ? null : a.cost_usd! + b.cost_usd!,
  };
}

/** Returns the view after these frames. Frames that the view already includes are ignored. */
export function applyFrames(before: SessionView, frames: Frame[]): SessionView {
  const draft: SessionView = {
    ...before,
    items: [...before.items],
    calls: { ...before.calls },
    approvals: { ...before.approvals },
    ratings: { ...before.ratings },
  };
  for (const frame of frames) {
    if (frame.seq === null || frame.cursor === null) continue;
    if (frame.type === "text") {
      // A text delta follows the event that opened its message.
      if (frame.seq >= draft.seq && isCursorAfter(frame.cursor, draft.cursor)) {
        appendText(draft, frame);
        draft.cursor = frame.cursor;
      }
      continue;
    }
    if (frame.seq <= draft.seq) continue;
    draft.seq = frame.seq;
    draft.cursor = frame.cursor;
    applyEvent(draft, frame);
  }
  return draft;
}

/**
 * Returns the frames that follow the view's last event without a gap, in order. The subscription to all
 * sessions shares the socket and can deliver an event early; the session's own stream delivers it again.
 */
export function keepContiguous({ seq }: SessionView, frames: Frame[]): Frame[] {
  let last = seq;
  return frames.filter((frame) => {
    if (frame.type === "text" || frame.seq === null) return true;
    if (frame.seq > last + 1) return false;
    last = Math.max(last, frame.seq);
    return true;
  });
}

function isCursorAfter(cursor: string, other: string): boolean {
  const [seq = 0, offset = 0] = cursor.split(".").map(Number);
  const [otherSeq = 0, otherOffset = 0] = other.split(".").map(Number);
  return seq > otherSeq || (seq === otherSeq && offset > otherOffset);
}

/** Returns the index of an item, or -1. Searches from the end, where most changes are. */
function findItemIndex(draft: SessionView, kind: SessionItem["kind"], id: string): number {
  for (let index = draft.items.length - 1; index >= 0; index--) {
    const item = draft.items[index]!;
    if (item.kind === kind && item.id === id) return index;
  }
  return -1;
}

function appendText(draft: SessionView, frame: Frame): void {
  const id = str(frame.body.message_id);
  const index = findItemIndex(draft, "assistant", id);
  const item = draft.items[index];
  if (item?.kind === "assistant") {
    draft.items[index] = { ...item, text: item.text + str(frame.body.text) };
  } else {
    const initialState = { streaming: true, stopped: false, notice: null, at: frame.at, seq: frame.seq ?? 0 };
    draft.items.push({ kind: "assistant", id, text: str(frame.body.text), ...initialState });
  }
}

function updateCall(draft: SessionView, id: Json | undefined, change: (call: Call) => Partial<Call>): void {
  const call = draft.calls[str(id)];
  if (call) draft.calls[call.call_id] = { ...call, ...change(call) };
}

function addNotice(draft: SessionView, frame: Frame, tone: "info" | "warn" | "bad", text: string, detail: string | null = null): void {
  draft.items.push({
    kind: "notice", id: `n${frame.seq}`, tone, text, detail, at: frame.at, seq: frame.seq ?? 0,
  });
}

/** Applies one event. Ignores the event types of newer servers. */
function applyEvent(draft: SessionView, frame: Frame): void {
  const handler = HANDLERS[frame.type];
  if (handler) handler(draft, frame, frame.body);
}

type Handler = (draft: SessionView, frame: Frame, body: JsonObject) => void;

const HANDLERS: Record<string, Handler> = {
  session_created(draft, frame, body) {
    draft.agent = str(body.agent) || frame.agent;
    draft.owner = str(body.owner);
    draft.title = strOrNull(body.title);
    draft.settings = obj(body.settings);
  },
  session_forked(draft, frame, body) {
    draft.agent = frame.agent;
    draft.owner = str(body.owner) || draft.owner;
    draft.title = strOrNull(body.title) ?? draft.title;
    draft.settings = obj(body.settings) ?? draft.settings;
    addNotice(draft, frame, "info", "Fork starts here", null);
  },
  session_settings_changed(draft, frame, body) {
    draft.settings = obj(body.settings) ?? draft.settings;
    if ("title" in body) draft.title = strOrNull(body.title);
    addNotice(draft, frame, "info", "Session settings changed", `by ${str(body.by)}`);
  },
  session_closed(draft, frame, body) {
    draft.closed = true;
    draft.run = null;
    addNotice(draft, frame, "info", "Session closed", `by ${str(body.by)}`);
  },

  message_queued(draft, frame, body) {
    const { message_id, text, delivery } = body;
    draft.queued = [...draft.queued, { message_id: str(message_id), text: str(text), delivery: str(delivery), run_id: frame.run_id }];
  },
  queued_message_changed(draft, _frame, body) {
    draft.queued = draft.queued.map((queued) => queued.message_id === str(body.message_id) ? { ...queued, text: str(body.text) } : queued);
  },
  queued_message_withdrawn(draft, _frame, body) {
    draft.queued = draft.queued.filter((queued) => queued.message_id !== str(body.message_id));
  },
  message_accepted(draft, frame, body) {
    const id = str(body.message_id);
    draft.queued = draft.queued.filter((queued) => queued.message_id !== id);
    draft.items.push({ kind: "user", id, text: str(body.text), at: frame.at, seq: frame.seq ?? 0 });
  },
  message_started(draft, frame, body) {
    draft.items.push({
      kind: "assistant", id: str(body.message_id), text: "", at: frame.at, streaming: true, stopped: false, notice: null,
      seq: frame.seq ?? 0,
    });
  },
  message_completed(draft, frame, body) {
    const id = str(body.message_id);
    const index = findItemIndex(draft, "assistant", id);
    const completed: SessionItem = {
      kind: "assistant", id, text: str(body.text), at: frame.at, streaming: false,
      stopped: body.stopped === true, notice: MESSAGE_NOTICES[str(body.stop_reason)] ?? null, seq: frame.seq ?? 0,
    };
    if (index < 0) draft.items.push(completed);
    // A step that only calls tools has an empty message, which is not shown.
    else if (!completed.text && !completed.stopped && !completed.notice) draft.items.splice(index, 1);
    else draft.items[index] = completed;
  },
  /** The next event states the reason: a retry of the model call or the end of the run. */
  message_discarded(draft, _frame, body) {
    const index = findItemIndex(draft, "assistant", str(body.message_id));
    if (index >= 0) draft.items.splice(index, 1);
  },

  run_started(draft, frame, body) {
    draft.title = strOrNull(body.title) ?? draft.title;
    draft.run = {
      run_id: frame.run_id ?? "", startedAt: frame.at, step: 0, model: null, planning: false, compacting: false, retryUntil: null,
    };
  },
  done(draft, frame, body) {
    // The run of a queued message can be cancelled before it starts; the active run continues.
    const isQueuedRun = draft.queued.some((queued) => queued.delivery === "next_run" && queued.run_id === frame.run_id);
    if (isQueuedRun || (draft.run && draft.run.run_id !== frame.run_id)) {
      draft.queued = draft.queued.filter((queued) => queued.delivery !== "next_run" || queued.run_id !== frame.run_id);
      return;
    }
    // An empty message is not shown, so a notice stands in its place.
    if (body.stop_reason === ("empty" satisfies RunStopReason)) addNotice(draft, frame, "warn", "The model returned no text");
    endRun(draft, frame, str(body.outcome) === "cancelled" ? "cancelled" : "completed",
      body.by ? `by ${str(body.by)}` : null);
  },
  error(draft, frame, body) {
    endRun(draft, frame, "failed", str(body.error));
  },
  thinking(draft, frame, body) {
    if (!draft.run) return;
    draft.run = {
      ...draft.run, step: frame.step ?? draft.run.step, model: strOrNull(body.model),
      planning: body.planning === true, compacting: body.compacting === true || typeof body.compacting === "number", retryUntil: null,
    };
  },
  step_started(draft, frame, body) {
    HANDLERS.thinking!(draft, frame, body);
  },
  step_retrying(draft, frame, body) {
    if (draft.run) draft.run = { ...draft.run, retryUntil: strOrNull(body.until) };
    addNotice(draft, frame, "warn", "Retrying the model call", strOrNull(body.reason));
  },
  step_model_fallback(draft, frame, body) {
    addNotice(draft, frame, "warn", body.to ? `Switched to model ${str(body.to)}` : "Switched to a fallback model", strOrNull(body.reason));
  },
  context_compacted(draft, frame, body) {
    draft.items.push({
      kind: "summary", id: `s${frame.seq}`, through: num(body.through), text: str(body.summary),
      usage: obj(body.usage) as unknown as Usage | null, at: frame.at, seq: frame.seq ?? 0,
    });
  },
  context_compaction_failed(draft, frame, body) {
    addNotice(draft, frame, "warn", "Context compaction failed", strOrNull(body.reason));
  },

  tool_call_started(draft, frame, body) {
    const call_id = str(body.call_id);
    draft.calls[call_id] = {
      call_id, tool: str(body.tool), arguments: obj(body.arguments) ?? {}, argumentsText: strOrNull(body.arguments_text), risk: (str(body.risk) || "write_high_risk") as Risk,
      digest: str(body.digest), step: frame.step, at: frame.at, seq: frame.seq ?? 0, phase: "proposed",
      allowedBy: null, edit: null, attempts: [], retryUntil: null, progress: null, result: undefined,
      truncated: false, cached: false, error: null, reason: null, retriesExhausted: false, requiredLevel: null,
      endedAt: null, lateResults: [], approval_id: null, verdicts: [],
    };
    draft.items.push({ kind: "call", id: call_id, seq: frame.seq ?? 0 });
  },
  tool_call_allowed(draft, _frame, body) {
    const edit = obj(body.edit);
    updateCall(draft, body.call_id, () => ({
      phase: "allowed",
      allowedBy: obj(body.by),
      edit: edit && { arguments: edit.arguments ?? null, reason: strOrNull(edit.reason) ?? undefined },
    }));
  },
  tool_call_attempt_started(draft, frame, body) {
    updateCall(draft, body.call_id, (call) => ({
      phase: "running",
      retryUntil: null,
      attempts: [...call.attempts, { attempt: num(body.attempt), at: frame.at, endedAt: null, reason: null }],
    }));
  },
  tool_call_progress(draft, _frame, body) {
    updateCall(draft, body.call_id, () => ({
      progress: {
        progress: num(body.progress),
        total: typeof body.total === "number" ? body.total : null,
        message: strOrNull(body.message),
      },
    }));
  },
  tool_call_retrying(draft, frame, body) {
    updateCall(draft, body.call_id, (call) => ({
      phase: "backing_off",
      retryUntil: strOrNull(body.until),
      attempts: endLastAttempt(call.attempts, frame.at, str(body.reason)),
    }));
  },
  late_result(draft, _frame, body) {
    updateCall(draft, body.call_id, (call) => ({ lateResults: [...call.lateResults, str(body.summary)] }));
  },
  tool_call_completed(draft, frame, body) {
    updateCall(draft, body.call_id, (call) => ({
      phase: "completed", result: body.result ?? null, truncated: body.truncated === true, cached: body.cached === true,
      endedAt: frame.at, attempts: endLastAttempt(call.attempts, frame.at, null), retryUntil: null,
    }));
  },
  tool_call_failed(draft, frame, body) {
    updateCall(draft, body.call_id, (call) => ({
      phase: "failed", error: str(body.error), reason: str(body.reason), endedAt: frame.at,
      retriesExhausted: body.retries_exhausted === true, attempts: endLastAttempt(call.attempts, frame.at, null), retryUntil: null,
    }));
  },
  authorization_denied(draft, frame, body) {
    updateCall(draft, body.call_id, () => ({
      phase: "denied", reason: str(body.reason), endedAt: frame.at,
      requiredLevel: typeof body.required_level === "number" ? body.required_level : null,
    }));
  },

  waiting_for_approval(draft, frame, body) {
    const plan = obj(body.plan);
    const id = str(body.approval_id) || str(body.plan_id);
    if (!plan) return;
    draft.approvals[id] = {
      ...(plan as unknown as Approval), approval_id: id, state: "pending", decisions: [], answer: null,
      session_id: frame.session_id, run_id: frame.run_id,
    };
    for (const step of list(plan.steps)) {
      updateCall(draft, obj(step)?.call_id, () => ({ phase: "waiting", approval_id: id }));
    }
    // A call with an unknown outcome is not running.
    if (plan.kind === "unknown_outcome") updateCall(draft, obj(plan.call)?.call_id, () => ({ phase: "waiting", approval_id: id }));
    draft.items.push({ kind: "approval", id, seq: frame.seq ?? 0 });
  },
  approval_decided(draft, _frame, body) {
    const approval = draft.approvals[str(body.approval_id)];
    if (!approval) return;
    const decisions = [...approval.decisions, ...(list(body.steps) as unknown as RecordedAnswer[])];
    const answer = (obj(body.answer) as unknown as RecordedAnswer | null) ?? approval.answer;
    const state: ApprovalState = body.closed === true ? "decided" : "pending";
    draft.approvals[approval.approval_id] = { ...approval, decisions, answer, state };
  },
  approval_escalated(draft, _frame, body) {
    const approval = draft.approvals[str(body.approval_id)];
    if (!approval) return;
    draft.approvals[approval.approval_id] = {
      ...approval, escalated_to: str(body.to), deadline: strOrNull(body.deadline),
    };
  },
  approval_expired(draft, _frame, body) {
    closeApproval(draft, body, "expired");
  },
  approval_cancelled(draft, _frame, body) {
    closeApproval(draft, body, "cancelled");
  },
  preflight_skipped(draft, frame, body) {
    addNotice(draft, frame, "warn", "Preflight plan skipped", strOrNull(body.warning));
  },
  child_event(draft, _frame, body) {
    const event = obj(body.event);
    if (!event) return;
    const inner = fromFlat(event);
    const newChild = { session_id: inner.session_id, agent: inner.agent, call_id: str(body.call_id), gone: false, view: EMPTY_VIEW };
    const child = draft.children[inner.session_id] ?? newChild;
    draft.children = { ...draft.children, [inner.session_id]: { ...child, view: applyFrames(child.view, [inner]) } };
  },
  child_gone(draft, _frame, body) {
    const lostChildren = childSessionsOfCall(draft, str(body.call_id)).map((child): [string, ChildSession] => [child.session_id, { ...child, gone: true }]);
    draft.children = { ...draft.children, ...Object.fromEntries(lostChildren) };
  },
  feedback_given(draft, frame, body) {
    const common = { by: str(body.by), comment: strOrNull(body.comment), at: frame.at };
    if (body.about === "call") {
      updateCall(draft, body.call_id, (call) => ({ verdicts: replaceFeedback(call.verdicts, { ...common, value: str(body.verdict) as CallRating }) }));
    } else {
      const id = str(body.message_id);
      draft.ratings[id] = replaceFeedback(draft.ratings[id] ?? [], { ...common, value: num(body.rating) });
    }
  },
  grant_added(draft) {
    draft.grants += 1;
  },
  grant_revoked(draft) {
    draft.grants = Math.max(0, draft.grants - 1);
  },
};

/** Replaces the earlier feedback of the same user. */
function replaceFeedback<T>(before: Feedback<T>[], added: Feedback<T>): Feedback<T>[] {
  return [...before.filter((feedback) => feedback.by !== added.by), added];
}

function endLastAttempt(attempts: Attempt[], at: string, reason: string | null): Attempt[] {
  return attempts.map((attempt, index) =>
    index === attempts.length - 1 && !attempt.endedAt ? { ...attempt, endedAt: at, reason } : attempt);
}

function closeApproval(draft: SessionView, body: JsonObject, state: ApprovalState): void {
  const approval = draft.approvals[str(body.approval_id)];
  if (approval) draft.approvals[approval.approval_id] = { ...approval, state };
}

function endRun(draft: SessionView, frame: Frame, outcome: "completed" | "cancelled" | "failed", text: string | null): void {
  const usage = obj(frame.body.usage) as unknown as Usage | null;
  const started = draft.run?.startedAt ?? frame.at;
  if (usage) draft.usage = addUsage(draft.usage, usage);
  draft.run = null;
  // A cancelled run also ends the message that is being streamed.
  draft.items = draft.items.map((item) =>
    item.kind === "assistant" && item.streaming ? { ...item, streaming: false, stopped: true } : item);
  draft.items.push({
    kind: "end", id: `e${frame.seq}`, outcome, stop_reason: strOrNull(frame.body.stop_reason) as RunStopReason | null, text, usage, at: frame.at,
    ms: Date.parse(frame.at) - Date.parse(started), seq: frame.seq ?? 0,
  });
}

/**
 * Returns the initial view of a fork: the conversation of its source without open calls and
 * approvals.
 */
export function viewForFork(source: SessionView): SessionView {
  const ended = new Set<CallPhase>(["completed", "failed", "denied"]);
  const calls = Object.entries(source.calls).map(([id, call]) => [
    id, ended.has(call.phase) ? call : { ...call, phase: "failed", reason: "cancelled", error: "cancelled by the fork" },
  ]);
  const items = source.items
    .filter((item) => item.kind !== "approval")
    .map((item) => (item.kind === "assistant" ? { ...item, streaming: false } : item));
  return { ...EMPTY_VIEW, items, calls: Object.fromEntries(calls) as Record<string, Call> };
}

/** Returns the status of the session. */
export function sessionStatus(view: SessionView): "closed" | "waiting" | "running" | "idle" {
  if (view.closed) return "closed";
  if (pendingApprovals(view).length) return "waiting";
  return view.run ? "running" : "idle";
}

/** Returns the pending approvals of the session and of its child sessions. */
export function pendingApprovals({ approvals, children }: SessionView): Approval[] {
  const ownPending = Object.values(approvals).filter((approval) => approval.state === "pending");
  return [...ownPending, ...Object.values(children).flatMap((child) => pendingApprovals(child.view))];
}

/** Returns the child sessions that work for a call. */
export function childSessionsOfCall({ children }: Pick<SessionView, "children">, call_id: string): ChildSession[] {
  return Object.values(children).filter((child) => child.call_id === call_id);
}
