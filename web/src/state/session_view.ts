/**
 * A session as people see it, folded from its frames: what was said, each tool call with its story,
 * each question, and what is going on now. Pure; the same for a page that was open all along and for
 * one that was opened late.
 */

import { fromFlat } from "../api/frames";
import type { RecordedAnswer, Frame, Json, JsonObject, Approval, ApprovalState, Risk, Usage } from "../api/types";
import {
  type Attempt, type Call, type CallPhase, type ChildSession, type SessionView, EMPTY_VIEW, type SessionItem, type Opinion, type CallRating,
} from "./session_view_types";

export * from "./session_view_types";

const str = (value: Json | undefined): string => (typeof value === "string" ? value : "");
const strOrNull = (value: Json | undefined): string | null => (typeof value === "string" ? value : null);
const num = (value: Json | undefined): number => (typeof value === "number" ? value : 0);
const obj = (value: Json | undefined): JsonObject | null =>
  value !== null && typeof value === "object" && !Array.isArray(value) ? value : null;
const list = (value: Json | undefined): Json[] => (Array.isArray(value) ? value : []);

export function addUsage(one: Usage, other: Usage): Usage {
  const unknown = one.cost_usd === null || other.cost_usd === null;
  return {
    input_tokens: one.input_tokens + other.input_tokens,
    output_tokens: one.output_tokens + other.output_tokens,
    cached_tokens: one.cached_tokens + other.cached_tokens,
    cost_usd: unknown ? null : one.cost_usd! + other.cost_usd!,
  };
}

/** The state after these frames. What was heard before changes nothing. */
export function fold(before: SessionView, frames: Frame[]): SessionView {
  const draft: SessionView = {
    ...before,
    items: [...before.items],
    calls: { ...before.calls },
    questions: { ...before.questions },
    ratings: { ...before.ratings },
  };
  for (const frame of frames) {
    if (frame.seq === null || frame.cursor === null) continue;
    if (frame.type === "text") {
      // Text belongs after the event that opened its message.
      if (frame.seq >= draft.seq && isAfter(frame.cursor, draft.cursor)) {
        appendText(draft, frame);
        draft.cursor = frame.cursor;
      }
      continue;
    }
    if (frame.seq <= draft.seq) continue;
    draft.seq = frame.seq;
    draft.cursor = frame.cursor;
    event(draft, frame);
  }
  return draft;
}

/**
 * Those of the frames that follow on what was heard, in their order. The events of everybody come over
 * the same line, and may be ahead of a session's own: those come again, in their turn.
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

function isAfter(cursor: string, other: string): boolean {
  const [seq = 0, offset = 0] = cursor.split(".").map(Number);
  const [otherSeq = 0, otherOffset = 0] = other.split(".").map(Number);
  return seq > otherSeq || (seq === otherSeq && offset > otherOffset);
}

/** The place of the item among the last ones, where changes happen. */
function find(draft: SessionView, kind: SessionItem["kind"], id: string): number {
  for (let at = draft.items.length - 1; at >= 0; at--) {
    const item = draft.items[at]!;
    if (item.kind === kind && item.id === id) return at;
  }
  return -1;
}

function appendText(draft: SessionView, frame: Frame): void {
  const id = str(frame.body.message_id);
  const at = find(draft, "assistant", id);
  const item = draft.items[at];
  if (item?.kind === "assistant") {
    draft.items[at] = { ...item, text: item.text + str(frame.body.text) };
  } else {
    const fresh = { streaming: true, stopped: false, at: frame.at, seq: frame.seq ?? 0 };
    draft.items.push({ kind: "assistant", id, text: str(frame.body.text), ...fresh });
  }
}

function change(draft: SessionView, id: Json | undefined, by: (call: Call) => Partial<Call>): void {
  const call = draft.calls[str(id)];
  if (call) draft.calls[call.call_id] = { ...call, ...by(call) };
}

function notice(draft: SessionView, frame: Frame, tone: "info" | "warn" | "bad", said: string, detail: string | null = null): void {
  draft.items.push({
    kind: "notice", id: `n${frame.seq}`, tone, text: said, detail, at: frame.at, seq: frame.seq ?? 0,
  });
}

