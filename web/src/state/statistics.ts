/** What events add up to: tokens over time, how calls end, how long things take. Pure. */

import type { Frame, Json, JsonObject, Usage } from "../api/types";

export interface ToolFigures {
  tool: string;
  calls: number;
  completed: number;
  failed: number;
  denied: number;
  /** Rejected, not answered in time, or cancelled. */
  refused: number;
  retries: number;
  asked: number;
  /** Milliseconds from the first attempt to the end. */
  p50: number | null;
  p95: number | null;
}

export interface Bucket {
  /** Seconds since 1970. */
  at: number;
  input: number;
  output: number;
  completed: number;
  failed: number;
  denied: number;
  refused: number;
  /** Median milliseconds of a step. */
  step: number | null;
}

export interface Figures {
  runs: number;
  failedRuns: number;
  usage: { input: number; output: number; cached: number; cost: number; unpriced: boolean };
  calls: number;
  failed: number;
  denied: number;
  retries: number;
  asked: number;
  approved: number;
  rejected: number;
  expired: number;
  steps: { p50: number | null; p95: number | null };
  waits: { p50: number | null; p95: number | null };
  tools: ToolFigures[];
  buckets: Bucket[];
}

const text = (value: Json | undefined) => (typeof value === "string" ? value : "");
const object = (value: Json | undefined): JsonObject =>
  value !== null && typeof value === "object" && !Array.isArray(value) ? value : {};

export function percentile(values: number[], share: number): number | null {
  if (!values.length) return null;
  const sorted = [...values].sort((one, other) => one - other);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))]!;
}

/** Widths of a bucket, in seconds. */
const WIDTHS = [1, 5, 10, 30, 60, 300, 600, 1800, 3600, 4 * 3600, 86_400];
const BUCKETS_MAX = 60;

/** Ends that say nothing of the tool. */
const BY_PEOPLE = new Set(["rejected", "expired", "cancelled"]);

interface Draft extends Omit<Bucket, "step"> {
  steps: number[];
}

export function figuresOf(frames: Frame[]): Figures {
  const sum = new Sum(frames);
  for (const frame of frames) sum.take(frame);
  return sum.figures();
}

class Sum {
  private readonly width: number;
  private readonly buckets = new Map<number, Draft>();
  private readonly tools = new Map<string, ToolFigures & { times: number[] }>();
  private readonly calls = new Map<string, { tool: string; at: number | null }>();
  private readonly stepAt = new Map<string, number>();
  private readonly asked = new Map<string, number>();
  private readonly times = { steps: [] as number[], waits: [] as number[] };
  private readonly total = {
    runs: 0, failedRuns: 0, calls: 0, failed: 0, denied: 0, retries: 0, asked: 0, approved: 0, rejected: 0, expired: 0,
  };
  private readonly usage = { input: 0, output: 0, cached: 0, cost: 0, unpriced: false };

  constructor(frames: Frame[]) {
    let [first, last] = [Infinity, -Infinity];
    for (const frame of frames) {
      const at = Date.parse(frame.at);
      first = Math.min(first, at);
      last = Math.max(last, at);
    }
    const stretch = Math.max(0, (last - first) / 1000);
    this.width = WIDTHS.find((width) => stretch / width <= BUCKETS_MAX) ?? WIDTHS.at(-1)!;
  }

