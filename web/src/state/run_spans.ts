/** A run as spans in lanes: the model, each tool, and the people who were waited for. Pure. */

import { fromFlat } from "../api/frames";
import type { Frame, Json, JsonObject } from "../api/types";

export type SpanKind = "step" | "attempt" | "backoff" | "person" | "denied";
export type SpanState = "open" | "good" | "bad" | "warn";

export interface Span {
  lane: string;
  kind: SpanKind;
  label: string;
  from: number;
  /** Null while it lasts. */
  to: number | null;
  state: SpanState;
  seq: number;
  /** What it is a span of: a call, a question, or the model. */
  subject: string;
  /** The row of its lane: what overlaps stands beneath one another. */
  row: number;
}

export interface RunSpans {
  run_id: string;
  title: string;
  from: number;
  to: number | null;
  outcome: string | null;
  lanes: { name: string; rows: number }[];
  spans: Span[];
}

export const MODEL = "model";
export const PEOPLE = "people";

const text = (value: Json | undefined) => (typeof value === "string" ? value : "");
const object = (value: Json | undefined): JsonObject =>
  value !== null && typeof value === "object" && !Array.isArray(value) ? value : {};

/** The runs of a session, newest last. */
export function buildRuns(frames: Frame[]): RunSpans[] {
  const runs = new Map<string, RunSpansBuilder>();
  const said = new Map<string, string>();
  for (const frame of frames) {
    if (frame.type === "message_accepted") said.set(text(frame.body.message_id), text(frame.body.text));
    if (!frame.run_id) continue;
    let run = runs.get(frame.run_id);
    if (!run) {
      if (frame.type !== "run_started") continue;
      run = new RunSpansBuilder(frame.run_id, said.get(text(frame.body.message_id)) ?? "Run", Date.parse(frame.at));
      runs.set(frame.run_id, run);
    }
    run.apply(frame);
  }
  return [...runs.values()].map((run) => run.build());
}

/** Gives each call of a lane the first row that is free for all of its time; how many rows it takes. */
function inRows(spans: Span[]): number {
  const stretches = new Map<string, { from: number; to: number }>();
  for (const span of spans) {
    const known = stretches.get(span.subject);
    const to = span.to ?? Infinity;
    stretches.set(span.subject, { from: Math.min(known?.from ?? Infinity, span.from), to: Math.max(known?.to ?? -Infinity, to) });
  }
  const ends: number[] = [];
  const rows = new Map<string, number>();
  for (const [of, { from, to }] of [...stretches].sort(([, one], [, other]) => one.from - other.from)) {
    const free = ends.findIndex((end) => end <= from);
    const row = free < 0 ? ends.length : free;
    ends[row] = to;
    rows.set(of, row);
  }
  for (const span of spans) span.row = rows.get(span.subject) ?? 0;
  return Math.max(1, ends.length);
}

class RunSpansBuilder {
  private readonly spans: Span[] = [];
  private readonly open = new Map<string, Span>();
  private readonly tools = new Map<string, string>();
  private to: number | null = null;
  private outcome: string | null = null;

  constructor(private readonly run_id: string, private readonly title: string, private readonly from: number) {}

  build(): RunSpans {
    const { run_id, title, from, to, outcome, spans } = this;
    const tools = [...new Set(spans.map((span) => span.lane))].filter((lane) => lane !== MODEL && lane !== PEOPLE);
    const lanes = [MODEL, ...tools, PEOPLE].map((name) => ({ name, rows: inRows(spans.filter((span) => span.lane === name)) }));
    return { run_id, title, from, to, outcome, spans, lanes };
  }

  apply(frame: Frame): void {
    const at = Date.parse(frame.at);
    const { body } = frame;
    const call = text(body.call_id);
    const tool = this.tools.get(call) ?? text(body.tool);
    const question = text(body.approval_id) || text(body.plan_id);
    switch (frame.type) {
      case "thinking":
      case "step_started":
        this.endSpan(MODEL, at, "bad");
        this.startSpan(MODEL, frame, { lane: MODEL, kind: "step", label: body.planning ? "plan" : `step ${frame.step ?? ""}` }, at);
        break;
      case "step_completed":
        this.endSpan(MODEL, at, "good");
        break;
      case "step_retrying":
        this.endSpan(MODEL, at, "bad");
        this.startSpan(MODEL, frame, { lane: MODEL, kind: "backoff", label: "waits to ask again" }, at);
        break;
      case "tool_call_started":
        this.tools.set(call, text(body.tool));
        break;
      case "tool_call_attempt_started":
        this.endSpan(call, at, "warn");
        this.startSpan(call, frame, { lane: tool, kind: "attempt", label: Number(body.attempt) > 1 ? `${tool}, attempt ${String(body.attempt)}` : tool }, at);
        break;
      case "tool_call_retrying":
        this.endSpan(call, at, "bad");
        this.startSpan(call, frame, { lane: tool, kind: "backoff", label: "waits to try again" }, at);
        break;
      case "tool_call_completed":
        this.endSpan(call, at, "good");
        break;
      case "tool_call_failed":
        this.endSpan(call, at, "bad");
        break;
      case "authorization_denied":
        this.spans.push({ lane: tool, kind: "denied", label: `${tool} denied`, from: at, to: at, state: "bad", seq: frame.seq ?? 0, subject: call, row: 0 });
        break;
      case "child_event":
        // A child's steps and calls are its own; whom it waits for is whom this run waits for.
        this.takeChild(fromFlat(object(body.event)), frame);
        break;
      case "waiting_for_approval":
        this.startSpan(question, frame, { lane: PEOPLE, kind: "person", label: text(object(body.plan).purpose) || "asked" }, at);
        break;
      case "approval_decided":
        if (body.closed === true) this.endSpan(question, at, "good");
        break;
      case "approval_expired":
      case "approval_cancelled":
        this.endSpan(question, at, "warn");
        break;
      case "done":
      case "error":
        for (const key of [...this.open.keys()]) this.endSpan(key, at, "warn");
        this.to = at;
        this.outcome = frame.type === "error" ? "failed" : text(body.outcome);
        break;
      default:
        break;
    }
  }

  private takeChild(inner: Frame, { seq }: Frame): void {
    if (/^(waiting_for_approval|approval_)/.test(inner.type)) this.apply({ ...inner, seq });
  }

  private startSpan(key: string, frame: Frame, what: Pick<Span, "lane" | "kind" | "label">, at: number): void {
    const span: Span = { ...what, from: at, to: null, state: "open", seq: frame.seq ?? 0, subject: key, row: 0 };
    this.open.set(key, span);
    this.spans.push(span);
  }

  private endSpan(key: string, at: number, state: SpanState): void {
    const span = this.open.get(key);
    if (!span) return;
    span.to = at;
    span.state = span.kind === "backoff" ? "warn" : state;
    this.open.delete(key);
  }
}