/** Frames are a closed vocabulary on the server; those of a newer one are passed over. */
function event(draft: SessionView, frame: Frame): void {
  const handle = HANDLERS[frame.type];
  if (handle) handle(draft, frame, frame.body);
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
    notice(draft, frame, "info", "Forked from here on", null);
  },
  session_settings_changed(draft, frame, body) {
    draft.settings = obj(body.settings) ?? draft.settings;
    if ("title" in body) draft.title = strOrNull(body.title);
    notice(draft, frame, "info", "The session’s settings changed", `by ${str(body.by)}`);
  },
  session_closed(draft, frame, body) {
    draft.closed = true;
    draft.run = null;
    notice(draft, frame, "info", "The session was closed", `by ${str(body.by)}`);
  },

  message_queued(draft, _frame, body) {
    const { message_id, text: said, delivery } = body;
    draft.queued = [...draft.queued, { message_id: str(message_id), text: str(said), delivery: str(delivery) }];
  },
  message_accepted(draft, frame, body) {
    const id = str(body.message_id);
    draft.queued = draft.queued.filter((queued) => queued.message_id !== id);
    draft.items.push({ kind: "user", id, text: str(body.text), at: frame.at, seq: frame.seq ?? 0 });
  },
  message_started(draft, frame, body) {
    draft.items.push({
      kind: "assistant", id: str(body.message_id), text: "", at: frame.at, streaming: true, stopped: false, seq: frame.seq ?? 0,
    });
  },
  message_completed(draft, frame, body) {
    const id = str(body.message_id);
    const at = find(draft, "assistant", id);
    const whole: SessionItem = {
      kind: "assistant", id, text: str(body.text), at: frame.at, streaming: false,
      stopped: body.stopped === true, seq: frame.seq ?? 0,
    };
    if (at < 0) draft.items.push(whole);
    // A step that only calls tools says nothing.
    else if (!whole.text && !whole.stopped) draft.items.splice(at, 1);
    else draft.items[at] = whole;
  },
  /** What comes next says why: that the model is asked again, or how the run ended. */
  message_discarded(draft, _frame, body) {
    const at = find(draft, "assistant", str(body.message_id));
    if (at >= 0) draft.items.splice(at, 1);
  },

  run_started(draft, frame, body) {
    draft.title = strOrNull(body.title) ?? draft.title;
    draft.run = {
      run_id: frame.run_id ?? "", startedAt: frame.at, step: 0, model: null, planning: false, compacting: false, retryUntil: null,
    };
  },
  done(draft, frame, body) {
    end(draft, frame, str(body.outcome) === "cancelled" ? "cancelled" : "completed",
      body.by ? `by ${str(body.by)}` : null);
  },
  error(draft, frame, body) {
    end(draft, frame, "failed", str(body.error));
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
    notice(draft, frame, "warn", "The model is asked again, and begins anew", strOrNull(body.reason));
  },
  step_model_fallback(draft, frame, body) {
    notice(draft, frame, "warn", `Another model takes over${body.to ? `: ${str(body.to)}` : ""}`, strOrNull(body.reason));
  },
  context_compacted(draft, frame, body) {
    draft.items.push({
      kind: "summary", id: `s${frame.seq}`, through: num(body.through), text: str(body.summary),
      usage: obj(body.usage) as unknown as Usage | null, at: frame.at, seq: frame.seq ?? 0,
    });
  },
  context_compaction_failed(draft, frame, body) {
    notice(draft, frame, "warn", "Older parts could not be summarised", strOrNull(body.reason));
  },

  tool_call_started(draft, frame, body) {
    const call_id = str(body.call_id);
    draft.calls[call_id] = {
      call_id, tool: str(body.tool), arguments: body.arguments ?? null, risk: (str(body.risk) || "write_high_risk") as Risk,
      digest: str(body.digest), step: frame.step, at: frame.at, seq: frame.seq ?? 0, phase: "proposed",
      allowedBy: null, edit: null, attempts: [], retryUntil: null, progress: null, result: undefined,
      truncated: false, cached: false, error: null, reason: null, retriesExhausted: false, requiredLevel: null,
      endedAt: null, lateResults: [], approval_id: null, verdicts: [],
    };
    draft.items.push({ kind: "call", id: call_id, seq: frame.seq ?? 0 });
  },
  tool_call_allowed(draft, _frame, body) {
    const edit = obj(body.edit);
    change(draft, body.call_id, () => ({
      phase: "allowed",
      allowedBy: obj(body.by),
      edit: edit && { arguments: edit.arguments ?? null, reason: strOrNull(edit.reason) ?? undefined },
    }));
  },
  tool_call_attempt_started(draft, frame, body) {
    change(draft, body.call_id, (call) => ({
      phase: "running",
      retryUntil: null,
      attempts: [...call.attempts, { attempt: num(body.attempt), at: frame.at, endedAt: null, reason: null }],
    }));
  },
  tool_call_progress(draft, _frame, body) {
    change(draft, body.call_id, () => ({
      progress: {
        progress: num(body.progress),
        total: typeof body.total === "number" ? body.total : null,
        message: strOrNull(body.message),
      },
    }));
  },
  tool_call_retrying(draft, frame, body) {
    change(draft, body.call_id, (call) => ({
      phase: "backing_off",
      retryUntil: strOrNull(body.until),
      attempts: endLastAttempt(call.attempts, frame.at, str(body.reason)),
    }));
  },
  late_result(draft, _frame, body) {
    change(draft, body.call_id, (call) => ({ lateResults: [...call.lateResults, str(body.summary)] }));
  },
  tool_call_completed(draft, frame, body) {
    change(draft, body.call_id, (call) => ({
      phase: "completed", result: body.result ?? null, truncated: body.truncated === true, cached: body.cached === true,
      endedAt: frame.at, attempts: endLastAttempt(call.attempts, frame.at, null), retryUntil: null,
    }));
  },
  tool_call_failed(draft, frame, body) {
    change(draft, body.call_id, (call) => ({
      phase: "failed", error: str(body.error), reason: str(body.reason), endedAt: frame.at,
      retriesExhausted: body.retries_exhausted === true, attempts: endLastAttempt(call.attempts, frame.at, null), retryUntil: null,
    }));
  },
  authorization_denied(draft, frame, body) {
    change(draft, body.call_id, () => ({
      phase: "denied", reason: str(body.reason), endedAt: frame.at,
      requiredLevel: typeof body.required_level === "number" ? body.required_level : null,
    }));
  },

  waiting_for_approval(draft, frame, body) {
    const plan = obj(body.plan);
    const id = str(body.approval_id) || str(body.plan_id);
    if (!plan) return;
    draft.questions[id] = {
      ...(plan as unknown as Approval), approval_id: id, state: "pending", decisions: [], answer: null,
      session_id: frame.session_id, run_id: frame.run_id,
    };
    for (const step of list(plan.steps)) {
      change(draft, obj(step)?.call_id, () => ({ phase: "waiting", approval_id: id }));
    }
    // One whose outcome nobody knows does not run any more.
    if (plan.kind === "unknown_outcome") change(draft, obj(plan.call)?.call_id, () => ({ phase: "waiting", approval_id: id }));
    draft.items.push({ kind: "question", id, seq: frame.seq ?? 0 });
  },
  approval_decided(draft, _frame, body) {
    const question = draft.questions[str(body.approval_id)];
    if (!question) return;
    const decisions = [...question.decisions, ...(list(body.steps) as unknown as RecordedAnswer[])];
    const answer = (obj(body.answer) as unknown as RecordedAnswer | null) ?? question.answer;
    const state: ApprovalState = body.closed === true ? "decided" : "pending";
    draft.questions[question.approval_id] = { ...question, decisions, answer, state };
  },
  approval_escalated(draft, _frame, body) {
    const question = draft.questions[str(body.approval_id)];
    if (!question) return;
    draft.questions[question.approval_id] = {
      ...question, escalated_to: str(body.to), deadline: strOrNull(body.deadline),
    };
  },
  approval_expired(draft, _frame, body) {
    closeApproval(draft, body, "expired");
  },
  approval_cancelled(draft, _frame, body) {
    closeApproval(draft, body, "cancelled");
  },
  preflight_skipped(draft, frame, body) {
    notice(draft, frame, "warn", "There is no plan to look at first", strOrNull(body.warning));
  },
  child_event(draft, _frame, body) {
    const event = obj(body.event);
    if (!event) return;
    const inner = fromFlat(event);
    const fresh = { session_id: inner.session_id, agent: inner.agent, call_id: str(body.call_id), gone: false, conversation: EMPTY_VIEW };
    const child = draft.children[inner.session_id] ?? fresh;
    draft.children = { ...draft.children, [inner.session_id]: { ...child, conversation: fold(child.conversation, [inner]) } };
  },
  child_gone(draft, _frame, body) {
    const gone = childrenOf(draft, str(body.call_id)).map((child): [string, ChildSession] => [child.session_id, { ...child, gone: true }]);
    draft.children = { ...draft.children, ...Object.fromEntries(gone) };
  },
  feedback_given(draft, frame, body) {
    const given = { by: str(body.by), comment: strOrNull(body.comment), at: frame.at };
    if (body.about === "call") {
      change(draft, body.call_id, (call) => ({ verdicts: opinions(call.verdicts, { ...given, value: str(body.verdict) as CallRating }) }));
    } else {
      const id = str(body.message_id);
      draft.ratings[id] = opinions(draft.ratings[id] ?? [], { ...given, value: num(body.rating) });
    }
  },
  grant_added(draft) {
    draft.grants += 1;
  },
  grant_revoked(draft) {
    draft.grants = Math.max(0, draft.grants - 1);
  },
};

