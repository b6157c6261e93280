/** What a JSON schema says of an object's fields, as far as a form can use it. Pure. */

import type { Json, JsonObject } from "../api/types";

export type FieldKind = "text" | "number" | "integer" | "boolean" | "choice" | "json";

export interface Field {
  name: string;
  kind: FieldKind;
  title: string;
  required: boolean;
  description: string | null;
  choices: Json[];
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
    const choices = Array.isArray(one.enum) ? one.enum : [];
    return {
      name,
      kind: kindOf(one, choices, value[name]),
      title: typeof one.title === "string" ? one.title : name,
      required: required.has(name),
      description: typeof one.description === "string" ? one.description : null,
      choices,
      bounds: boundsOf(one),
      fallback: one.default,
    };
  });
}

function kindOf(schema: JsonObject, choices: Json[], value: Json | undefined): FieldKind {
  if (choices.length) return "choice";
  const types = [schema.type].flat().filter((type) => type !== "null");
  const type = types.length === 1 ? types[0] : undefined;
  switch (type ?? (value === null || value === undefined ? undefined : typeof value)) {
    case "string": return "text";
    case "integer": return "integer";
    case "number": return "number";
    case "boolean": return "boolean";
    default: return "json";
  }
}

function boundsOf(schema: JsonObject): string | null {
  const { minimum, maximum, exclusiveMinimum, maxLength, minLength } = schema;
  const parts = [];
  if (minimum !== undefined && maximum !== undefined) parts.push(`${minimum} to ${maximum}`);
  else if (minimum !== undefined) parts.push(`at least ${minimum}`);
  else if (maximum !== undefined) parts.push(`at most ${maximum}`);
  if (exclusiveMinimum !== undefined) parts.push(`more than ${exclusiveMinimum}`);
  if (minLength !== undefined) parts.push(`at least ${minLength} characters`);
  if (maxLength !== undefined) parts.push(`at most ${maxLength} characters`);
  return parts.join(", ") || null;
}

/** What somebody typed as a value of that kind; an error says why it is none. */
export function read(kind: FieldKind, text: string, choices: Json[]): { value: Json } | { error: string } {
  switch (kind) {
    case "text": return { value: text };
    case "choice": return { value: choices.find((choice) => String(choice) === text) ?? text };
    case "boolean": return { value: text === "true" };
    case "number":
    case "integer": {
      const value = Number(text);
      if (text.trim() === "" || !Number.isFinite(value)) return { error: "This must be a number." };
      if (kind === "integer" && !Number.isInteger(value)) return { error: "This must be a whole number." };
      return { value };
    }
    case "json":
      try {
        return { value: JSON.parse(text) as Json };
      } catch {
        return { error: "This is not valid JSON." };
      }
  }
}

export function shown(kind: FieldKind, value: Json | undefined): string {
  if (value === undefined) return "";
  return kind === "json" ? JSON.stringify(value, null, 2) : String(value);
}
