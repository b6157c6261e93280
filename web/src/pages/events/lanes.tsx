/** The timeline chart of a run, with a lane per tool. */

import { useRef, useState } from "preact/hooks";
import { now } from "../../components/time";
import { Button, IconButton } from "../../components/ui";
import { escapeUnsafe } from "../../components/escaped_text";
import { truncate, formatDuration } from "../../components/format";
import { routeUrl } from "../../state/route";
import { APPROVALS_LANE, MODEL_LANE, type RunSpans, type Span } from "../../state/run_spans";
import { useStore } from "../../state/store";
import { MIN_DURATION_MS, useTimeWindow, type TimeWindow } from "./use_time_window";

/** The heights of a row and of the time axis, in pixels. */
const ROW_HEIGHT = 38;
const HEADER_HEIGHT = 26;

interface Lane {
  name: string;
  top: number;
  bottom: number;
}

/** Shows the timeline of a run with zoom, pan and span details. */
export function RunTimeline({ run, sessionId }: { run: RunSpans; sessionId: string }) {
  const liveEnd = useStore(now, (ms) => (run.to === null ? ms : 0));
  const end = Math.max(run.to ?? liveEnd, run.from + MIN_DURATION_MS);
  const container = useRef<HTMLDivElement>(null);
  const timeWindow = useTimeWindow(container, run.from, end);
  const [selectedSpan, setSelectedSpan] = useState<Span | null>(null);
  return (
    <div class="timeline">
      <div class="timeline-bar">
        <p><strong>{run.title}</strong> <span class="hint">{run.outcome ?? "running"}, {formatDuration(end - run.from)}</span></p>
        <div>
          <IconButton icon="plus" label="Zoom in" onClick={() => timeWindow.zoom(0.6)} />
          <IconButton icon="minus" label="Zoom out" onClick={() => timeWindow.zoom(1.7)} />
          <Button tone="quiet" onClick={timeWindow.reset} disabled={timeWindow.isWhole}>Whole run</Button>
        </div>
      </div>
      <div class="timeline-box" ref={container} tabIndex={0} role="group" aria-label="Timeline: arrow keys pan, plus and minus zoom" {...timeWindow.handlers}>
        <TimelineChart run={run} end={end} timeWindow={timeWindow} selectedSpan={selectedSpan} onSelect={setSelectedSpan} />
      </div>
      <table class="sr-only"><caption>Spans of this run</caption>
        <tbody>{run.spans.map((span) => <tr key={`${span.seq}${span.kind}`}><th scope="row">{escapeUnsafe(span.label)}</th><td>{spanText(span, end)}</td></tr>)}</tbody></table>
      <p class="timeline-selection">{selectedSpan
        ? <><strong>{escapeUnsafe(selectedSpan.label)}</strong> {spanText(selectedSpan, end)}, {formatDuration(selectedSpan.from - run.from)} after the start of the run · <a href={routeUrl("events", "", { session: sessionId, seq: String(selectedSpan.seq) })}>Open event</a></>
        : <span class="hint">Drag to pan, Ctrl + wheel to zoom. Click a bar for details.</span>}</p>
      <ul class="legend"><li class="step">model</li><li class="attempt">tool</li><li class="backoff">retry delay</li><li class="approval">waiting for approval</li><li class="bad">failed or denied</li></ul>
    </div>
  );
}

function TimelineChart({ run, end, timeWindow, selectedSpan, onSelect }: {
  run: RunSpans; end: number; timeWindow: TimeWindow; selectedSpan: Span | null; onSelect: (span: Span) => void;
}) {
  const lanes = layoutLanes(run);
  const height = (lanes.at(-1)?.bottom ?? HEADER_HEIGHT) + 8;
  return (
    <svg width={timeWindow.width} height={height} role="presentation">
      <Ticks timeWindow={timeWindow} start={run.from} height={height} />
      {lanes.map((lane) => <line key={lane.name} class="lane" x1="0" x2={timeWindow.width} y1={lane.bottom} y2={lane.bottom} />)}
      <svg x={timeWindow.labelWidth} y="0" width={timeWindow.chartWidth} height={height} overflow="hidden">
        {run.spans.map((span) => (
          <SpanBar key={`${span.seq}${span.kind}`} span={span} end={end} timeWindow={timeWindow} isSelected={span === selectedSpan} onSelect={onSelect}
            top={(lanes.find((lane) => lane.name === span.lane)?.top ?? HEADER_HEIGHT) + span.row * ROW_HEIGHT + 7} />
        ))}
      </svg>
      {lanes.map(({ name, top }) => <text key={name} class="lane-name" x="8" y={top + 23}>{laneLabel(name, timeWindow.labelWidth / 8)}</text>)}
    </svg>
  );
}