/** Who says something anew takes back what they said. */
function opinions<T>(before: Opinion<T>[], given: Opinion<T>): Opinion<T>[] {
  return [...before.filter((one) => one.by !== given.by), given];
}

function endLastAttempt(attempts: Attempt[], at: string, reason: string | null): Attempt[] {
  return attempts.map((attempt, index) =>
    index === attempts.length - 1 && !attempt.endedAt ? { ...attempt, endedAt: at, reason } : attempt);
}

function closeApproval(draft: SessionView, body: JsonObject, state: ApprovalState): void {
  const question = draft.questions[str(body.approval_id)];
  if (question) draft.questions[question.approval_id] = { ...question, state };
}

function end(draft: SessionView, frame: Frame, outcome: "completed" | "cancelled" | "failed", said: string | null): void {
  const usage = obj(frame.body.usage) as unknown as Usage | null;
  const started = draft.run?.startedAt ?? frame.at;
  if (usage) draft.usage = addUsage(draft.usage, usage);
  draft.run = null;
  // What was streaming when the run was cancelled has ended too.
  draft.items = draft.items.map((item) =>
    item.kind === "assistant" && item.streaming ? { ...item, streaming: false, stopped: true } : item);
  draft.items.push({
    kind: "end", id: `e${frame.seq}`, outcome, text: said, usage, at: frame.at,
    ms: Date.parse(frame.at) - Date.parse(started), seq: frame.seq ?? 0,
  });
}

