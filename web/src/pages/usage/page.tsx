/** What it takes, and how well it goes: of agents, models, tools and people, as the server counts. */

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
import { everyBucket, type Totals, computeTotals } from "./totals";

const PERIODS = { hour: 3_600_000, day: 86_400_000, week: 7 * 86_400_000, all: 0 };
type Period = keyof typeof PERIODS;
/** Between two looks; the server counts anew for each. */
const RELOAD_INTERVAL_MS = 30_000;

export function UsagePage() {
  const [stretch, setStretch] = useState<Period>("day");
  const { value, problem, reload } = useLoad(
    () => client.statistics({ since: PERIODS[stretch] ? new Date(Date.now() - PERIODS[stretch]).toISOString() : undefined, sessions: 500 }), [stretch], RELOAD_INTERVAL_MS);
  return (
    <div class="page">
      <header class="room-head">
        <h1>Usage and quality</h1>
        <SegmentedControl label="Since when" value={stretch} onChange={setStretch} options={[
          { value: "hour", label: "Hour" }, { value: "day", label: "Day" }, { value: "week", label: "Week" }, { value: "all", label: "All" },
        ]} />
      </header>
      <div class="page-body" tabIndex={0} role="region" aria-label="Usage and quality">
        {problem && <ErrorNotice problem={problem} retry={reload} />}
        {!value && !problem && <Loading what="figures" lines={8} />}
        {value && (value.timeline.buckets.length
          ? <StatisticsView statistics={value} />
          : <EmptyState icon="usage" title="Nothing to count">{stretch === "all" ? "Figures appear with the first run." : <button type="button" class="text-button" onClick={() => setStretch("all")}>Look further back</button>}</EmptyState>)}
      </div>
    </div>
  );
}

const share = (part: number, whole: number) => (whole ? `${Math.round((part / whole) * 100)} %` : "–");

function StatisticsView({ statistics }: { statistics: Statistics }) {
  const sums = useMemo(() => computeTotals(statistics), [statistics]);
  const { looked_at } = statistics;
  return (
    <>
      <Tiles sums={sums} statistics={statistics} />
      <Charts statistics={statistics} sums={sums} />
      <AgentStatisticsTable title="By agent" figures={statistics.agents} />
      {Object.keys(statistics.workflows).length > 0 && <AgentStatisticsTable title="By workflow" figures={statistics.workflows} />}
      <ModelStatisticsTable figures={statistics.models} />
      <ToolStatisticsTable figures={statistics.tools} />
      <ApprovalStatisticsTable figures={statistics.approvals} />
      <p class="hint under">Counted from {pluralize(looked_at.events, "event")} of {looked_at.complete ? "all" : "the newest"} {pluralize(looked_at.sessions, "session")}
        {looked_at.since && <>, the oldest begun <RelativeTime at={looked_at.since} /></>}. The whole server’s counters are at <a href="/metrics">/metrics</a>.</p>
    </>
  );
}

function Tiles({ sums, statistics }: { sums: Totals; statistics: Statistics }) {
  const { usage } = sums;
  const steps = longest(Object.values(statistics.models).map((one) => one.step_ms));
  const waits = longest(Object.values(statistics.approvals).map((one) => one.wait_ms));
  return (
    <ul class="tiles">
      <Tile label="Runs" value={formatNumber(sums.runs)} more={`${share(sums.failed, sums.runs)} failed · ${pluralize(sums.steps, "step")}`} />
      <Tile label="Tokens" value={formatCompact(usage.input_tokens + usage.output_tokens)} more={`${formatCompact(usage.input_tokens)} in · ${formatCompact(usage.output_tokens)} out`} />
      <Tile label="Cost" value={usage.cost_usd === null ? "–" : formatMoney(usage.cost_usd)} more={usage.cost_usd === null ? "some price is not configured" : sums.runs ? `${formatMoney(usage.cost_usd / sums.runs)} a run` : "nothing yet"} />
      <Tile label="Calls" value={formatNumber(sums.calls)} more={`${share(sums.callsFailed, sums.calls)} failed · ${share(sums.callsDenied, sums.calls)} denied`} />
      <Tile label="Approved" value={share(sums.approved, sums.approved + sums.rejected)} more={`${formatNumber(sums.asked)} asked · ${formatNumber(sums.expired)} expired`} />
      <Tile label="A step takes" value={formatOptionalDuration(steps?.p50)} more={`p95 ${formatOptionalDuration(steps?.p95)}`} />
      <Tile label="People take" value={formatOptionalDuration(waits?.p50)} more={waits?.count ? `p95 ${formatOptionalDuration(waits.p95)} to answer` : "nobody has answered yet"} />
      <Tile label="Rated" value={sums.rating === null ? "–" : formatNumber(Math.round(sums.rating * 10) / 10)} more={sums.rating === null ? "nobody has said yet" : `of 5 · ${pluralize(sums.stars.reduce((one, other) => one + other, 0), "rating")}`} />
    </ul>
  );
}

