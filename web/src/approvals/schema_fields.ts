/** Derives form fields from the JSON schema of an object. Pure. */

import { isInteger } from "lossless-json";
import { isNumber, isObject, parseJson, parseNumber, stringifyJson } from "../api/json";
import type { Json, JsonObject } from "../api/types";
import { hasUnsafeChars, escapeUnsafeJson } from "../components/escaped_text";

/**
 * The kind of a form field. `escaped` is a text with invisible characters, edited as a JSON string.
 */
export type FieldKind = "text" | "email" | "url" | "date" | "datetime" | "number" | "integer" | "boolean" | "choice" | "choices" | "json" | "escaped";

/** A selectable value and its label. */
export interface FieldChoice {
  value: Json;
  label: string;
}

/** A form field. */
export interface Field {
  name: string;
  kind: FieldKind;
  title: string;
  required: boolean;
  description: string | null;
  choices: FieldChoice[];
  /** A description of the constraints, such as `1 to 100` or `at most 40 characters`. */
  bounds: string | null;
  defaultValue: Json | undefined;
}

const obj = (value: Json | undefined): JsonObject | null =>
  isObject(value) ? value : null;

/** Returns the fields of the schema, and those that exist only in the value. */
export function schemaFields(schema: JsonObject | undefined, value: JsonObject): Field[] {
  const properties = obj(schema?.properties) ?? {};
  const required = new Set(Array.isArray(schema?.required) ? schema.required : []);
  const names = [...new Set([...Object.keys(properties), ...Object.keys(value)])];
  // Required fields come first; otherwise the order is that of the schema.
  names.sort((a, b) => Number(required.has(b)) - Number(required.has(a)));
  return names.map((name) => {
    const property = obj(properties[name]) ?? {};
    const multiChoices = property.type === "array" ? schemaChoices(obj(property.items) ?? {}) : [];
    const choices = multiChoices.length ? multiChoices : schemaChoices(property);
    return {
      name,
      kind: multiChoices.length ? "choices" : hasHiddenChars(value[name]) ? "escaped" : fieldKind(property, choices, value[name]),
      title: typeof property.title === "string" ? property.title : name,
      required: required.has(name),
      description: typeof property.description === "string" ? property.description : null,
      choices,
      bounds: describeBounds(property),
      defaultValue: property.default,
    };
  });
}

/**
 * True for a text with invisible characters. It is edited as JSON, so that they are visible as
 * escapes.
 */
const hasHiddenChars = (value: Json | undefined) => typeof value === "string" && hasUnsafeChars(value);

/** Returns the initial value of a form: the defaults of the schema. */
export function schemaDefaults(schema: JsonObject | undefined): JsonObject {
  const fields = schemaFields(schema, {});
  return Object.fromEntries(fields.flatMap(({ name, kind, required, defaultValue }): [string, Json][] => {
    if (defaultValue !== undefined && defaultValue !== null) return [[name, defaultValue]];
    // A required checkbox starts as false.
    return required && kind === "boolean" ? [[name, false]] : [];
  }));
}

/** Returns true if every required field has a value. */
export function isComplete(schema: JsonObject | undefined, value: JsonObject): boolean {
  const required = Array.isArray(schema?.required) ? schema.required.map(String) : [];
  return required.every((name) => value[name] !== undefined && value[name] !== "");
}

/** Returns the choices of a schema: an `enum`, with or without `enumNames`, or titled constants. */
function schemaChoices(schema: JsonObject): FieldChoice[] {
  if (Array.isArray(schema.enum)) {
    const names = Array.isArray(schema.enumNames) ? schema.enumNames : [];
    return schema.enum.map((value, index) => ({ value, label: typeof names[index] === "string" ? names[index] : String(value) }));
  }
  const alternatives = [schema.oneOf, schema.anyOf].find(Array.isArray) ?? [];
  const constants = alternatives.map(obj).filter((constant) => constant !== null && constant.const !== undefined);
  if (!constants.length || constants.length < alternatives.length) return [];
  return constants.map((constant) => ({ value: constant!.const!, label: typeof constant!.title === "string" ? constant!.title : String(constant!.const) }));
}