/** What a fork begins with: the conversation of its source, in which nothing is open any more. */
export function forkedView(source: SessionView): SessionView {
  const over = new Set<CallPhase>(["completed", "failed", "denied"]);
  const calls = Object.entries(source.calls).map(([id, call]) => [
    id, over.has(call.phase) ? call : { ...call, phase: "failed", reason: "cancelled", error: "cancelled by the fork" },
  ]);
  const items = source.items
    .filter((item) => item.kind !== "question")
    .map((item) => (item.kind === "assistant" ? { ...item, streaming: false } : item));
  return { ...EMPTY_VIEW, items, calls: Object.fromEntries(calls) as Record<string, Call> };
}

/** What the session is doing, in a word. */
export function statusOf(conversation: SessionView): "closed" | "waiting" | "running" | "idle" {
  if (conversation.closed) return "closed";
  if (pendingApprovals(conversation).length) return "waiting";
  return conversation.run ? "running" : "idle";
}

/** The questions that wait, those of its children too. */
export function pendingApprovals({ questions, children }: SessionView): Approval[] {
  const own = Object.values(questions).filter((question) => question.state === "pending");
  return [...own, ...Object.values(children).flatMap((child) => pendingApprovals(child.conversation))];
}

/** The children that work for that call. */
export function childrenOf({ children }: Pick<SessionView, "children">, call_id: string): ChildSession[] {
  return Object.values(children).filter((child) => child.call_id === call_id);
}
