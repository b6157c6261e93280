/** Builds the timeline of a run: spans in lanes for the model, each tool and approvals. Pure. */

import { fromFlat } from "../api/frames";
import { isObject } from "../api/json";
import type { Frame, Json, JsonObject } from "../api/types";

/** The kind of a span. */
export type SpanKind = "step" | "attempt" | "backoff" | "approval" | "denied";
/** The state of a span; `open` while it lasts. */
export type SpanState = "open" | "good" | "bad" | "warn";

/** A bar of the timeline. Times are in milliseconds since the epoch. */
export interface Span {
  lane: string;
  kind: SpanKind;
  label: string;
  from: number;
  /** Null while the span lasts. */
  to: number | null;
  state: SpanState;
  seq: number;
  /** The id of the call or approval that the span belongs to, or the model lane. */
  subject: string;
  /** The row within the lane. Overlapping subjects are in different rows. */
  row: number;
}

/** The timeline of one run. */
export interface RunSpans {
  run_id: string;
  title: string;
  from: number;
  to: number | null;
  outcome: string | null;
  lanes: { name: string; rows: number }[];
  spans: Span[];
}

/** The name of the lane for model calls. */
export const MODEL_LANE = "model";
/** The name of the lane for the time spent waiting for approvals. */
export const APPROVALS_LANE = "approvals";

const text = (value: Json | undefined) => (typeof value === "string" ? value : "");
const object = (value: Json | undefined): JsonObject =>
  isObject(value) ? value : {};

/** Returns the timelines of a session's runs, oldest first. */
export function buildRuns(frames: Frame[]): RunSpans[] {
  const runs = new Map<string, RunSpansBuilder>();
  const messageTexts = new Map<string, string>();
  for (const frame of frames) {
    if (frame.type === "message_accepted") messageTexts.set(text(frame.body.message_id), text(frame.body.text));
    if (!frame.run_id) continue;
    let run = runs.get(frame.run_id);
    if (!run) {
      if (frame.type !== "run_started") continue;
      run = new RunSpansBuilder(frame.run_id, messageTexts.get(text(frame.body.message_id)) ?? "Run", Date.parse(frame.at));
      runs.set(frame.run_id, run);
    }
    run.apply(frame);
  }
  return [...runs.values()].map((run) => run.build());
}

/**
 * Assigns each subject of a lane to the first row that is free for its duration. Returns the number
 * of rows.
 */
function assignRows(spans: Span[]): number {
  const intervals = new Map<string, { from: number; to: number }>();
  for (const span of spans) {
    const known = intervals.get(span.subject);
    const to = span.to ?? Infinity;
    intervals.set(span.subject, { from: Math.min(known?.from ?? Infinity, span.from), to: Math.max(known?.to ?? -Infinity, to) });
  }
  const ends: number[] = [];
  const rows = new Map<string, number>();
  for (const [subject, { from, to }] of [...intervals].sort(([, a], [, b]) => a.from - b.from)) {
    const freeRow = ends.findIndex((end) => end <= from);
    const row = freeRow < 0 ? ends.length : freeRow;
    ends[row] = to;
    rows.set(subject, row);
  }
  for (const span of spans) span.row = rows.get(span.subject) ?? 0;
  return Math.max(1, ends.length);
}

class RunSpansBuilder {
  private readonly spans: Span[] = [];
  private readonly openSpans = new Map<string, Span>();
  private readonly toolsByCall = new Map<string, string>();
  private to: number | null = null;
  private outcome: string | null = null;

  constructor(private readonly run_id: string, private readonly title: string, private readonly from: number) {}

  build(): RunSpans {
    const { run_id, title, from, to, outcome, spans } = this;
    const tools = [...new Set(spans.map((span) => span.lane))].filter((lane) => lane !== MODEL_LANE && lane !== APPROVALS_LANE);
    const lanes = [MODEL_LANE, ...tools, APPROVALS_LANE].map((name) => ({ name, rows: assignRows(spans.filter((span) => span.lane === name)) }));
    return { run_id, title, from, to, outcome, spans, lanes };
  }

  apply(frame: Frame): void {
    const time = Date.parse(frame.at);
    const { body } = frame;
    const call = text(body.call_id);
    const tool = this.toolsByCall.get(call) ?? text(body.tool);
    const approval = text(body.approval_id) || text(body.plan_id);
    switch (frame.type) {
      case "thinking":
      case "step_started":
        this.endSpan(MODEL_LANE, time, "bad");
        this.startSpan(MODEL_LANE, frame, { lane: MODEL_LANE, kind: "step", label: body.planning ? "plan" : `step ${frame.step ?? ""}` }, time);
        break;
      case "step_completed":
        this.endSpan(MODEL_LANE, time, "good");
        break;
      case "step_retrying":
        this.endSpan(MODEL_LANE, time, "bad");
        this.startSpan(MODEL_LANE, frame, { lane: MODEL_LANE, kind: "backoff", label: "retry delay" }, time);
        break;
      case "tool_call_started":
        this.toolsByCall.set(call, text(body.tool));
        break;
      case "tool_call_attempt_started":
        this.endSpan(call, time, "warn");
        this.startSpan(call, frame, { lane: tool, kind: "attempt", label: Number(body.attempt) > 1 ? `${tool}, attempt ${String(body.attempt)}` : tool }, time);
        break;
      case "tool_call_retrying":
        this.endSpan(call, time, "bad");
        this.startSpan(call, frame, { lane: tool, kind: "backoff", label: "retry delay" }, time);
        break;
      case "tool_call_completed":
        this.endSpan(call, time, "good");
        break;
      case "tool_call_failed":
        this.endSpan(call, time, "bad");
        break;
      case "authorization_denied":
        this.spans.push({ lane: tool, kind: "denied", label: `${tool} denied`, from: time, to: time, state: "bad", seq: frame.seq ?? 0, subject: call, row: 0 });
        break;
      case "child_event":
        // A child's steps and calls belong to the child's own timeline. Its approvals also block
        // this run.
        this.applyChildEvent(fromFlat(object(body.event)), frame);
        break;
      case "waiting_for_approval":
        this.startSpan(approval, frame, { lane: APPROVALS_LANE, kind: "approval", label: text(object(body.plan).purpose) || "approval" }, time);
        break;
      case "approval_decided":
        if (body.closed === true) this.endSpan(approval, time, "good");
        break;
      case "approval_expired":
      case "approval_cancelled":
        this.endSpan(approval, time, "warn");
        break;
      case "done":
      case "error":
        for (const key of [...this.openSpans.keys()]) this.endSpan(key, time, "warn");
        this.to = time;
        this.outcome = frame.type === "error" ? "failed" : text(body.outcome);
        break;
      default:
        break;
    }
  }

  private applyChildEvent(inner: Frame, { seq }: Frame): void {
    if (/^(waiting_for_approval|approval_)/.test(inner.type)) this.apply({ ...inner, seq });
  }

  private startSpan(key: string, frame: Frame, description: Pick<Span, "lane" | "kind" | "label">, time: number): void {
    const span: Span = { ...description, from: time, to: null, state: "open", seq: frame.seq ?? 0, subject: key, row: 0 };
    this.openSpans.set(key, span);
    this.spans.push(span);
  }

  private endSpan(key: string, time: number, state: SpanState): void {
    const span = this.openSpans.get(key);
    if (!span) return;
    span.to = time;
    span.state = span.kind === "backoff" ? "warn" : state;
    this.openSpans.delete(key);
  }
}
