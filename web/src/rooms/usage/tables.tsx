/** The figures of each agent, workflow, model and tool, and of the people who are asked. */

import type { ComponentChildren } from "preact";
import type { ModelFigures, QuestionFigures, RunFigures, Times, ToolFigures } from "../../api/types";
import { Badge } from "../../parts/ui";
import { visible } from "../../parts/visible";
import { compact, duration, money, number } from "../../parts/words";
import { VERDICTS } from "../../parts/verdicts";

const ms = (value: number | null) => (value === null ? "–" : duration(value));

export function Agents({ title, figures }: { title: string; figures: Record<string, RunFigures> }) {
  return (
    <Figures title={title} name={title.replace("By ", "")} heads={["Runs", "Failed", "Cancelled", "Steps", "Retries", "Tokens", "Cost", "p50", "p95", "Rated"]}>
      {sorted(figures, (one) => one.runs).map(([name, one]) => (
        <Row key={name} name={name} figures={[
          number(one.runs), <Rate value={one.failure_rate} tone="bad" />, number(one.cancelled), number(one.steps), number(one.step_retries),
          compact(one.usage.input_tokens + one.usage.output_tokens), price(one.usage.cost_usd), ...percentiles(one.run_ms), <Stars rating={one.rating} />,
        ]} />
      ))}
    </Figures>
  );
}

export function Models({ figures }: { figures: Record<string, ModelFigures> }) {
  return (
    <Figures title="By model" name="model" heads={["Steps", "Failed", "Tokens in", "of them cached", "Tokens out", "Cost", "p50", "p95"]}>
      {sorted(figures, (one) => one.steps).map(([name, one]) => (
        <Row key={name} name={name} figures={[
          number(one.steps), <Rate value={one.failure_rate} tone="bad" />, compact(one.usage.input_tokens), compact(one.usage.cached_tokens), compact(one.usage.output_tokens),
          price(one.usage.cost_usd), ...percentiles(one.step_ms),
        ]} />
      ))}
    </Figures>
  );
}

export function Tools({ figures }: { figures: Record<string, ToolFigures> }) {
  return (
    <Figures title="By tool" name="tool" heads={["Calls", "Failed", "Denied", "Not approved", "Retries", "Asked", "Approved", "p50", "p95", "Verdicts"]}>
      {sorted(figures, (one) => one.calls).map(([name, one]) => (
        <Row key={name} name={visible(name)} figures={[
          number(one.calls), <Rate value={one.failure_rate} tone="bad" />, <Rate value={one.denial_rate} tone="violet" />, number(one.refused), number(one.retries),
          number(one.asked), <Rate value={one.approval_rate} tone="good" />, ...percentiles(one.call_ms), <Verdicts of={one.verdicts} />,
        ]} />
      ))}
    </Figures>
  );
}

const KINDS: Record<string, string> = {
  plan: "calls to approve", preflight: "plans before the work", budget: "budgets", unknown_outcome: "unknown outcomes", elicitation: "questions of tools",
};

export function People({ figures }: { figures: Record<string, QuestionFigures> }) {
  if (!Object.keys(figures).length) return null;
  return (
    <Figures title="What people were asked" name="kind" heads={["Asked", "Answered", "Expired", "Withdrawn", "p50", "p95"]}>
      {sorted(figures, (one) => one.asked).map(([name, one]) => (
        <Row key={name} name={KINDS[name] ?? name} isCode={false} figures={[number(one.asked), number(one.decided), number(one.expired), number(one.cancelled), ...percentiles(one.wait_ms)]} />
      ))}
    </Figures>
  );
}

const percentiles = (times: Times) => [ms(times.p50), ms(times.p95)];
const price = (usd: number | null) => (usd === null ? <span title="Some price is not configured">–</span> : money(usd));
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

function Row({ name, figures, isCode = true }: { name: string; figures: ComponentChildren[]; isCode?: boolean }) {
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

function Stars({ rating }: { rating: RunFigures["rating"] }) {
  if (rating.average === null) return <>–</>;
  const said = rating.stars.map((times, at) => `${times} × ${at + 1}`).reverse().join(", ");
  return <span title={`${said} stars`}>{number(Math.round(rating.average * 10) / 10)} <small class="hint">({number(rating.count)})</small></span>;
}

function Verdicts({ of }: { of: ToolFigures["verdicts"] }) {
  const given = (Object.keys(VERDICTS) as (keyof typeof VERDICTS)[]).filter((verdict) => of[verdict] > 0);
  if (!given.length) return <>–</>;
  return <span class="verdict-counts">{given.map((verdict) => <Badge key={verdict} tone={VERDICTS[verdict].tone} title={VERDICTS[verdict].title}>{of[verdict]} {VERDICTS[verdict].label.toLowerCase()}</Badge>)}</span>;
}