function layoutLanes(run: RunSpans): Lane[] {
  let rowCount = 0;
  return run.lanes.map(({ name, rows: laneRows }) => {
    const top = HEADER_HEIGHT + rowCount * ROW_HEIGHT;
    rowCount += laneRows;
    return { name, top, bottom: top + laneRows * ROW_HEIGHT };
  });
}

function laneLabel(lane: string, availableWidth: number): string {
  if (lane === MODEL_LANE) return "Model";
  if (lane === APPROVALS_LANE) return "Approvals";
  return truncate(escapeUnsafe(lane), availableWidth - 1);
}

function SpanBar({ span, end, timeWindow, top, isSelected, onSelect }: {
  span: Span; end: number; timeWindow: TimeWindow; top: number; isSelected: boolean; onSelect: (span: Span) => void;
}) {
  const left = timeWindow.x(span.from) - timeWindow.labelWidth;
  const right = timeWindow.x(span.to ?? end) - timeWindow.labelWidth;
  if (right < -6 || left > timeWindow.chartWidth) return null;
  const barWidth = Math.max(span.kind === "denied" ? 6 : 3, right - left);
  const availableWidth = Math.min(right, timeWindow.chartWidth) - Math.max(left, 0);
  return (
    <g class={`span ${span.kind} ${span.state} ${isSelected ? "selected" : ""}`} onClick={() => onSelect(span)}>
      <title>{`${escapeUnsafe(span.label)}: ${spanText(span, end)}`}</title>
      <rect x={left} y={top} width={barWidth} height={ROW_HEIGHT - 14} rx="5" />
      <text x={Math.max(left, 0) + 8} y={top + 16}>{barLabel(span, end, availableWidth)}</text>
    </g>
  );
}

/** Returns the longest label that fits into a bar. The tool name is the label of the lane. */
function barLabel(span: Span, end: number, width: number): string {
  const duration = formatDuration((span.to ?? end) - span.from);
  const candidates = span.kind === "backoff" ? ["retry delay"] : span.kind === "attempt" ? [duration] : [`${escapeUnsafe(span.label)} · ${duration}`, escapeUnsafe(span.label)];
  return candidates.find((text) => text.length * 6.5 + 14 <= width) ?? "";
}

function spanText(span: Span, end: number): string {
  if (span.kind === "denied") return "denied";
  const stateText = { open: "so far", good: "", bad: "failed", warn: "" }[span.state];
  return `${formatDuration((span.to ?? end) - span.from)} ${stateText}`.trim();
}

function Ticks({ timeWindow: { from, to, x: toX, chartWidth }, start, height }: { timeWindow: TimeWindow; start: number; height: number }) {
  const targetStep = (to - from) / Math.max(2, Math.floor(chartWidth / 110));
  const power = 10 ** Math.floor(Math.log10(targetStep));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= targetStep) ?? targetStep;
  const first = Math.ceil((from - start) / step) * step;
  const ticks = [];
  for (let offset = first; offset <= to - start; offset += step) ticks.push(offset);
  return (
    <>
      {ticks.map((offset) => (
        <g key={offset} class="tick"><line x1={toX(start + offset)} x2={toX(start + offset)} y1={HEADER_HEIGHT - 6} y2={height} />
          <text x={toX(start + offset) + 4} y="14">{offset === 0 ? "0" : formatDuration(offset)}</text></g>
      ))}
    </>
  );
}
