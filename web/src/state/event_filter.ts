/** Which events somebody wants to see. Pure, and quick for many. */

import { fromFlat } from "../api/frames";
import type { Frame } from "../api/types";

export interface Filter {
  session: string;
  kind: string;
  tool: string;
  agent: string;
  words: string;
}

export const EVERYTHING: Filter = { session: "", kind: "", tool: "", agent: "", words: "" };

/** Groups of types, as people think of them. */
export const EVENT_GROUPS: Record<string, { label: string; types: Set<string> }> = {
  messages: { label: "Messages", types: new Set(["message_queued", "message_accepted", "message_started", "message_completed", "message_discarded"]) },
  model: { label: "Model", types: new Set(["thinking", "step_started", "step_completed", "step_retrying", "step_model_fallback", "context_compacted", "context_compaction_failed"]) },
  tools: { label: "Tools", types: new Set(["tool_call_started", "tool_call_allowed", "tool_call_attempt_started", "tool_call_progress", "tool_call_retrying", "late_result", "tool_call_completed", "tool_call_failed", "child_event", "child_gone"]) },
  people: { label: "People", types: new Set(["waiting_for_approval", "approval_decided", "approval_escalated", "approval_expired", "approval_cancelled", "preflight_approved", "preflight_skipped", "budget_raised", "grant_added", "grant_revoked", "feedback_given"]) },
  trouble: { label: "Trouble", types: new Set(["error", "tool_call_failed", "authorization_denied", "tool_call_retrying", "step_retrying", "message_discarded", "approval_expired", "budget_reached", "late_result"]) },
  sessions: { label: "Sessions", types: new Set(["session_created", "session_forked", "session_closed", "session_settings_changed", "run_started", "done", "error"]) },
};

/** Whether each event is wanted. Tools are known by the call where an event does not name them. */
export function matcher(filter: Filter, toolOf: (frame: Frame) => string): (frame: Frame) => boolean {
  const words = filter.words.trim().toLowerCase();
  const group = EVENT_GROUPS[filter.kind];
  return (frame) => {
    if (filter.session && frame.session_id !== filter.session) return false;
    if (group ? !group.types.has(frame.type) : filter.kind && frame.type !== filter.kind) return false;
    if (filter.agent && frame.agent !== filter.agent) return false;
    if (filter.tool && toolOf(frame) !== filter.tool) return false;
    return !words || frame.type.includes(words) || frame.session_id.includes(words) || haystack(frame).includes(words);
  };
}

const haystacks = new WeakMap<Frame, string>();

function haystack(frame: Frame): string {
  let text = haystacks.get(frame);
  if (text === undefined) haystacks.set(frame, (text = JSON.stringify(frame.body).toLowerCase()));
  return text;
}

export function toolIn(frame: Frame): string {
  return typeof frame.body.tool === "string" ? frame.body.tool : "";
}

/** What happened, in one line. */
export function eventSummary(frame: Frame): string {
  const { body } = frame;
  const said = (value: unknown) => {
    const text = typeof value === "string" ? value : JSON.stringify(value);
    const line = text.replace(/\s+/g, " ");
    return line.length > 180 ? `${line.slice(0, 179).replace(/[\ud800-\udbff]$/, "")}…` : line;
  };
  const parts: string[] = [];
  if (body.event && typeof body.event === "object" && !Array.isArray(body.event)) {
    const inner = fromFlat(body.event);
    return `${inner.agent}: ${inner.type}  ${eventSummary(inner)}`;
  }
  if (body.tool) parts.push(String(body.tool));
  if (body.plan && typeof body.plan === "object" && !Array.isArray(body.plan)) parts.push(String(body.plan.purpose ?? ""), String(body.plan.max_risk_level ?? ""));
  if (body.arguments !== undefined) parts.push(said(body.arguments));
  if (body.result !== undefined) parts.push(`→ ${said(body.result)}`);
  if (body.iteration !== undefined) parts.push(`iteration ${String(body.iteration)}`, String(body.model ?? ""));
  if (body.attempt !== undefined && body.iteration === undefined) parts.push(`attempt ${String(body.attempt)}`);
  if (body.outcome) parts.push(String(body.outcome));
  if (body.text) parts.push(`“${said(body.text)}”`);
  if (body.error) parts.push(said(body.error));
  if (body.reason) parts.push(said(body.reason));
  if (body.usage && typeof body.usage === "object" && !Array.isArray(body.usage)) parts.push(`${String(body.usage.input_tokens)} in, ${String(body.usage.output_tokens)} out`);
  if (body.by && typeof body.by === "string") parts.push(`by ${body.by}`);
  if (Array.isArray(body.steps) && frame.type === "approval_decided") parts.push(body.steps.map((step) => (step && typeof step === "object" && !Array.isArray(step) ? (step.approved ? "approved" : "rejected") : "")).join(", "));
  if (body.owner) parts.push(`for ${String(body.owner)}`);
  return parts.filter(Boolean).join("  ");
}

export const TONE: Record<string, string> = {
  done: "good", tool_call_completed: "good", approval_decided: "good", message_completed: "good", preflight_approved: "good",
  waiting_for_approval: "warn", tool_call_retrying: "warn", step_retrying: "warn", approval_expired: "warn", message_discarded: "warn",
  late_result: "warn", budget_reached: "warn", approval_escalated: "warn",
  error: "bad", tool_call_failed: "bad", authorization_denied: "bad",
  thinking: "info", step_started: "info", step_completed: "info", message_started: "info",
  tool_call_started: "tool", tool_call_allowed: "tool", tool_call_attempt_started: "tool", tool_call_progress: "tool", child_event: "tool", child_gone: "warn",
};
