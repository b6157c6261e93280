/** A chart over time, by uPlot, in the colours of the page. */

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { theme } from "../state/theme";
import { useStore } from "../state/store";

export interface Series {
  label: string;
  /** The name of a colour of the page. */
  colour: string;
  values: (number | null)[];
}

const HEIGHT = 190;

/** Steps of an axis on which there are no halves. */
const WHOLE = [1, 2, 5].flatMap((n) => [0, 1, 2, 3, 4, 5, 6, 7, 8].map((power) => n * 10 ** power)).sort((one, other) => one - other);

export function Chart({ title, at, series, said: formatValue, bars = true, whole = false }: {
  title: string; at: number[]; series: Series[]; said: (value: number) => string; bars?: boolean; whole?: boolean;
}) {
  const box = useRef<HTMLDivElement>(null);
  const shade = useStore(theme);
  useEffect(() => {
    const element = box.current!;
    const style = getComputedStyle(document.documentElement);
    const colour = (name: string) => style.getPropertyValue(`--${name}`).trim();
    const axis: uPlot.Axis = { stroke: colour("faint"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "11px Inter, sans-serif" };
    const paths = bars ? uPlot.paths.bars!({ size: [0.7, 22], radius: 0.2, gap: 1 }) : undefined;
    const plot = new uPlot({
      width: element.clientWidth, height: HEIGHT, legend: { show: false },
      cursor: { points: { show: false }, drag: { x: true, y: false } },
      scales: { x: { time: true, range: (_, low, high) => padded(low, high, at) }, y: { range: (_, _low, high) => [0, Math.max(high * 1.1, 1)] } },
      axes: [{ ...axis, space: 72, size: 32, values: (_, splits) => formatTicks(splits) }, { ...axis, ...(whole ? { incrs: WHOLE } : {}), size: 52, values: (_, splits) => splits.map((value) => formatValue(value)) }],
      series: [{}, ...series.map((one) => ({
        label: one.label, stroke: colour(one.colour), fill: bars ? colour(one.colour) : undefined, width: bars ? 0 : 2, paths, points: { show: !bars && at.length < 30 },
      }))],
    }, [at, ...stacked(series, bars)] as uPlot.AlignedData, element);
    const watch = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: HEIGHT }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      plot.destroy();
    };
  }, [at, series, shade, bars, whole]);
  const total = (one: Series) => one.values.reduce((sum: number, value) => sum + (value ?? 0), 0);
  return (
    <figure class="chart">
      <figcaption><h2>{title}</h2>
        <ul class="chart-legend">{series.map((one) => <li key={one.label}><i class={`fill-${one.colour}`} />{one.label}</li>)}</ul></figcaption>
      <div ref={box} role="img" aria-label={`${title}: ${series.map((one) => (bars ? `${one.label} ${formatValue(total(one))}` : one.label)).join(", ")}`} />
    </figure>
  );
}

/** Times as they must be to be told apart: those of one day without the day. */
function formatTicks(splits: number[]): string[] {
  const [first = 0, last = 0] = [splits[0], splits.at(-1)];
  const step = splits.length > 1 ? splits[1]! - first : 1;
  const days: Intl.DateTimeFormatOptions = { day: "numeric", month: "short" };
  const times: Intl.DateTimeFormatOptions = { hour: "2-digit", minute: "2-digit", hour12: false, ...(step < 60 ? { second: "2-digit" } : {}) };
  const options = step >= 86_400 ? days : last - first > 86_400 ? { ...days, ...times } : times;
  return splits.map((at) => new Date(at * 1000).toLocaleString(undefined, options));
}

/** Room for half a bar at either end. */
function padded(low: number, high: number, at: number[]): [number, number] {
  const gaps = at.slice(1).map((one, row) => one - at[row]!);
  const pad = gaps.length ? Math.max(Math.min(...gaps), (high - low) / 40) : 30;
  return [low - pad, high + pad];
}

/** Bars stand on one another: the first series is drawn last, and so the sums come first. */
function stacked(series: Series[], bars: boolean): (number | null)[][] {
  if (!bars) return series.map((one) => one.values);
  // One that adds nothing would shine through at the edges of the one before it.
  return series.map((own, at) => own.values.map((value, row) =>
    (value ? series.slice(at).reduce((sum, one) => sum + (one.values[row] ?? 0), 0) : null)));
}
