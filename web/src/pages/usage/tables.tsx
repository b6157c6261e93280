/** Statistics tables of agents, workflows, models, tools and approvals. */

import type { ComponentChildren } from "preact";
import type { ModelStatistics, ApprovalKindStatistics, RunStatistics, DurationSummary, ToolStatistics } from "../../api/types";
import { Badge } from "../../components/ui";
import { escapeUnsafe } from "../../components/escaped_text";
import { formatCompact, formatDuration, formatMoney, formatNumber } from "../../components/format";
import { CALL_RATINGS } from "../../components/call_ratings";

const formatMs = (value: number | null) => (value === null ? "–" : formatDuration(value));

/** Statistics of runs, by agent or workflow. */
export function AgentStatisticsTable({ title, statistics }: { title: string; statistics: Record<string, RunStatistics> }) {
  return (
    <StatisticsTable title={title} rowHeader={title.replace("By ", "")} columns={["Runs", "Failed", "Cancelled", "Steps", "Retries", "Tokens", "Cost", "p50", "p95", "Rating"]}>
      {sortByCount(statistics, (item) => item.runs).map(([name, item]) => (
        <StatisticsRow key={name} name={name} values={[
          formatNumber(item.runs), <Rate value={item.failure_rate} tone="bad" />, formatNumber(item.cancelled), formatNumber(item.steps), formatNumber(item.step_retries),
          formatCompact(item.usage.input_tokens + item.usage.output_tokens), formatCost(item.usage.cost_usd), ...percentiles(item.run_ms), <RatingCell rating={item.rating} />,
        ]} />
      ))}
    </StatisticsTable>
  );
}

/** Statistics of steps, by model. */
export function ModelStatisticsTable({ statistics }: { statistics: Record<string, ModelStatistics> }) {
  return (
    <StatisticsTable title="By model" rowHeader="model" columns={["Steps", "Failed", "Tokens in", "Cached in", "Tokens out", "Cost", "p50", "p95"]}>
      {sortByCount(statistics, (item) => item.steps).map(([name, item]) => (
        <StatisticsRow key={name} name={name} values={[
          formatNumber(item.steps), <Rate value={item.failure_rate} tone="bad" />, formatCompact(item.usage.input_tokens), formatCompact(item.usage.cached_tokens), formatCompact(item.usage.output_tokens),
          formatCost(item.usage.cost_usd), ...percentiles(item.step_ms),
        ]} />
      ))}
    </StatisticsTable>
  );
}

/** Statistics of calls, by tool. */
export function ToolStatisticsTable({ statistics }: { statistics: Record<string, ToolStatistics> }) {
  return (
    <StatisticsTable title="By tool" rowHeader="tool" columns={["Calls", "Failed", "Denied", "Not approved", "Retries", "Requested", "Approved", "p50", "p95", "Ratings"]}>
      {sortByCount(statistics, (item) => item.calls).map(([name, item]) => (
        <StatisticsRow key={name} name={escapeUnsafe(name)} values={[
          formatNumber(item.calls), <Rate value={item.failure_rate} tone="bad" />, <Rate value={item.denial_rate} tone="violet" />, formatNumber(item.refused), formatNumber(item.retries),
          formatNumber(item.asked), <Rate value={item.approval_rate} tone="good" />, ...percentiles(item.call_ms), <CallRatingsCell ratings={item.verdicts} />,
        ]} />
      ))}
    </StatisticsTable>
  );
}

const KINDS: Record<string, string> = {
  plan: "plans", preflight: "preflight plans", budget: "budgets", unknown_outcome: "unknown outcomes", elicitation: "tool input",
};

/** Statistics of approvals, by kind. */
export function ApprovalStatisticsTable({ statistics }: { statistics: Record<string, ApprovalKindStatistics> }) {
  if (!Object.keys(statistics).length) return null;
  return (
    <StatisticsTable title="Approvals by kind" rowHeader="kind" columns={["Requested", "Answered", "Expired", "Cancelled", "p50", "p95"]}>
      {sortByCount(statistics, (item) => item.asked).map(([name, item]) => (
        <StatisticsRow key={name} name={KINDS[name] ?? name} isCode={false} values={[formatNumber(item.asked), formatNumber(item.decided), formatNumber(item.expired), formatNumber(item.cancelled), ...percentiles(item.wait_ms)]} />
      ))}
    </StatisticsTable>
  );
}

const percentiles = (summary: DurationSummary) => [formatMs(summary.p50), formatMs(summary.p95)];
const formatCost = (usd: number | null) => (usd === null ? <span title="A price is not configured, or a provider did not report its usage">unknown</span> : formatMoney(usd));
const sortByCount = <T,>(statistics: Record<string, T>, getCount: (item: T) => number) => Object.entries(statistics).sort(([, a], [, b]) => getCount(b) - getCount(a));

function StatisticsTable({ title, rowHeader, columns, children }: { title: string; rowHeader: string; columns: string[]; children: ComponentChildren }) {
  return (
    <section>
      <h2 class="section-heading">{title}</h2>
      <div class="table-frame" tabIndex={0} role="region" aria-label={title}>
        <table class="table figures">
          <thead><tr><th scope="col">{rowHeader[0]!.toUpperCase() + rowHeader.slice(1)}</th>{columns.map((column) => <th key={column} scope="col" class="right">{column}</th>)}</tr></thead>
          <tbody>{children}</tbody>
        </table>
      </div>
    </section>
  );
}

function StatisticsRow({ name, values, isCode = true }: { name: string; values: ComponentChildren[]; isCode?: boolean }) {
  return <tr><th scope="row">{isCode ? <code>{name}</code> : name}</th>{values.map((value, index) => <td key={index} class="right numbers">{value}</td>)}</tr>;
}

/** A rate in percent with a bar. */
function Rate({ value, tone }: { value: number | null; tone: "good" | "bad" | "violet" }) {
  if (value === null) return <>–</>;
  return (
    <span class="rate">{Math.round(value * 100)} %
      <i class={`fill-${tone}`} aria-hidden="true" ref={(bar) => { if (bar) bar.style.width = `${value * 40}px`; }} /></span>
  );
}

function RatingCell({ rating }: { rating: RunStatistics["rating"] }) {
  if (rating.average === null) return <>–</>;
  const counts = rating.stars.map((count, index) => `${count} × ${index + 1}`).reverse().join(", ");
  return <span title={`${counts} stars`}>{formatNumber(Math.round(rating.average * 10) / 10)} <small class="hint">({formatNumber(rating.count)})</small></span>;
}

function CallRatingsCell({ ratings }: { ratings: ToolStatistics["verdicts"] }) {
  const givenRatings = (Object.keys(CALL_RATINGS) as (keyof typeof CALL_RATINGS)[]).filter((verdict) => ratings[verdict] > 0);
  if (!givenRatings.length) return <>–</>;
  return <span class="verdict-counts">{givenRatings.map((verdict) => <Badge key={verdict} tone={CALL_RATINGS[verdict].tone} title={CALL_RATINGS[verdict].title}>{ratings[verdict]} {CALL_RATINGS[verdict].label.toLowerCase()}</Badge>)}</span>;
}