const formatOptionalDuration = (ms: number | null | undefined) => (ms === null || ms === undefined ? "–" : formatDuration(ms));

/** Of several, that of which there is the most: percentiles don't add up. */
function longest(times: Statistics["models"][string]["step_ms"][]) {
  return times.reduce((most, one) => (most && most.count >= one.count ? most : one), undefined as (typeof times)[number] | undefined);
}

function Tile({ label, value, more }: { label: string; value: string; more: string }) {
  return <li class="tile"><span class="tile-label">{label}</span><strong class="numbers">{value}</strong><small>{more}</small></li>;
}

function Charts({ statistics, sums }: { statistics: Statistics; sums: Totals }) {
  const { at, tokens, cost, calls, runs, retries, steps } = useMemo(() => {
    const { at, of } = everyBucket(statistics.timeline);
    type One = (typeof of)[number];
    const values = (figure: (bucket: NonNullable<One>) => number | null, none: number | null = 0) => of.map((bucket) => (bucket ? figure(bucket) : none));
    return {
      at,
      tokens: [
        { label: "output", colour: "accent", values: values((one) => one.usage.output_tokens) },
        { label: "input", colour: "info", values: values((one) => one.usage.input_tokens) },
      ],
      cost: [{ label: "US dollars", colour: "violet", values: values((one) => one.usage.cost_usd) }],
      calls: [
        { label: "denied", colour: "violet", values: values((one) => one.calls.denied) },
        { label: "not approved", colour: "warn", values: values((one) => one.calls.refused) },
        { label: "failed", colour: "bad", values: values((one) => one.calls.failed) },
        { label: "completed", colour: "good", values: values((one) => one.calls.completed) },
      ],
      runs: [
        { label: "cancelled", colour: "warn", values: values((one) => one.runs.cancelled) },
        { label: "failed", colour: "bad", values: values((one) => one.runs.failed) },
        { label: "completed", colour: "good", values: values((one) => one.runs.completed) },
      ],
      retries: [{ label: "of steps and calls", colour: "warn", values: values((one) => one.retries) }],
      steps: [
        { label: "median", colour: "info", values: values((one) => one.step_ms.p50, null) },
        { label: "95th percentile", colour: "warn", values: values((one) => one.step_ms.p95, null) },
      ],
    };
  }, [statistics]);
  const isPriced = cost[0]!.values.some((value) => value);
  return (
    <div class="charts">
      <Chart title="Tokens" at={at} series={tokens} said={formatCompact} whole />
      {isPriced && <Chart title="Cost" at={at} series={cost} said={formatMoney} />}
      <Chart title="How runs end" at={at} series={runs} said={formatCompact} whole />
      <Chart title="How calls end" at={at} series={calls} said={formatCompact} whole />
      <Chart title="How long a step takes" at={at} series={steps} said={formatDuration} bars={false} />
      {sums.retries > 0 && <Chart title="Retries" at={at} series={retries} said={formatCompact} whole />}
      {sums.rating !== null && <Ratings stars={sums.stars} />}
    </div>
  );
}

/** How often each number of stars was given. */
function Ratings({ stars }: { stars: number[] }) {
  const most = Math.max(...stars);
  return (
    <figure class="chart">
      <figcaption><h2>Ratings</h2></figcaption>
      <dl class="rating-bars">
        {stars.map((count, at) => (
          <div key={at}><dt>{at + 1} <span class="sr-only">{at ? "stars" : "star"}</span><Icon name="star" size={13} /></dt>
            <dd><i class="fill-warn" aria-hidden="true" ref={(bar) => { if (bar) bar.style.width = `${(count / most) * 100}%`; }} /></dd><dd class="numbers">{formatNumber(count)}</dd></div>
        )).reverse()}
      </dl>
    </figure>
  );
}
