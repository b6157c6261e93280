/** Totals of the statistics. Pure. */

import type { Statistics, Usage } from "../../api/types";
import { addUsage, NO_USAGE } from "../../state/session_view";

/** The totals over all agents, tools and approval kinds. */
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
  /** The number of ratings for each number of stars, and the average rating. */
  stars: number[];
  rating: number | null;
}

/** Adds up the statistics. */
export function computeTotals({ agents, tools, approvals }: Statistics): Totals {
  const [runs, calls, approvalStatistics] = [Object.values(agents), Object.values(tools), Object.values(approvals)];
  const sum = <T>(items: T[], getValue: (item: T) => number) => items.reduce((total, item) => total + getValue(item), 0);
  const stars = [0, 1, 2, 3, 4].map((index) => sum(runs, (item) => item.rating.stars[index] ?? 0));
  const ratings = sum(stars, (count) => count);
  return {
    runs: sum(runs, (item) => item.runs),
    failed: sum(runs, (item) => item.failed),
    steps: sum(runs, (item) => item.steps),
    usage: runs.map((item) => item.usage).reduce(addUsage, NO_USAGE),
    calls: sum(calls, (item) => item.calls),
    callsFailed: sum(calls, (item) => item.failed),
    callsDenied: sum(calls, (item) => item.denied),
    retries: sum(calls, (item) => item.retries) + sum(runs, (item) => item.step_retries),
    asked: sum(approvalStatistics, (item) => item.asked),
    decided: sum(approvalStatistics, (item) => item.decided),
    expired: sum(approvalStatistics, (item) => item.expired),
    approved: sum(calls, (item) => item.approved),
    rejected: sum(calls, (item) => item.rejected),
    stars,
    rating: ratings ? stars.reduce((total, count, index) => total + count * (index + 1), 0) / ratings : null,
  };
}

/** Returns the buckets of the whole timeline without gaps; null where nothing happened. */
export function fillTimeline({ width_s, buckets: knownBuckets }: Statistics["timeline"]): { times: number[]; buckets: (Statistics["timeline"]["buckets"][number] | null)[] } {
  const known = new Map(knownBuckets.map((bucket) => [Math.round(Date.parse(bucket.at) / 1000), bucket]));
  const [first, last] = [Math.min(...known.keys()), Math.max(...known.keys())];
  const times = known.size ? Array.from({ length: Math.round((last - first) / width_s) + 1 }, (_, step) => first + step * width_s) : [];
  return { times, buckets: times.map((second) => known.get(second) ?? null) };
}
