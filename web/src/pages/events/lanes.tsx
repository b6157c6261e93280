/** The lanes of one run, drawn over time. */

import { useRef, useState } from "preact/hooks";
import { now } from "../../components/time";
import { Button, IconButton } from "../../components/ui";
import { escapeUnsafe } from "../../components/escaped_text";
import { truncate, formatDuration } from "../../components/format";
import { routeUrl } from "../../state/route";
import { MODEL, PEOPLE, type RunSpans, type Span } from "../../state/run_spans";
import { useStore } from "../../state/store";
import { STRETCH_MIN, useTimeWindow, type TimeWindow } from "./use_time_window";

/** Pixels of a row, and of the times above. */
const ROW = 38;
const HEAD = 26;

interface Lane {
  name: string;
  top: number;
  bottom: number;
}

export function Lanes({ run, session }: { run: RunSpans; session: string }) {
  const live = useStore(now, (ms) => (run.to === null ? ms : 0));
  const end = Math.max(run.to ?? live, run.from + STRETCH_MIN);
  const box = useRef<HTMLDivElement>(null);
  const view = useTimeWindow(box, run.from, end);
  const [chosen, setChosen] = useState<Span | null>(null);
  return (
    <div class="timeline">
      <div class="timeline-bar">
        <p><strong>{run.title}</strong> <span class="hint">{run.outcome ?? "going on"}, {formatDuration(end - run.from)}</span></p>
        <div>
          <IconButton icon="plus" label="Zoom in" onClick={() => view.zoom(0.6)} />
          <IconButton icon="minus" label="Zoom out" onClick={() => view.zoom(1.7)} />
          <Button tone="quiet" onClick={view.reset} disabled={view.isWhole}>Whole run</Button>
        </div>
      </div>
      <div class="timeline-box" ref={box} tabIndex={0} role="group" aria-label="Timeline: arrow keys move, plus and minus zoom" {...view.handlers}>
        <Drawing run={run} end={end} view={view} chosen={chosen} onChoose={setChosen} />
      </div>
      <table class="sr-only"><caption>What happened in this run</caption>
        <tbody>{run.spans.map((span) => <tr key={`${span.seq}${span.kind}`}><th scope="row">{escapeUnsafe(span.label)}</th><td>{spanText(span, end)}</td></tr>)}</tbody></table>
      <p class="timeline-said">{chosen
        ? <><strong>{escapeUnsafe(chosen.label)}</strong> {spanText(chosen, end)}, {formatDuration(chosen.from - run.from)} into the run · <a href={routeUrl("events", "", { session, seq: String(chosen.seq) })}>the event</a></>
        : <span class="hint">Drag to move, Ctrl and the wheel to zoom. Click a bar for what it was.</span>}</p>
      <ul class="legend"><li class="step">model</li><li class="attempt">tool</li><li class="backoff">waits to try again</li><li class="person">waits for a person</li><li class="bad">failed or denied</li></ul>
    </div>
  );
}

function Drawing({ run, end, view, chosen, onChoose }: {
  run: RunSpans; end: number; view: TimeWindow; chosen: Span | null; onChoose: (span: Span) => void;
}) {
  const lanes = layoutLanes(run);
  const height = (lanes.at(-1)?.bottom ?? HEAD) + 8;
  return (
    <svg width={view.width} height={height} role="presentation">
      <Ticks view={view} start={run.from} height={height} />
      {lanes.map((lane) => <line key={lane.name} class="lane" x1="0" x2={view.width} y1={lane.bottom} y2={lane.bottom} />)}
      <svg x={view.labels} y="0" width={view.chartWidth} height={height} overflow="hidden">
        {run.spans.map((span) => (
          <Bar key={`${span.seq}${span.kind}`} span={span} end={end} view={view} isChosen={span === chosen} onChoose={onChoose}
            top={(lanes.find((lane) => lane.name === span.lane)?.top ?? HEAD) + span.row * ROW + 7} />
        ))}
      </svg>
      {lanes.map(({ name, top }) => <text key={name} class="lane-name" x="8" y={top + 23}>{laneLabel(name, view.labels / 8)}</text>)}
    </svg>
  );
}

function layoutLanes(run: RunSpans): Lane[] {
  let rows = 0;
  return run.lanes.map(({ name, rows: own }) => {
    const top = HEAD + rows * ROW;
    rows += own;
    return { name, top, bottom: top + own * ROW };
  });
}

function laneLabel(lane: string, room: number): string {
  if (lane === MODEL) return "Model";
  if (lane === PEOPLE) return "People";
  return truncate(escapeUnsafe(lane), room - 1);
}

function Bar({ span, end, view, top, isChosen, onChoose }: {
  span: Span; end: number; view: TimeWindow; top: number; isChosen: boolean; onChoose: (span: Span) => void;
}) {
  const left = view.x(span.from) - view.labels;
  const right = view.x(span.to ?? end) - view.labels;
  if (right < -6 || left > view.chartWidth) return null;
  const wide = Math.max(span.kind === "denied" ? 6 : 3, right - left);
  const room = Math.min(right, view.chartWidth) - Math.max(left, 0);
  return (
    <g class={`span ${span.kind} ${span.state} ${isChosen ? "chosen" : ""}`} onClick={() => onChoose(span)}>
      <title>{`${escapeUnsafe(span.label)}: ${spanText(span, end)}`}</title>
      <rect x={left} y={top} width={wide} height={ROW - 14} rx="5" />
      <text x={Math.max(left, 0) + 8} y={top + 16}>{inBar(span, end, room)}</text>
    </g>
  );
}

/** What there is room for in a bar; its lane says the tool. */
function inBar(span: Span, end: number, width: number): string {
  const took = formatDuration((span.to ?? end) - span.from);
  const texts = span.kind === "backoff" ? ["waits"] : span.kind === "attempt" ? [took] : [`${escapeUnsafe(span.label)} · ${took}`, escapeUnsafe(span.label)];
  return texts.find((text) => text.length * 6.5 + 14 <= width) ?? "";
}

function spanText(span: Span, end: number): string {
  if (span.kind === "denied") return "denied";
  const how = { open: "so far", good: "", bad: "failed", warn: "" }[span.state];
  return `${formatDuration((span.to ?? end) - span.from)} ${how}`.trim();
}

function Ticks({ view: { from, to, x, chartWidth: inside }, start, height }: { view: TimeWindow; start: number; height: number }) {
  const wanted = (to - from) / Math.max(2, Math.floor(inside / 110));
  const power = 10 ** Math.floor(Math.log10(wanted));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= wanted) ?? wanted;
  const first = Math.ceil((from - start) / step) * step;
  const ticks = [];
  for (let at = first; at <= to - start; at += step) ticks.push(at);
  return (
    <>
      {ticks.map((at) => (
        <g key={at} class="tick"><line x1={x(start + at)} x2={x(start + at)} y1={HEAD - 6} y2={height} />
          <text x={x(start + at) + 4} y="14">{at === 0 ? "0" : formatDuration(at)}</text></g>
      ))}
    </>
  );
}
