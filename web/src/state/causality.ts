/** Derives the causal links between the events of a session. Pure. */

import { isObject } from "../api/json";
import type { Frame, Json, JsonObject } from "../api/types";

/** Causal links between events, by `seq`. An event has at most one cause. */
export interface CausalLinks {
  cause: Map<number, number>;
  effects: Map<number, number[]>;
}

/** Returns the causal links between the events of one session. `frames` is in order. */
export function traceCauses(frames: Frame[]): CausalLinks {
  const tracer = new Tracer();
  for (const frame of frames) if (frame.seq !== null) tracer.apply(frame, frame.seq);
  return { cause: tracer.cause, effects: tracer.effects };
}

const text = (value: Json | undefined) => (typeof value === "string" ? value : "");
const object = (value: Json | undefined): JsonObject =>
  isObject(value) ? value : {};

/** Collects the links; keeps the last event of each message, call, approval, step and run. */
class Tracer {
  readonly cause = new Map<number, number>();
  readonly effects = new Map<number, number[]>();
  private readonly messageSeq = new Map<string, number>();
  private readonly callSeq = new Map<string, number>();
  private readonly approvalSeq = new Map<string, number>();
  private readonly approvalOfCall = new Map<string, string>();
  private readonly stepSeq = new Map<string, number>();
  private readonly stepEndSeq = new Map<string, number>();
  /** The event that the next event of a run without a closer cause continues from. */
  private readonly runHeadSeq = new Map<string, number>();

  apply(frame: Frame, seq: number): void {
    const { body } = frame;
    const run = frame.run_id ?? "";
    const message = text(body.message_id);
    const call = text(body.call_id);
    const approval = text(body.approval_id) || text(body.plan_id);
    switch (frame.type) {
      case "message_queued":
        this.messageSeq.set(message, seq);
        break;
      case "queued_message_changed":
      case "queued_message_withdrawn":
        this.link(seq, this.messageSeq.get(message));
        this.messageSeq.set(message, seq);
        // The end of a run that never starts continues from the withdrawal.
        if (frame.type === "queued_message_withdrawn" && !this.runHeadSeq.has(run)) this.runHeadSeq.set(run, seq);
        break;
      case "message_accepted":
        this.link(seq, this.messageSeq.get(message) ?? this.runHeadSeq.get(run));
        this.messageSeq.set(message, seq);
        if (this.runHeadSeq.has(run)) this.runHeadSeq.set(run, seq);
        break;
      case "run_started":
        this.link(seq, this.messageSeq.get(message));
        this.runHeadSeq.set(run, seq);
        break;
      case "thinking":
      case "step_started":
        this.link(seq, this.runHeadSeq.get(run));
        this.stepSeq.set(run, seq);
        this.stepEndSeq.delete(run);
        break;
      case "message_started":
        this.link(seq, this.stepSeq.get(run));
        this.messageSeq.set(message, seq);
        break;
      case "message_completed":
      case "message_discarded":
        this.link(seq, this.messageSeq.get(message) ?? this.stepSeq.get(run));
        this.messageSeq.set(message, seq);
        this.stepEndSeq.set(run, seq);
        break;
      case "feedback_given":
        this.link(seq, message ? this.messageSeq.get(message) : this.callSeq.get(call));
        break;
      case "context_compacted":
      case "context_compaction_failed":
        this.link(seq, this.stepSeq.get(run));
        this.runHeadSeq.set(run, seq);
        break;
      case "step_completed":
        this.link(seq, this.stepEndSeq.get(run) ?? this.stepSeq.get(run));
        this.stepEndSeq.set(run, seq);
        this.runHeadSeq.set(run, seq);
        break;
      case "step_retrying":
      case "step_model_fallback":
      case "budget_reached":
        this.link(seq, this.stepSeq.get(run) ?? this.runHeadSeq.get(run));
        this.runHeadSeq.set(run, seq);
        break;
      case "tool_call_started":
        this.link(seq, this.stepEndSeq.get(run) ?? this.stepSeq.get(run));
        this.callSeq.set(call, seq);
        break;
      case "waiting_for_approval":
        this.linkApproval(body, approval, run, seq);
        break;
      case "approval_decided":
      case "approval_expired":
      case "approval_cancelled":
      case "approval_escalated":
      case "preflight_approved":
      case "budget_raised":
        this.link(seq, this.approvalSeq.get(approval));
        this.approvalSeq.set(approval, seq);
        this.runHeadSeq.set(run, seq);
        break;
      case "grant_added":
      case "grant_revoked":
        this.link(seq, this.runHeadSeq.get(run));
        break;
      case "tool_call_allowed":
        this.link(seq, this.approvalSeq.get(text(object(body.by).approval_id)) ?? this.callSeq.get(call));
        this.callSeq.set(call, seq);
        break;
      case "tool_call_progress":
      case "child_event":
      case "child_gone":
      case "late_result":
      case "budget_reserved":
        this.link(seq, this.callSeq.get(call));
        break;
      case "tool_call_attempt_started":
      case "tool_call_retrying":
        this.link(seq, this.callSeq.get(call));
        this.callSeq.set(call, seq);
        break;
      case "tool_call_completed":
      case "tool_call_failed":
      case "authorization_denied":
        this.linkCallEnd(frame, call, run, seq);
        break;
      case "done":
      case "error":
        this.link(seq, this.runHeadSeq.get(run));
        break;
      default:
        break;
    }
  }

  private linkApproval(body: JsonObject, approval: string, run: string, seq: number): void {
    const plan = object(body.plan);
    const steps = Array.isArray(plan.steps) ? plan.steps : [];
    const calls = [...steps.map((step) => text(object(step).call_id)), text(object(plan.call).call_id)].filter(Boolean);
    for (const call of calls) this.approvalOfCall.set(call, approval);
    const lastCallSeq = calls.map((call) => this.callSeq.get(call)).filter((callSeq) => callSeq !== undefined).at(-1);
    this.link(seq, lastCallSeq ?? this.runHeadSeq.get(run));
    this.approvalSeq.set(approval, seq);
  }

  private linkCallEnd(frame: Frame, call: string, run: string, seq: number): void {
    const endedByApproval = frame.body.reason === "rejected" || frame.body.reason === "expired";
    const approvalSeq = endedByApproval ? this.approvalSeq.get(this.approvalOfCall.get(call) ?? "") : undefined;
    this.link(seq, approvalSeq ?? this.callSeq.get(call));
    this.callSeq.set(call, seq);
    this.runHeadSeq.set(run, seq);
  }

  private link(effect: number, cause: number | undefined): void {
    if (cause === undefined) return;
    this.cause.set(effect, cause);
    const effects = this.effects.get(cause);
    if (effects) effects.push(effect);
    else this.effects.set(cause, [effect]);
  }
}
