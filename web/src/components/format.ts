/** Formats times, numbers, money, names and JSON values for display. Pure. */

import { isObject } from "../api/json";
import type { Json, Risk, Usage } from "../api/types";
import { escapeUnsafe, escapeUnsafeJson } from "./escaped_text";

/** Formats a time relative to now: `5 min ago`, `in 2 h`. */
export function formatRelative(time: number, now: number): string {
  const seconds = Math.round((now - time) / 1000);
  const isPast = seconds >= 0;
  const n = Math.abs(seconds);
  if (n < 5) return "now";
  const [amount, unit] = n < 60 ? [n, "s"] : n < 3600 ? [Math.floor(n / 60), "min"]
    : n < 86_400 ? [Math.floor(n / 3600), "h"] : [Math.floor(n / 86_400), "d"];
  return isPast ? `${amount} ${unit} ago` : `in ${amount} ${unit}`;
}

/** Formats a time as a local date and time. */
export function formatDateTime(time: number): string {
  const date = new Date(time);
  const day = date.toLocaleDateString(undefined, { year: "numeric", month: "short", day: "numeric" });
  return `${day}, ${formatTimeOfDay(time)}`;
}

/** Formats a time as local time of day with milliseconds. */
export function formatTimeOfDay(time: number): string {
  const date = new Date(time);
  const padTwo = (n: number) => String(n).padStart(2, "0");
  const ms = String(date.getMilliseconds()).padStart(3, "0");
  return `${padTwo(date.getHours())}:${padTwo(date.getMinutes())}:${padTwo(date.getSeconds())}.${ms}`;
}

/** Formats a duration: `120 ms`, `1.5 s`, `2 min 3 s`. */
export function formatDuration(ms: number): string {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 60_000) return `${Math.round(ms / 1000)} s`;
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return `${minutes} min ${Math.round((ms % 60_000) / 1000)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** Formats a remaining time as a clock: `9:41`. */
export function formatCountdown(ms: number): string {
  const seconds = Math.max(0, Math.ceil(ms / 1000));
  if (seconds >= 3600) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
}

/** Formats a count with its noun: `1 step`, `2 steps`. */
export function pluralize(count: number, singular: string, plural = `${singular}s`): string {
  return `${formatNumber(count)} ${count === 1 ? singular : plural}`;
}

/** Formats a number with thousands separators and at most two decimals. */
export function formatNumber(n: number): string {
  return n.toLocaleString("en", { maximumFractionDigits: 2 });
}

/** Formats a number; from 10,000 on in compact form, such as `12.3K`. */
export function formatCompact(n: number): string {
  return n < 10_000 ? formatNumber(n) : n.toLocaleString("en", { notation: "compact", maximumFractionDigits: 1 });
}

/**
 * Formats an amount with its unit: `4,120 ISK`, `4,120.50 ISK`, `0.0125 USD`. A whole number has no decimals; a
 * fraction has at least two. Equal to the server's `format_amount`.
 */
export function formatAmount(amount: number, unit: string): string {
  const minimumFractionDigits = Number.isInteger(amount) ? 0 : 2;
  return `${amount.toLocaleString("en", { minimumFractionDigits, maximumFractionDigits: 12 })} ${unit}`;
}

/** Formats an amount of US dollars. Null is an unknown cost. */
export function formatMoney(usd: number | null): string {
  if (usd === null) return "cost unknown";
  if (usd === 0) return "$0";
  return usd < 0.01 ? `$${usd.toPrecision(2)}` : `$${usd.toFixed(2)}`;
}

/** Formats the tokens of a usage. */
export function formatTokens(usage: Usage): string {
  const about = usage.estimated ? "about " : "";
  return `${about}${formatCompact(usage.input_tokens)} in · ${formatCompact(usage.output_tokens)} out`;
}

/** Formats the tokens of a usage and their cost. The cost is unknown if the provider's report of the tokens was lost. */
export function formatUsage(usage: Usage): string {
  const cost = usage.cost_usd || (usage.cost_usd === null && usage.estimated) ? ` · ${formatMoney(usage.cost_usd)}` : "";
  return `${formatTokens(usage)}${cost}`;
}

/** The label of each risk class. */
export const RISK_LABELS: Record<Risk, string> = {
  read_only: "read only", write_low_risk: "low risk", write_high_risk: "high risk", critical: "critical",
};

/** The names of the autonomy levels, by level. */
export const LEVEL_LABELS = ["Read only", "Recommendations", "Assisted", "Supervised"];

/**
 * Returns the last six characters of an id. The beginning of ids created at the same time is equal.
 */
export const shortId = (id: string) => id.slice(-6);

/** Returns the title of a session, or its short id if it has no title. */
export function sessionTitle(session: { title: string | null; session_id: string }): string {
  return session.title || `Session ${shortId(session.session_id)}`;
}

const graphemes = new Intl.Segmenter();

/** Shortens a text to at most `max` UTF-16 units, without splitting a grapheme cluster. */
export function truncate(text: string, max: number): string {
  if (text.length <= max) return text;
  let end = 0;
  for (const { segment, index } of graphemes.segment(text)) {
    if (index + segment.length >= max) break;
    end = index + segment.length;
  }
  return `${text.slice(0, end)}…`;
}

/** Formats a value on one line. */
export function formatInline(value: Json | undefined, max = 120): string {
  const text = typeof value === "string" ? value : value === undefined ? "" : escapeUnsafeJson(value);
  return truncate(escapeUnsafe(text).replace(/\s+/g, " "), max);
}

/** Formats arguments on one line: `region_id 10000002 · type_id 34`. */
export function formatArguments(value: Json | undefined, max = 120): string {
  if (!isObject(value)) return formatInline(value, max);
  const parts = Object.entries(value).map(([name, argument]) =>
    `${formatInline(name, 40)} ${formatInline(argument, 40)}`);
  return formatInline(parts.join(" · "), max);
}
