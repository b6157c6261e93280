/**
 * Components that show relative times, elapsed times and countdowns, with the exact time as
 * tooltip.
 */

import { Store, useStore } from "../state/store";
import { formatCountdown, formatDateTime, formatRelative } from "./format";

/** The current time in milliseconds since the epoch, updated every second. */
export const now = new Store(Date.now());
setInterval(() => now.set(Date.now()), 1000);

/** Shows a time relative to now. */
export function RelativeTime({ timestamp }: { timestamp: string }) {
  const time = Date.parse(timestamp);
  const text = useStore(now, () => formatRelative(time, Date.now()));
  return <time dateTime={timestamp} title={formatDateTime(time)}>{text}</time>;
}

/** Shows the time since `timestamp` as a clock. */
export function ElapsedTime({ timestamp }: { timestamp: string }) {
  const time = Date.parse(timestamp);
  const text = useStore(now, () => formatCountdown(Math.max(0, Math.floor((Date.now() - time) / 1000) * 1000)));
  return <time class="numbers" dateTime={timestamp} title={`since ${formatDateTime(time)}`}>{text}</time>;
}

/** Shows the time left until `until` as a clock, then `endedText`. */
export function Countdown({ until, endedText = "over" }: { until: string; endedText?: string }) {
  const time = Date.parse(until);
  const text = useStore(now, () => (Date.now() >= time ? endedText : formatCountdown(time - Date.now())));
  return <time class="numbers" dateTime={until} title={formatDateTime(time)}>{text}</time>;
}

/** Shows the remaining part of a time span as a ring. */
export function CountdownRing({ from, until }: { from: string; until: string }) {
  const [start, end] = [Date.parse(from), Date.parse(until)];
  const remaining = useStore(now, (ms) => Math.max(0, Math.min(1, (end - ms) / Math.max(1, end - start))));
  const circumference = 2 * Math.PI * 8;
  return (
    <svg class={`ring${remaining < 0.2 ? " late" : ""}`} width="20" height="20" viewBox="0 0 20 20" aria-hidden="true">
      <circle cx="10" cy="10" r="8" />
      <circle cx="10" cy="10" r="8" class="left" stroke-dasharray={circumference} stroke-dashoffset={circumference * (1 - remaining)} />
    </svg>
  );
}