const FORMATS: Record<string, FieldKind> = { email: "email", uri: "url", date: "date", "date-time": "datetime" };

function fieldKind(schema: JsonObject, choices: FieldChoice[], value: Json | undefined): FieldKind {
  if (choices.length) return "choice";
  const types = [schema.type].flat().filter((type) => type !== "null");
  const type = types.length === 1 ? types[0] : undefined;
  switch (type ?? (value === null || value === undefined ? undefined : isNumber(value) ? "number" : typeof value)) {
    case "string": return FORMATS[String(schema.format)] ?? "text";
    case "integer": return "integer";
    case "number": return "number";
    case "boolean": return "boolean";
    default: return "json";
  }
}

function describeBounds(schema: JsonObject): string | null {
  const { minimum, maximum, exclusiveMinimum, exclusiveMaximum, maxLength, minLength, minItems, maxItems } = schema;
  const parts = [
    describeRange(minimum, maximum),
    exclusiveMinimum === undefined ? null : `more than ${exclusiveMinimum}`,
    exclusiveMaximum === undefined ? null : `less than ${exclusiveMaximum}`,
    describeRange(minLength, maxLength, (maxLength ?? minLength) === 1 ? "character" : "characters"),
    describeRange(minItems, maxItems, "items"),
  ];
  return parts.filter(Boolean).join(", ") || null;
}

function describeRange(min: Json | undefined, max: Json | undefined, unit = ""): string | null {
  const range =
    min === undefined ? max === undefined ? null : `at most ${max}`
    : max === undefined ? `at least ${min}`
    : min === max ? `${min}`
    : `${min} to ${max}`;
  return range && `${range} ${unit}`.trimEnd();
}

/** Parses a field's text. Returns the value, or an error text for the user. */
export function parseField(kind: FieldKind, text: string, choices: FieldChoice[]): { value: Json } | { error: string } {
  switch (kind) {
    case "text": return { value: text };
    case "choice": return { value: choices.find((choice) => String(choice.value) === text)?.value ?? text };
    case "choices": return { value: parseJson(text) };
    case "boolean": return { value: text === "true" };
    case "email": return /^[^@\s]+@[^@\s]+$/.test(text) ? { value: text } : { error: "Enter an email address, such as ann@example.org." };
    case "url": return URL.canParse(text) ? { value: text } : { error: "Enter a URL, such as https://example.org." };
    case "date": return Number.isNaN(Date.parse(text)) ? { error: "Enter a date." } : { value: text };
    case "datetime": {
      const date = Date.parse(text);
      return Number.isNaN(date) ? { error: "Enter a date and time." } : { value: new Date(date).toISOString() };
    }
    case "number":
    case "integer": {
      const value = parseNumber(text);
      if (value === null) return { error: "Enter a number." };
      if (kind === "integer" && !(typeof value === "number" ? Number.isInteger(value) : isInteger(value.value))) return { error: "Enter an integer." };
      return { value };
    }
    case "json":
    case "escaped":
      try {
        const value = parseJson(text);
        return kind === "json" || typeof value === "string" ? { value } : { error: "Enter a JSON string in double quotes." };
      } catch {
        return { error: "Not valid JSON." };
      }
  }
}

/** Formats a value as the text of a field. */
export function formatField(kind: FieldKind, value: Json | undefined): string {
  if (value === undefined) return "";
  switch (kind) {
    case "json": return escapeUnsafeJson(value, 2);
    case "escaped": return escapeUnsafeJson(value);
    case "choices": return stringifyJson(value);
    case "datetime": return formatLocalDateTime(String(value));
    default: return String(value);
  }
}

/** Formats a time for a `datetime-local` input: local time, to the minute. */
function formatLocalDateTime(text: string): string {
  const date = new Date(text);
  if (Number.isNaN(date.getTime())) return "";
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}