  take(frame: Frame): void {
    const at = Date.parse(frame.at);
    const { body } = frame;
    const run = frame.run_id ?? "";
    const call = text(body.call_id);
    switch (frame.type) {
      case "done":
      case "error":
        this.total.runs += 1;
        if (frame.type === "error") this.total.failedRuns += 1;
        break;
      case "thinking":
      case "step_started":
        this.stepAt.set(run, at);
        break;
      case "step_completed":
        this.stepCompleted(frame, run, at);
        break;
      case "tool_call_started":
        this.calls.set(call, { tool: text(body.tool), at: null });
        this.total.calls += 1;
        this.tool(call).calls += 1;
        break;
      case "tool_call_attempt_started": {
        const known = this.calls.get(call);
        if (known && known.at === null) known.at = at;
        break;
      }
      case "tool_call_retrying":
        this.total.retries += 1;
        this.tool(call).retries += 1;
        break;
      case "tool_call_completed":
        this.ended(call, "completed", at);
        break;
      case "tool_call_failed":
        if (BY_PEOPLE.has(text(body.reason))) {
          this.ended(call, "refused", at);
          break;
        }
        this.total.failed += 1;
        this.ended(call, "failed", at);
        break;
      case "authorization_denied":
        this.total.denied += 1;
        this.ended(call, "denied", at);
        break;
      case "waiting_for_approval":
        this.asks(body, at);
        break;
      case "approval_decided":
        this.decided(body, at);
        break;
      case "approval_expired":
        this.total.expired += 1;
        break;
      default:
        break;
    }
  }

  private stepCompleted(frame: Frame, run: string, at: number): void {
    const used = object(frame.body.usage) as unknown as Partial<Usage>;
    const bucket = this.bucket(at);
    this.usage.input += used.input_tokens ?? 0;
    this.usage.output += used.output_tokens ?? 0;
    this.usage.cached += used.cached_tokens ?? 0;
    if (typeof used.cost_usd === "number") this.usage.cost += used.cost_usd;
    else this.usage.unpriced = true;
    bucket.input += used.input_tokens ?? 0;
    bucket.output += used.output_tokens ?? 0;
    const from = this.stepAt.get(run);
    if (from === undefined) return;
    this.times.steps.push(at - from);
    bucket.steps.push(at - from);
  }

  private asks(body: JsonObject, at: number): void {
    const plan = object(body.plan);
    this.total.asked += 1;
    this.asked.set(text(body.approval_id), at);
    const steps = Array.isArray(plan.steps) ? plan.steps : [];
    for (const step of steps) {
      const call = text(object(step).call_id);
      if (call) this.tool(call).asked += 1;
    }
  }

  private decided(body: JsonObject, at: number): void {
    const steps = Array.isArray(body.steps) ? body.steps.map(object) : [];
    this.total.approved += steps.filter((step) => step.approved === true).length;
    this.total.rejected += steps.filter((step) => step.approved === false).length;
    const from = this.asked.get(text(body.approval_id));
    if (from !== undefined && body.closed === true) this.times.waits.push(at - from);
  }

  private ended(call: string, how: "completed" | "failed" | "denied" | "refused", at: number): void {
    const tool = this.tool(call);
    tool[how] += 1;
    this.bucket(at)[how] += 1;
    const from = this.calls.get(call)?.at;
    if (typeof from === "number") tool.times.push(at - from);
  }

  private tool(call: string): ToolFigures & { times: number[] } {
    const name = this.calls.get(call)?.tool ?? "";
    let found = this.tools.get(name);
    if (!found) {
      found = { tool: name, calls: 0, completed: 0, failed: 0, denied: 0, refused: 0, retries: 0, asked: 0, p50: null, p95: null, times: [] };
      this.tools.set(name, found);
    }
    return found;
  }

  private bucket(ms: number): Draft {
    const at = Math.floor(ms / 1000 / this.width) * this.width;
    let found = this.buckets.get(at);
    if (!found) this.buckets.set(at, (found = { at, input: 0, output: 0, completed: 0, failed: 0, denied: 0, refused: 0, steps: [] }));
    return found;
  }

  figures(): Figures {
    const spread = (values: number[]) => ({ p50: percentile(values, 0.5), p95: percentile(values, 0.95) });
    const tools = [...this.tools.values()].filter((tool) => tool.tool)
      .map(({ times, ...tool }) => ({ ...tool, ...spread(times) }))
      .sort((one, other) => other.calls - one.calls);
    const buckets = [...this.buckets.values()].sort((one, other) => one.at - other.at)
      .map(({ steps, ...bucket }) => ({ ...bucket, step: percentile(steps, 0.5) }));
    return {
      ...this.total, usage: this.usage, tools, buckets,
      steps: spread(this.times.steps), waits: spread(this.times.waits),
    };
  }
}
