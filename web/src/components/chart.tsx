/** A chart over time, drawn by uPlot in the colours of the theme. */

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { theme } from "../state/theme";
import { useStore } from "../state/store";

/** One series of a chart. */
export interface Series {
  label: string;
  /** The name of a colour token, without `--`. */
  colour: string;
  values: (number | null)[];
}

const HEIGHT = 190;

/** The tick increments of an axis with integer values. */
const INTEGER_STEPS = [1, 2, 5].flatMap((n) => [0, 1, 2, 3, 4, 5, 6, 7, 8].map((power) => n * 10 ** power)).sort((a, b) => a - b);

/**
 * A bar or line chart. `times` are in seconds since the epoch; `integerAxis` allows only integer
 * ticks.
 */
export function Chart({ title, times, series, formatValue, bars = true, integerAxis = false }: {
  title: string; times: number[]; series: Series[]; formatValue: (value: number) => string; bars?: boolean; integerAxis?: boolean;
}) {
  const container = useRef<HTMLDivElement>(null);
  const currentTheme = useStore(theme);
  useEffect(() => {
    const element = container.current!;
    const style = getComputedStyle(document.documentElement);
    const colour = (name: string) => style.getPropertyValue(`--${name}`).trim();
    const axis: uPlot.Axis = { stroke: colour("text-faint"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "11px Inter, sans-serif" };
    const paths = bars ? uPlot.paths.bars!({ size: [0.7, 22], radius: 0.2, gap: 1 }) : undefined;
    const plot = new uPlot({
      width: element.clientWidth, height: HEIGHT, legend: { show: false },
      cursor: { points: { show: false }, drag: { x: true, y: false } },
      scales: { x: { time: true, range: (_, min, max) => padRange(min, max, times) }, y: { range: (_, _low, max) => [0, Math.max(max * 1.1, 1)] } },
      axes: [{ ...axis, space: 72, size: 32, values: (_, splits) => formatTicks(splits) }, { ...axis, ...(integerAxis ? { incrs: INTEGER_STEPS } : {}), size: 52, values: (_, splits) => splits.map((value) => formatValue(value)) }],
      series: [{}, ...series.map((item) => ({
        label: item.label, stroke: colour(item.colour), fill: bars ? colour(item.colour) : undefined, width: bars ? 0 : 2, paths, points: { show: !bars && times.length < 30 },
      }))],
    }, [times, ...stackSeries(series, bars)] as uPlot.AlignedData, element);
    const resizeObserver = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: HEIGHT }));
    resizeObserver.observe(element);
    return () => {
      resizeObserver.disconnect();
      plot.destroy();
    };
  }, [times, series, currentTheme, bars, integerAxis]);
  const total = (item: Series) => item.values.reduce((sum: number, value) => sum + (value ?? 0), 0);
  return (
    <figure class="chart">
      <figcaption><h2>{title}</h2>
        <ul class="chart-legend">{series.map((item) => <li key={item.label}><i class={`fill-${item.colour}`} />{item.label}</li>)}</ul></figcaption>
      <div ref={container} role="img" aria-label={`${title}: ${series.map((item) => (bars ? `${item.label} ${formatValue(total(item))}` : item.label)).join(", ")}`} />
    </figure>
  );
}

/** Formats tick times. Leaves out the date if all ticks are within one day. */
function formatTicks(splits: number[]): string[] {
  const [first = 0, last = 0] = [splits[0], splits.at(-1)];
  const step = splits.length > 1 ? splits[1]! - first : 1;
  const days: Intl.DateTimeFormatOptions = { day: "numeric", month: "short" };
  const times: Intl.DateTimeFormatOptions = { hour: "2-digit", minute: "2-digit", hour12: false, ...(step < 60 ? { second: "2-digit" } : {}) };
  const options = step >= 86_400 ? days : last - first > 86_400 ? { ...days, ...times } : times;
  return splits.map((split) => new Date(split * 1000).toLocaleString(undefined, options));
}

/** Widens the range, so that the first and last bars are not cut off. */
function padRange(min: number, max: number, times: number[]): [number, number] {
  const gaps = times.slice(1).map((time, index) => time - times[index]!);
  const pad = gaps.length ? Math.max(Math.min(...gaps), (max - min) / 40) : 30;
  return [min - pad, max + pad];
}

/**
 * Stacks bars: each series becomes the sum of itself and the later series, and is drawn before
 * them.
 */
function stackSeries(series: Series[], bars: boolean): (number | null)[][] {
  if (!bars) return series.map((item) => item.values);
  // A zero value is left out, because its bar would be visible at the edges of the bar above it.
  return series.map((item, seriesIndex) => item.values.map((value, index) =>
    (value ? series.slice(seriesIndex).reduce((sum, item) => sum + (item.values[index] ?? 0), 0) : null)));
}
