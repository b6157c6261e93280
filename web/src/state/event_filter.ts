/** Filters and summarises events. Pure; fast enough for the whole event log. */

import { fromFlat } from "../api/frames";
import { isObject, stringifyJson } from "../api/json";
import type { Frame } from "../api/types";

/**
 * The filter of the event list. Empty fields match everything. `kind` is a group or an event type.
 */
export interface Filter {
  session: string;
  kind: string;
  tool: string;
  agent: string;
  words: string;
}

/** The filter that matches every event. */
export const EMPTY_FILTER: Filter = { session: "", kind: "", tool: "", agent: "", words: "" };

/** Named groups of event types. */
export const EVENT_GROUPS: Record<string, { label: string; types: Set<string> }> = {
  messages: { label: "Messages", types: new Set(["message_queued", "queued_message_changed", "queued_message_withdrawn", "message_accepted", "message_started", "message_completed", "message_discarded"]) },
  model: { label: "Model", types: new Set(["thinking", "step_started", "step_completed", "step_retrying", "step_model_fallback", "context_compacted", "context_compaction_failed"]) },
  tools: { label: "Tools", types: new Set(["tool_call_started", "tool_call_allowed", "tool_call_attempt_started", "tool_call_progress", "tool_call_retrying", "late_result", "tool_call_completed", "tool_call_failed", "child_event", "child_gone"]) },
  approvals: { label: "Approvals and feedback", types: new Set(["waiting_for_approval", "approval_decided", "approval_escalated", "approval_expired", "approval_cancelled", "preflight_approved", "preflight_skipped", "budget_raised", "grant_added", "grant_revoked", "feedback_given"]) },
  trouble: { label: "Problems", types: new Set(["error", "tool_call_failed", "authorization_denied", "tool_call_retrying", "step_retrying", "message_discarded", "approval_expired", "budget_reached", "late_result"]) },
  sessions: { label: "Sessions", types: new Set(["session_created", "session_forked", "session_closed", "session_settings_changed", "run_started", "done", "error"]) },
};

/**
 * Returns a predicate for the filter. `getTool` returns the tool of an event, also of one that
 * names only its call.
 */
export function eventMatcher(filter: Filter, getTool: (frame: Frame) => string): (frame: Frame) => boolean {
  const words = filter.words.trim().toLowerCase();
  const group = EVENT_GROUPS[filter.kind];
  return (frame) => {
    if (filter.session && frame.session_id !== filter.session) return false;
    if (group ? !group.types.has(frame.type) : filter.kind && frame.type !== filter.kind) return false;
    if (filter.agent && frame.agent !== filter.agent) return false;
    if (filter.tool && getTool(frame) !== filter.tool) return false;
    return !words || frame.type.includes(words) || frame.session_id.includes(words) || haystack(frame).includes(words);
  };
}

const haystacks = new WeakMap<Frame, string>();

function haystack(frame: Frame): string {
  let searchText = haystacks.get(frame);
  if (searchText === undefined) haystacks.set(frame, (searchText = stringifyJson(frame.body).toLowerCase()));
  return searchText;
}

/** Returns the tool that the event names, or an empty string. */
export function toolOfEvent(frame: Frame): string {
  return typeof frame.body.tool === "string" ? frame.body.tool : "";
}

/** Returns a one-line summary of an event. */
export function eventSummary(frame: Frame): string {
  const { body } = frame;
  const formatValue = (value: unknown) => {
    const text = typeof value === "string" ? value : stringifyJson(value);
    const line = text.replace(/\s+/g, " ");
    return line.length > 180 ? `${line.slice(0, 179).replace(/[\ud800-\udbff]$/, "")}…` : line;
  };
  const parts: string[] = [];
  if (isObject(body.event)) {
    const inner = fromFlat(body.event);
    return `${inner.agent}: ${inner.type}  ${eventSummary(inner)}`;
  }
  if (body.tool) parts.push(String(body.tool));
  if (isObject(body.plan)) parts.push(String(body.plan.purpose ?? ""), String(body.plan.max_risk_level ?? ""));
  const callArguments = body.arguments_text ?? body.arguments;
  if (callArguments !== undefined) parts.push(formatValue(callArguments));
  if (body.result !== undefined) parts.push(`→ ${formatValue(body.result)}`);
  if (body.iteration !== undefined) parts.push(`iteration ${String(body.iteration)}`, String(body.model ?? ""));
  if (body.attempt !== undefined && body.iteration === undefined) parts.push(`attempt ${String(body.attempt)}`);
  if (body.outcome) parts.push(String(body.outcome));
  if (body.text) parts.push(`“${formatValue(body.text)}”`);
  if (body.error) parts.push(formatValue(body.error));
  if (body.reason) parts.push(formatValue(body.reason));
  if (isObject(body.usage)) parts.push(`${String(body.usage.input_tokens)} in, ${String(body.usage.output_tokens)} out`);
  if (body.by && typeof body.by === "string") parts.push(`by ${body.by}`);
  if (Array.isArray(body.steps) && frame.type === "approval_decided") parts.push(body.steps.map((step) => (isObject(step) ? (step.approved ? "approved" : "rejected") : "")).join(", "));
  if (body.owner) parts.push(`owner ${String(body.owner)}`);
  return parts.filter(Boolean).join("  ");
}

/** The colour class of each event type. */
export const EVENT_TONES: Record<string, string> = {
  done: "good", tool_call_completed: "good", approval_decided: "good", message_completed: "good", preflight_approved: "good",
  waiting_for_approval: "warn", tool_call_retrying: "warn", step_retrying: "warn", approval_expired: "warn", message_discarded: "warn",
  late_result: "warn", budget_reached: "warn", approval_escalated: "warn",
  error: "bad", tool_call_failed: "bad", authorization_denied: "bad",
  thinking: "info", step_started: "info", step_completed: "info", message_started: "info",
  tool_call_started: "tool", tool_call_allowed: "tool", tool_call_attempt_started: "tool", tool_call_progress: "tool", child_event: "tool", child_gone: "warn",
};
