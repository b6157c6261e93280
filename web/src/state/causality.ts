/** From an event to what led to it, and to what it led to. Within one session; pure. */

import type { Frame, Json, JsonObject } from "../api/types";

export interface CausalLinks {
  cause: Map<number, number>;
  effects: Map<number, number[]>;
}

/** The links between a session's events, which are in order. */
export function traceCauses(frames: Frame[]): CausalLinks {
  const tracer = new Tracer();
  for (const frame of frames) if (frame.seq !== null) tracer.apply(frame, frame.seq);
  return { cause: tracer.cause, effects: tracer.effects };
}

const text = (value: Json | undefined) => (typeof value === "string" ? value : "");
const object = (value: Json | undefined): JsonObject =>
  value !== null && typeof value === "object" && !Array.isArray(value) ? value : {};

/** Remembers the last event of each thing that events are about. */
class Tracer {
  readonly cause = new Map<number, number>();
  readonly effects = new Map<number, number[]>();
  private readonly message = new Map<string, number>();
  private readonly call = new Map<string, number>();
  private readonly question = new Map<string, number>();
  private readonly questionOfCall = new Map<string, string>();
  private readonly step = new Map<string, number>();
  private readonly stepEnd = new Map<string, number>();
  /** What a run goes on from. */
  private readonly lead = new Map<string, number>();

  apply(frame: Frame, seq: number): void {
    const { body } = frame;
    const run = frame.run_id ?? "";
    const message = text(body.message_id);
    const call = text(body.call_id);
    const question = text(body.approval_id) || text(body.plan_id);
    switch (frame.type) {
      case "message_queued":
        this.message.set(message, seq);
        break;
      case "message_accepted":
        this.link(seq, this.message.get(message) ?? this.lead.get(run));
        this.message.set(message, seq);
        if (this.lead.has(run)) this.lead.set(run, seq);
        break;
      case "run_started":
        this.link(seq, this.message.get(message));
        this.lead.set(run, seq);
        break;
      case "thinking":
      case "step_started":
        this.link(seq, this.lead.get(run));
        this.step.set(run, seq);
        this.stepEnd.delete(run);
        break;
      case "message_started":
        this.link(seq, this.step.get(run));
        this.message.set(message, seq);
        break;
      case "message_completed":
      case "message_discarded":
        this.link(seq, this.message.get(message) ?? this.step.get(run));
        this.message.set(message, seq);
        this.stepEnd.set(run, seq);
        break;
      case "feedback_given":
        this.link(seq, message ? this.message.get(message) : this.call.get(call));
        break;
      case "context_compacted":
      case "context_compaction_failed":
        this.link(seq, this.step.get(run));
        this.lead.set(run, seq);
        break;
      case "step_completed":
        this.link(seq, this.stepEnd.get(run) ?? this.step.get(run));
        this.stepEnd.set(run, seq);
        this.lead.set(run, seq);
        break;
      case "step_retrying":
      case "step_model_fallback":
      case "budget_reached":
        this.link(seq, this.step.get(run) ?? this.lead.get(run));
        this.lead.set(run, seq);
        break;
      case "tool_call_started":
        this.link(seq, this.stepEnd.get(run) ?? this.step.get(run));
        this.call.set(call, seq);
        break;
      case "waiting_for_approval":
        this.linkApproval(body, question, run, seq);
        break;
      case "approval_decided":
      case "approval_expired":
      case "approval_cancelled":
      case "approval_escalated":
      case "preflight_approved":
      case "budget_raised":
        this.link(seq, this.question.get(question));
        this.question.set(question, seq);
        this.lead.set(run, seq);
        break;
      case "grant_added":
      case "grant_revoked":
        this.link(seq, this.lead.get(run));
        break;
      case "tool_call_allowed":
        this.link(seq, this.question.get(text(object(body.by).approval_id)) ?? this.call.get(call));
        this.call.set(call, seq);
        break;
      case "tool_call_progress":
      case "child_event":
      case "child_gone":
      case "late_result":
      case "budget_reserved":
        this.link(seq, this.call.get(call));
        break;
      case "tool_call_attempt_started":
      case "tool_call_retrying":
        this.link(seq, this.call.get(call));
        this.call.set(call, seq);
        break;
      case "tool_call_completed":
      case "tool_call_failed":
      case "authorization_denied":
        this.linkCallEnd(frame, call, run, seq);
        break;
      case "done":
      case "error":
        this.link(seq, this.lead.get(run));
        break;
      default:
        break;
    }
  }

  private linkApproval(body: JsonObject, question: string, run: string, seq: number): void {
    const plan = object(body.plan);
    const steps = Array.isArray(plan.steps) ? plan.steps : [];
    const calls = [...steps.map((step) => text(object(step).call_id)), text(object(plan.call).call_id)].filter(Boolean);
    for (const call of calls) this.questionOfCall.set(call, question);
    const last = calls.map((call) => this.call.get(call)).filter((one) => one !== undefined).at(-1);
    this.link(seq, last ?? this.lead.get(run));
    this.question.set(question, seq);
  }

  private linkCallEnd(frame: Frame, call: string, run: string, seq: number): void {
    const byPerson = frame.body.reason === "rejected" || frame.body.reason === "expired";
    const asked = byPerson ? this.question.get(this.questionOfCall.get(call) ?? "") : undefined;
    this.link(seq, asked ?? this.call.get(call));
    this.call.set(call, seq);
    this.lead.set(run, seq);
  }

  private link(effect: number, cause: number | undefined): void {
    if (cause === undefined) return;
    this.cause.set(effect, cause);
    const effects = this.effects.get(cause);
    if (effects) effects.push(effect);
    else this.effects.set(cause, [effect]);
  }
}
