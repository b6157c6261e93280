/**
 * JSON with every digit. A number that a JavaScript number would round, such as an amount of 30 digits,
 * is a `LosslessNumber`, which keeps its text. The only module that parses or writes JSON.
 */

import { isLosslessNumber, isSafeNumber, LosslessNumber, parse, stringify } from "lossless-json";
import type { Json, JsonObject } from "./types";

/**
 * Matches a text that may contain a number to keep: numbers of up to 15 digits and an exponent of up to
 * two are always exact. Matches texts without such a number too; they are only parsed more slowly.
 */
const MAY_ROUND = /\d[\d.]{15}|\d[eE][+-]?\d{3}/;

const JSON_NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;

const toNumber = (text: string) => (isSafeNumber(text) ? Number(text) : new LosslessNumber(text));

/** Parses a JSON text. Throws a `SyntaxError` if it is not valid. */
export function parseJson(text: string): Json {
  return (MAY_ROUND.test(text) ? parse(text, null, toNumber) : JSON.parse(text)) as Json;
}

/** Formats a value as JSON, like `JSON.stringify`. */
export function stringifyJson(value: unknown, indent?: number): string {
  return stringify(value, null, indent) ?? "null";
}

/** Parses the text of a number. Returns null if it is not a finite number. */
export function parseNumber(text: string): number | LosslessNumber | null {
  const trimmed = text.trim();
  if (JSON_NUMBER.test(trimmed)) return toNumber(trimmed);
  const value = Number(trimmed);
  // Another notation, such as `.5`.
  return trimmed === "" || !Number.isFinite(value) || MAY_ROUND.test(trimmed) ? null : value;
}

/** Returns true for a number, whatever its length. */
export function isNumber(value: unknown): value is number | LosslessNumber {
  return typeof value === "number" || isLosslessNumber(value);
}

/** Returns true for a JSON object. */
export function isObject(value: unknown): value is JsonObject {
  return value !== null && typeof value === "object" && !Array.isArray(value) && !isLosslessNumber(value);
}
