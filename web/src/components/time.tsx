/** Times: relative, with the exact one on hover; and what is left until one. */

import { Store, useStore } from "../state/store";
import { formatCountdown, formatDateTime, formatRelative } from "./format";

/** Now, each second. */
export const now = new Store(Date.now());
setInterval(() => now.set(Date.now()), 1000);

export function RelativeTime({ at }: { at: string }) {
  const time = Date.parse(at);
  const said = useStore(now, () => formatRelative(time, Date.now()));
  return <time dateTime={at} title={formatDateTime(time)}>{said}</time>;
}

/** How long something has lasted. */
export function ElapsedTime({ at }: { at: string }) {
  const time = Date.parse(at);
  const said = useStore(now, () => formatCountdown(Math.max(0, Math.floor((Date.now() - time) / 1000) * 1000)));
  return <time class="numbers" dateTime={at} title={`since ${formatDateTime(time)}`}>{said}</time>;
}

export function Countdown({ until, over = "over" }: { until: string; over?: string }) {
  const time = Date.parse(until);
  const said = useStore(now, () => (Date.now() >= time ? over : formatCountdown(time - Date.now())));
  return <time class="numbers" dateTime={until} title={formatDateTime(time)}>{said}</time>;
}

/** The part that is left of the time between two instants, as a ring. */
export function CountdownRing({ from, until }: { from: string; until: string }) {
  const [start, end] = [Date.parse(from), Date.parse(until)];
  const left = useStore(now, (ms) => Math.max(0, Math.min(1, (end - ms) / Math.max(1, end - start))));
  const around = 2 * Math.PI * 8;
  return (
    <svg class={`ring${left < 0.2 ? " late" : ""}`} width="20" height="20" viewBox="0 0 20 20" aria-hidden="true">
      <circle cx="10" cy="10" r="8" />
      <circle cx="10" cy="10" r="8" class="left" stroke-dasharray={around} stroke-dashoffset={around * (1 - left)} />
    </svg>
  );
}
