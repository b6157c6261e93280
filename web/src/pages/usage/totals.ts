/** What the figures of several add up to. Pure. */

import type { Statistics, Usage } from "../../api/types";
import { addUsage, NO_USAGE } from "../../state/session_view";

export interface Totals {
  runs: number;
  failed: number;
  steps: number;
  usage: Usage;
  calls: number;
  callsFailed: number;
  callsDenied: number;
  retries: number;
  asked: number;
  decided: number;
  expired: number;
  approved: number;
  rejected: number;
  /** How often each number of stars was given, and what they are on average. */
  stars: number[];
  rating: number | null;
}

export function computeTotals({ agents, tools, approvals }: Statistics): Totals {
  const [runs, calls, questions] = [Object.values(agents), Object.values(tools), Object.values(approvals)];
  const sum = <T>(of: T[], figure: (one: T) => number) => of.reduce((total, one) => total + figure(one), 0);
  const stars = [0, 1, 2, 3, 4].map((at) => sum(runs, (one) => one.rating.stars[at] ?? 0));
  const ratings = sum(stars, (count) => count);
  return {
    runs: sum(runs, (one) => one.runs),
    failed: sum(runs, (one) => one.failed),
    steps: sum(runs, (one) => one.steps),
    usage: runs.map((one) => one.usage).reduce(addUsage, NO_USAGE),
    calls: sum(calls, (one) => one.calls),
    callsFailed: sum(calls, (one) => one.failed),
    callsDenied: sum(calls, (one) => one.denied),
    retries: sum(calls, (one) => one.retries) + sum(runs, (one) => one.step_retries),
    asked: sum(questions, (one) => one.asked),
    decided: sum(questions, (one) => one.decided),
    expired: sum(questions, (one) => one.expired),
    approved: sum(calls, (one) => one.approved),
    rejected: sum(calls, (one) => one.rejected),
    stars,
    rating: ratings ? stars.reduce((total, count, at) => total + count * (at + 1), 0) / ratings : null,
  };
}

/** Every bucket from the first to the last, also those in which nothing happened. */
export function everyBucket({ width_s, buckets }: Statistics["timeline"]): { at: number[]; of: (Statistics["timeline"]["buckets"][number] | null)[] } {
  const known = new Map(buckets.map((bucket) => [Math.round(Date.parse(bucket.at) / 1000), bucket]));
  const [first, last] = [Math.min(...known.keys()), Math.max(...known.keys())];
  const at = known.size ? Array.from({ length: Math.round((last - first) / width_s) + 1 }, (_, step) => first + step * width_s) : [];
  return { at, of: at.map((second) => known.get(second) ?? null) };
}
