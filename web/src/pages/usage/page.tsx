/** The usage page: statistics of agents, models, tools and approvals. */

import { useMemo, useState } from "preact/hooks";
import { client } from "../../api/client";
import type { Statistics } from "../../api/types";
import { Chart } from "../../components/chart";
import { Icon } from "../../components/icon";
import { RelativeTime } from "../../components/time";
import { EmptyState, ErrorNotice, Loading, SegmentedControl } from "../../components/ui";
import { useLoad } from "../../components/use_load";
import { formatCompact, pluralize, formatDuration, formatMoney, formatNumber } from "../../components/format";
import { AgentStatisticsTable, ModelStatisticsTable, ApprovalStatisticsTable, ToolStatisticsTable } from "./tables";
import { fillTimeline, type Totals, computeTotals } from "./totals";

const PERIODS = { hour: 3_600_000, day: 86_400_000, week: 7 * 86_400_000, all: 0 };
type Period = keyof typeof PERIODS;
/** The interval between two reloads. The server computes the statistics for each request. */
const RELOAD_INTERVAL_MS = 30_000;

/** The page with usage and quality statistics. */
export function UsagePage() {
  const [period, setPeriod] = useState<Period>("day");
  const { value, problem, reload } = useLoad(
    () => client.getStatistics({ since: PERIODS[period] ? new Date(Date.now() - PERIODS[period]).toISOString() : undefined, sessions: 500 }), [period], RELOAD_INTERVAL_MS);
  return (
    <div class="page">
      <header class="page-head">
        <h1>Usage and quality</h1>
        <SegmentedControl label="Period" value={period} onChange={setPeriod} options={[
          { value: "hour", label: "Hour" }, { value: "day", label: "Day" }, { value: "week", label: "Week" }, { value: "all", label: "All" },
        ]} />
      </header>
      <div class="page-body" tabIndex={0} role="region" aria-label="Usage and quality">
        {problem && <ErrorNotice problem={problem} onRetry={reload} />}
        {!value && !problem && <Loading subject="statistics" lines={8} />}
        {value && (value.timeline.buckets.length
          ? <StatisticsView statistics={value} />
          : <EmptyState icon="usage" title="No data">{period === "all" ? "Statistics appear after the first run." : <button type="button" class="text-button" onClick={() => setPeriod("all")}>Show all</button>}</EmptyState>)}
      </div>
    </div>
  );
}

const formatShare = (part: number, total: number) => (total ? `${Math.round((part / total) * 100)} %` : "–");

function StatisticsView({ statistics }: { statistics: Statistics }) {
  const totals = useMemo(() => computeTotals(statistics), [statistics]);
  const { looked_at } = statistics;
  return (
    <>
      <Tiles totals={totals} statistics={statistics} />
      <Charts statistics={statistics} totals={totals} />
      <AgentStatisticsTable title="By agent" statistics={statistics.agents} />
      {Object.keys(statistics.workflows).length > 0 && <AgentStatisticsTable title="By workflow" statistics={statistics.workflows} />}
      <ModelStatisticsTable statistics={statistics.models} />
      <ToolStatisticsTable statistics={statistics.tools} />
      <ApprovalStatisticsTable statistics={statistics.approvals} />
      <p class="hint section-heading">Based on {pluralize(looked_at.events, "event")} of {looked_at.complete ? "all" : "the newest"} {pluralize(looked_at.sessions, "session")}
        {looked_at.since && <>, the oldest created <RelativeTime timestamp={looked_at.since} /></>}. Server-wide metrics: <a href="/metrics">/metrics</a>.</p>
    </>
  );
}

function Tiles({ totals, statistics }: { totals: Totals; statistics: Statistics }) {
  const { usage } = totals;
  const stepDurations = largestSummary(Object.values(statistics.models).map((item) => item.step_ms));
  const waitDurations = largestSummary(Object.values(statistics.approvals).map((item) => item.wait_ms));
  return (
    <ul class="tiles">
      <Tile label="Runs" value={formatNumber(totals.runs)} detail={`${formatShare(totals.failed, totals.runs)} failed · ${pluralize(totals.steps, "step")}`} />
      <Tile label="Tokens" value={formatCompact(usage.input_tokens + usage.output_tokens)} detail={`${formatCompact(usage.input_tokens)} in · ${formatCompact(usage.output_tokens)} out`} />
      <Tile label="Cost" value={usage.cost_usd === null ? "unknown" : formatMoney(usage.cost_usd)} detail={usage.cost_usd === null ? (usage.estimated ? "a provider did not report its usage" : "price not configured") : totals.runs ? `${formatMoney(usage.cost_usd / totals.runs)} per run` : "no runs yet"} />
      <Tile label="Calls" value={formatNumber(totals.calls)} detail={`${formatShare(totals.callsFailed, totals.calls)} failed · ${formatShare(totals.callsDenied, totals.calls)} denied`} />
      <Tile label="Approved" value={formatShare(totals.approved, totals.approved + totals.rejected)} detail={`${formatNumber(totals.asked)} requested · ${formatNumber(totals.expired)} expired`} />
      <Tile label="Step duration" value={formatOptionalDuration(stepDurations?.p50)} detail={`p95 ${formatOptionalDuration(stepDurations?.p95)}`} />
      <Tile label="Approval wait" value={formatOptionalDuration(waitDurations?.p50)} detail={waitDurations?.count ? `p95 ${formatOptionalDuration(waitDurations.p95)}` : "no answers yet"} />
      <Tile label="Rating" value={totals.rating === null ? "–" : formatNumber(Math.round(totals.rating * 10) / 10)} detail={totals.rating === null ? "no ratings yet" : `of 5 · ${pluralize(totals.stars.reduce((sum, count) => sum + count, 0), "rating")}`} />
    </ul>
  );
}

