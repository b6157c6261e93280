/** What a JSON schema says of an object's fields, as far as a form can use it. Pure. */

import type { Json, JsonObject } from "../api/types";
import { hasUnsafeChars, escapeUnsafeJson } from "../components/escaped_text";

export type FieldKind = "text" | "email" | "url" | "date" | "moment" | "number" | "integer" | "boolean" | "choice" | "choices" | "json" | "escaped";

/** A value to choose, and what people read. */
export interface FieldChoice {
  value: Json;
  label: string;
}

export interface Field {
  name: string;
  kind: FieldKind;
  title: string;
  required: boolean;
  description: string | null;
  choices: FieldChoice[];
  /** What must hold, in words: `1 to 100`, `at most 40 characters`. */
  bounds: string | null;
  fallback: Json | undefined;
}

const obj = (value: Json | undefined): JsonObject | null =>
  value !== null && typeof value === "object" && !Array.isArray(value) ? value : null;

/** The fields of the schema, and those that only the value has. */
export function fieldsOf(schema: JsonObject | undefined, value: JsonObject): Field[] {
  const properties = obj(schema?.properties) ?? {};
  const required = new Set(Array.isArray(schema?.required) ? schema.required : []);
  const names = [...new Set([...Object.keys(properties), ...Object.keys(value)])];
  // What must be filled in comes first; else the order is the schema's.
  names.sort((one, other) => Number(required.has(other)) - Number(required.has(one)));
  return names.map((name) => {
    const one = obj(properties[name]) ?? {};
    const many = one.type === "array" ? choicesOf(obj(one.items) ?? {}) : [];
    const choices = many.length ? many : choicesOf(one);
    return {
      name,
      kind: many.length ? "choices" : hides(value[name]) ? "escaped" : kindOf(one, choices, value[name]),
      title: typeof one.title === "string" ? one.title : name,
      required: required.has(name),
      description: typeof one.description === "string" ? one.description : null,
      choices,
      bounds: boundsOf(one),
      fallback: one.default,
    };
  });
}

/** A text of which one does not see all is written as JSON, whose escapes one sees and can change. */
const hides = (value: Json | undefined) => typeof value === "string" && hasUnsafeChars(value);

/** What a form begins with: what the schema says where nobody says anything. */
export function defaultsOf(schema: JsonObject | undefined): JsonObject {
  const fields = fieldsOf(schema, {});
  return Object.fromEntries(fields.flatMap(({ name, kind, required, fallback }): [string, Json][] => {
    if (fallback !== undefined && fallback !== null) return [[name, fallback]];
    // An empty box says no.
    return required && kind === "boolean" ? [[name, false]] : [];
  }));
}

/** Whether what must be filled in is. */
export function isComplete(schema: JsonObject | undefined, value: JsonObject): boolean {
  const required = Array.isArray(schema?.required) ? schema.required.map(String) : [];
  return required.every((name) => value[name] !== undefined && value[name] !== "");
}

/** `enum`, with names for people beside it or not; or constants with titles. */
function choicesOf(schema: JsonObject): FieldChoice[] {
  if (Array.isArray(schema.enum)) {
    const names = Array.isArray(schema.enumNames) ? schema.enumNames : [];
    return schema.enum.map((value, at) => ({ value, label: typeof names[at] === "string" ? names[at] : String(value) }));
  }
  const alternatives = [schema.oneOf, schema.anyOf].find(Array.isArray) ?? [];
  const constants = alternatives.map(obj).filter((one) => one !== null && one.const !== undefined);
  if (!constants.length || constants.length < alternatives.length) return [];
  return constants.map((one) => ({ value: one!.const!, label: typeof one!.title === "string" ? one!.title : String(one!.const) }));
}

const FORMATS: Record<string, FieldKind> = { email: "email", uri: "url", date: "date", "date-time": "moment" };

function kindOf(schema: JsonObject, choices: FieldChoice[], value: Json | undefined): FieldKind {
  if (choices.length) return "choice";
  const types = [schema.type].flat().filter((type) => type !== "null");
  const type = types.length === 1 ? types[0] : undefined;
  switch (type ?? (value === null || value === undefined ? undefined : typeof value)) {
    case "string": return FORMATS[String(schema.format)] ?? "text";
    case "integer": return "integer";
    case "number": return "number";
    case "boolean": return "boolean";
    default: return "json";
  }
}

function boundsOf(schema: JsonObject): string | null {
  const { minimum, maximum, exclusiveMinimum, exclusiveMaximum, maxLength, minLength, minItems, maxItems } = schema;
  const parts = [
    within(minimum, maximum),
    exclusiveMinimum === undefined ? null : `more than ${exclusiveMinimum}`,
    exclusiveMaximum === undefined ? null : `less than ${exclusiveMaximum}`,
    within(minLength, maxLength, (maxLength ?? minLength) === 1 ? "character" : "characters"),
    within(minItems, maxItems, "of them"),
  ];
  return parts.filter(Boolean).join(", ") || null;
}

function within(least: Json | undefined, most: Json | undefined, unit = ""): string | null {
  const range =
    least === undefined ? most === undefined ? null : `at most ${most}`
    : most === undefined ? `at least ${least}`
    : least === most ? `${least}`
    : `${least} to ${most}`;
  return range && `${range} ${unit}`.trimEnd();
}

/** What somebody typed as a value of that kind; an error says why it is none. */
export function parseField(kind: FieldKind, text: string, choices: FieldChoice[]): { value: Json } | { error: string } {
  switch (kind) {
    case "text": return { value: text };
    case "choice": return { value: choices.find((choice) => String(choice.value) === text)?.value ?? text };
    case "choices": return { value: JSON.parse(text) as Json };
    case "boolean": return { value: text === "true" };
    case "email": return /^[^@\s]+@[^@\s]+$/.test(text) ? { value: text } : { error: "This must be an address such as ann@example.org." };
    case "url": return URL.canParse(text) ? { value: text } : { error: "This must be an address such as https://example.org." };
    case "date": return Number.isNaN(Date.parse(text)) ? { error: "This must be a date." } : { value: text };
    case "moment": {
      const at = Date.parse(text);
      return Number.isNaN(at) ? { error: "This must be a date and a time." } : { value: new Date(at).toISOString() };
    }
    case "number":
    case "integer": {
      const value = Number(text);
      if (text.trim() === "" || !Number.isFinite(value)) return { error: "This must be a number." };
      if (kind === "integer" && !Number.isInteger(value)) return { error: "This must be a whole number." };
      return { value };
    }
    case "json":
    case "escaped":
      try {
        const value = JSON.parse(text) as Json;
        return kind === "json" || typeof value === "string" ? { value } : { error: "This must be a text in quotes." };
      } catch {
        return { error: "This is not valid JSON." };
      }
  }
}

export function formatField(kind: FieldKind, value: Json | undefined): string {
  if (value === undefined) return "";
  switch (kind) {
    case "json": return escapeUnsafeJson(value, 2);
    case "escaped": return escapeUnsafeJson(value);
    case "choices": return JSON.stringify(value);
    case "moment": return localMoment(String(value));
    default: return String(value);
  }
}

/** As a field for date and time wants it: in the time of the page, to the minute. */
function localMoment(text: string): string {
  const at = new Date(text);
  if (Number.isNaN(at.getTime())) return "";
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}
