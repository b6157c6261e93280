/** What it takes, and how well it goes: from the events that the page has. */

import { useMemo, useState } from "preact/hooks";
import { Chart } from "../../parts/chart";
import { Empty, Loading, Segmented } from "../../parts/ui";
import { compact, duration, money, number } from "../../parts/words";
import { eventLog } from "../../state/live";
import { type Figures, figuresOf, type ToolFigures } from "../../state/statistics";
import { useStore } from "../../state/store";

const SPANS = { hour: 3_600_000, day: 86_400_000, all: Infinity };
type Stretch = keyof typeof SPANS;

export function UsageRoom() {
  const [stretch, setStretch] = useState<Stretch>("all");
  const version = useStore(eventLog.version);
  const loading = useStore(eventLog.loading);
  const { figures, sessions } = useMemo(() => {
    const since = Date.now() - SPANS[stretch];
    const frames = stretch === "all" ? eventLog.frames : eventLog.frames.filter((frame) => Date.parse(frame.at) >= since);
    return { figures: figuresOf(frames), sessions: new Set(frames.map((frame) => frame.session_id)).size };
  }, [stretch, version]);
  return (
    <div class="page">
      <header class="room-head">
        <h1>Usage and quality</h1>
        <Segmented label="Since when" value={stretch} onChange={setStretch} options={[
          { value: "hour", label: "Last hour" }, { value: "day", label: "Last day" }, { value: "all", label: "All that is here" },
        ]} />
      </header>
      <div class="page-body" tabIndex={0} role="region" aria-label="Usage and quality">
        {figures.runs + figures.calls === 0
          ? loading ? <Loading what="figures" lines={8} /> : <Empty icon="usage" title="Nothing to count yet">Figures appear with the first run.</Empty>
          : <Shown figures={figures} sessions={sessions} />}
      </div>
    </div>
  );
}

const share = (part: number, whole: number) => (whole ? `${Math.round((part / whole) * 100)} %` : "–");
const ms = (value: number | null) => (value === null ? "–" : duration(value));

function Shown({ figures, sessions }: { figures: Figures; sessions: number }) {
  const { usage, buckets } = figures;
  const answered = figures.approved + figures.rejected;
  const at = useMemo(() => buckets.map((bucket) => bucket.at), [buckets]);
  const tokens = useMemo(() => [
    { label: "output", colour: "accent", values: buckets.map((bucket) => bucket.output) },
    { label: "input", colour: "info", values: buckets.map((bucket) => bucket.input) },
  ], [buckets]);
  const ends = useMemo(() => [
    { label: "denied", colour: "violet", values: buckets.map((bucket) => bucket.denied) },
    { label: "not approved", colour: "warn", values: buckets.map((bucket) => bucket.refused) },
    { label: "failed", colour: "bad", values: buckets.map((bucket) => bucket.failed) },
    { label: "completed", colour: "good", values: buckets.map((bucket) => bucket.completed) },
  ], [buckets]);
  const steps = useMemo(() => [{ label: "median step", colour: "info", values: buckets.map((bucket) => bucket.step) }], [buckets]);
  const cost = usage.unpriced ? (usage.cost ? `${money(usage.cost)} and more` : "price unknown") : money(usage.cost);
  return (
    <>
      <ul class="tiles">
        <Tile label="Runs" value={number(figures.runs)} more={`${share(figures.failedRuns, figures.runs)} failed · ${number(sessions)} sessions`} />
        <Tile label="Tokens" value={compact(usage.input + usage.output)} more={`${compact(usage.input)} in · ${compact(usage.output)} out`} />
        <Tile label="Cost" value={usage.unpriced && !usage.cost ? "–" : money(usage.cost)} more={cost === "price unknown" ? "no price is configured" : cost} />
        <Tile label="Calls" value={number(figures.calls)} more={`${share(figures.failed, figures.calls)} failed · ${share(figures.denied, figures.calls)} denied`} />
        <Tile label="Approved" value={share(figures.approved, answered)} more={`${figures.asked} asked · ${figures.expired} expired`} />
        <Tile label="A step takes" value={ms(figures.steps.p50)} more={`p95 ${ms(figures.steps.p95)}`} />
        <Tile label="People take" value={ms(figures.waits.p50)} more={`p95 ${ms(figures.waits.p95)} to answer`} />
        <Tile label="Retries" value={number(figures.retries)} more={`${share(figures.retries, figures.calls)} of the calls`} />
      </ul>
      <div class="charts">
        <Chart title="Tokens" at={at} series={tokens} said={compact} />
        <Chart title="How calls end" at={at} series={ends} said={compact} />
        <Chart title="How long a step takes" at={at} series={steps} said={duration} bars={false} />
      </div>
      <h2 class="under">By tool</h2>
      <Tools tools={figures.tools} />
      <p class="hint under">From the events on this page: those of the newest sessions, and all since it was opened. The whole server’s counters are at <a href="/metrics">/metrics</a>.</p>
    </>
  );
}

function Tile({ label, value, more }: { label: string; value: string; more: string }) {
  return <li class="tile"><span class="tile-label">{label}</span><strong class="numbers">{value}</strong><small>{more}</small></li>;
}

function Tools({ tools }: { tools: ToolFigures[] }) {
  return (
    <div class="table-frame">
      <table class="table">
        <thead><tr><th>Tool</th><th class="right">Calls</th><th class="right">Failed</th><th class="right">Denied</th><th class="right">Not approved</th><th class="right">Retries</th><th class="right">Asked</th><th class="right">p50</th><th class="right">p95</th></tr></thead>
        <tbody>
          {tools.map((tool) => (
            <tr key={tool.tool}><td><code>{tool.tool}</code></td><td class="right numbers">{number(tool.calls)}</td>
              <td class="right numbers">{share(tool.failed, tool.calls)}</td><td class="right numbers">{share(tool.denied, tool.calls)}</td><td class="right numbers">{share(tool.refused, tool.calls)}</td>
              <td class="right numbers">{number(tool.retries)}</td><td class="right numbers">{number(tool.asked)}</td>
              <td class="right numbers">{ms(tool.p50)}</td><td class="right numbers">{ms(tool.p95)}</td></tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