const formatOptionalDuration = (ms: number | null | undefined) => (ms === null || ms === undefined ? "–" : formatDuration(ms));

/**
 * Returns the summary with the highest count. Percentiles of several summaries cannot be combined.
 */
function largestSummary(summaries: Statistics["models"][string]["step_ms"][]) {
  return summaries.reduce((largest, item) => (largest && largest.count >= item.count ? largest : item), undefined as (typeof summaries)[number] | undefined);
}

function Tile({ label, value, detail }: { label: string; value: string; detail: string }) {
  return <li class="tile"><span class="tile-label">{label}</span><strong class="numbers">{value}</strong><small>{detail}</small></li>;
}

function Charts({ statistics, totals }: { statistics: Statistics; totals: Totals }) {
  const { times, tokens, cost, calls, runs, retries, steps } = useMemo(() => {
    const { times, buckets } = fillTimeline(statistics.timeline);
    type Bucket = (typeof buckets)[number];
    const values = (getValue: (bucket: NonNullable<Bucket>) => number | null, emptyValue: number | null = 0) => buckets.map((bucket) => (bucket ? getValue(bucket) : emptyValue));
    return {
      times,
      tokens: [
        { label: "output", colour: "accent", values: values((item) => item.usage.output_tokens) },
        { label: "input", colour: "info", values: values((item) => item.usage.input_tokens) },
      ],
      cost: [{ label: "US dollars", colour: "violet", values: values((item) => item.usage.cost_usd) }],
      calls: [
        { label: "denied", colour: "violet", values: values((item) => item.calls.denied) },
        { label: "not approved", colour: "warn", values: values((item) => item.calls.refused) },
        { label: "failed", colour: "bad", values: values((item) => item.calls.failed) },
        { label: "completed", colour: "good", values: values((item) => item.calls.completed) },
      ],
      runs: [
        { label: "cancelled", colour: "warn", values: values((item) => item.runs.cancelled) },
        { label: "failed", colour: "bad", values: values((item) => item.runs.failed) },
        { label: "completed", colour: "good", values: values((item) => item.runs.completed) },
      ],
      retries: [{ label: "steps and calls", colour: "warn", values: values((item) => item.retries) }],
      steps: [
        { label: "median", colour: "info", values: values((item) => item.step_ms.p50, null) },
        { label: "95th percentile", colour: "warn", values: values((item) => item.step_ms.p95, null) },
      ],
    };
  }, [statistics]);
  const hasCost = cost[0]!.values.some((value) => value);
  return (
    <div class="charts">
      <Chart title="Tokens" times={times} series={tokens} formatValue={formatCompact} integerAxis />
      {hasCost && <Chart title="Cost" times={times} series={cost} formatValue={formatMoney} />}
      <Chart title="Run outcomes" times={times} series={runs} formatValue={formatCompact} integerAxis />
      <Chart title="Call outcomes" times={times} series={calls} formatValue={formatCompact} integerAxis />
      <Chart title="Step duration" times={times} series={steps} formatValue={formatDuration} bars={false} />
      {totals.retries > 0 && <Chart title="Retries" times={times} series={retries} formatValue={formatCompact} integerAxis />}
      {totals.rating !== null && <Ratings stars={totals.stars} />}
    </div>
  );
}

/** The number of ratings for each number of stars. */
function Ratings({ stars }: { stars: number[] }) {
  const largest = Math.max(...stars);
  return (
    <figure class="chart">
      <figcaption><h2>Ratings</h2></figcaption>
      <dl class="rating-bars">
        {stars.map((count, index) => (
          <div key={index}><dt>{index + 1} <span class="sr-only">{index ? "stars" : "star"}</span><Icon name="star" size={13} /></dt>
            <dd><i class="fill-warn" aria-hidden="true" ref={(bar) => { if (bar) bar.style.width = `${(count / largest) * 100}%`; }} /></dd><dd class="numbers">{formatNumber(count)}</dd></div>
        )).reverse()}
      </dl>
    </figure>
  );
}
