/** The figures of each agent, workflow, model and tool, and of the people who are asked. */

import type { ComponentChildren } from "preact";
import type { ModelFigures, ApprovalFigures, RunFigures, DurationSummary, ToolFigures } from "../../api/types";
import { Badge } from "../../components/ui";
import { escapeUnsafe } from "../../components/escaped_text";
import { formatCompact, formatDuration, formatMoney, formatNumber } from "../../components/format";
import { CALL_RATINGS } from "../../components/call_ratings";

const ms = (value: number | null) => (value === null ? "–" : formatDuration(value));

export function AgentStatisticsTable({ title, figures }: { title: string; figures: Record<string, RunFigures> }) {
  return (
    <Figures title={title} name={title.replace("By ", "")} heads={["Runs", "Failed", "Cancelled", "Steps", "Retries", "Tokens", "Cost", "p50", "p95", "Rated"]}>
      {sorted(figures, (one) => one.runs).map(([name, one]) => (
        <StatisticsRow key={name} name={name} figures={[
          formatNumber(one.runs), <Rate value={one.failure_rate} tone="bad" />, formatNumber(one.cancelled), formatNumber(one.steps), formatNumber(one.step_retries),
          formatCompact(one.usage.input_tokens + one.usage.output_tokens), price(one.usage.cost_usd), ...percentiles(one.run_ms), <RatingCell rating={one.rating} />,
        ]} />
      ))}
    </Figures>
  );
}

export function ModelStatisticsTable({ figures }: { figures: Record<string, ModelFigures> }) {
  return (
    <Figures title="By model" name="model" heads={["Steps", "Failed", "Tokens in", "of them cached", "Tokens out", "Cost", "p50", "p95"]}>
      {sorted(figures, (one) => one.steps).map(([name, one]) => (
        <StatisticsRow key={name} name={name} figures={[
          formatNumber(one.steps), <Rate value={one.failure_rate} tone="bad" />, formatCompact(one.usage.input_tokens), formatCompact(one.usage.cached_tokens), formatCompact(one.usage.output_tokens),
          price(one.usage.cost_usd), ...percentiles(one.step_ms),
        ]} />
      ))}
    </Figures>
  );
}

export function ToolStatisticsTable({ figures }: { figures: Record<string, ToolFigures> }) {
  return (
    <Figures title="By tool" name="tool" heads={["Calls", "Failed", "Denied", "Not approved", "Retries", "Asked", "Approved", "p50", "p95", "Verdicts"]}>
      {sorted(figures, (one) => one.calls).map(([name, one]) => (
        <StatisticsRow key={name} name={escapeUnsafe(name)} figures={[
          formatNumber(one.calls), <Rate value={one.failure_rate} tone="bad" />, <Rate value={one.denial_rate} tone="violet" />, formatNumber(one.refused), formatNumber(one.retries),
          formatNumber(one.asked), <Rate value={one.approval_rate} tone="good" />, ...percentiles(one.call_ms), <CallRatingsCell of={one.verdicts} />,
        ]} />
      ))}
    </Figures>
  );
}

const KINDS: Record<string, string> = {
  plan: "calls to approve", preflight: "plans before the work", budget: "budgets", unknown_outcome: "unknown outcomes", elicitation: "questions of tools",
};

export function ApprovalStatisticsTable({ figures }: { figures: Record<string, ApprovalFigures> }) {
  if (!Object.keys(figures).length) return null;
  return (
    <Figures title="What people were asked" name="kind" heads={["Asked", "Answered", "Expired", "Withdrawn", "p50", "p95"]}>
      {sorted(figures, (one) => one.asked).map(([name, one]) => (
        <StatisticsRow key={name} name={KINDS[name] ?? name} isCode={false} figures={[formatNumber(one.asked), formatNumber(one.decided), formatNumber(one.expired), formatNumber(one.cancelled), ...percentiles(one.wait_ms)]} />
      ))}
    </Figures>
  );
}

const percentiles = (times: DurationSummary) => [ms(times.p50), ms(times.p95)];
const price = (usd: number | null) => (usd === null ? <span title="Some price is not configured">–</span> : formatMoney(usd));
const sorted = <T,>(figures: Record<string, T>, by: (one: T) => number) => Object.entries(figures).sort(([, one], [, other]) => by(other) - by(one));

function Figures({ title, name, heads, children }: { title: string; name: string; heads: string[]; children: ComponentChildren }) {
  return (
    <section>
      <h2 class="under">{title}</h2>
      <div class="table-frame" tabIndex={0} role="region" aria-label={title}>
        <table class="table figures">
          <thead><tr><th scope="col">{name[0]!.toUpperCase() + name.slice(1)}</th>{heads.map((head) => <th key={head} scope="col" class="right">{head}</th>)}</tr></thead>
          <tbody>{children}</tbody>
        </table>
      </div>
    </section>
  );
}

function StatisticsRow({ name, figures, isCode = true }: { name: string; figures: ComponentChildren[]; isCode?: boolean }) {
  return <tr><th scope="row">{isCode ? <code>{name}</code> : name}</th>{figures.map((figure, at) => <td key={at} class="right numbers">{figure}</td>)}</tr>;
}

/** A share, and a bar as long as it. */
function Rate({ value, tone }: { value: number | null; tone: "good" | "bad" | "violet" }) {
  if (value === null) return <>–</>;
  return (
    <span class="rate">{Math.round(value * 100)} %
      <i class={`fill-${tone}`} aria-hidden="true" ref={(bar) => { if (bar) bar.style.width = `${value * 40}px`; }} /></span>
  );
}

function RatingCell({ rating }: { rating: RunFigures["rating"] }) {
  if (rating.average === null) return <>–</>;
  const said = rating.stars.map((times, at) => `${times} × ${at + 1}`).reverse().join(", ");
  return <span title={`${said} stars`}>{formatNumber(Math.round(rating.average * 10) / 10)} <small class="hint">({formatNumber(rating.count)})</small></span>;
}

function CallRatingsCell({ of }: { of: ToolFigures["verdicts"] }) {
  const given = (Object.keys(CALL_RATINGS) as (keyof typeof CALL_RATINGS)[]).filter((verdict) => of[verdict] > 0);
  if (!given.length) return <>–</>;
  return <span class="verdict-counts">{given.map((verdict) => <Badge key={verdict} tone={CALL_RATINGS[verdict].tone} title={CALL_RATINGS[verdict].title}>{of[verdict]} {CALL_RATINGS[verdict].label.toLowerCase()}</Badge>)}</span>;
}
