/**
 * A form for an object with a JSON schema: the arguments of a call, or the input that a tool
 * requests.
 */

import { useId, useState } from "preact/hooks";
import { isObject, parseJson, stringifyJson } from "../api/json";
import type { Json, JsonObject } from "../api/types";
import { EscapedText, escapeUnsafe } from "../components/escaped_text";
import { type Field, type FieldKind, schemaFields, parseField, formatField } from "./schema_fields";

/** The current value of a form. */
export interface FormDraft {
  value: JsonObject;
  /** True if every field with a text parses. */
  isValid: boolean;
}

/** A form with one input per field of the schema. Reports each change as a draft. */
export function SchemaForm({ schema, initial, onChange }: {
  schema: JsonObject | undefined; initial: JsonObject; onChange: (draft: FormDraft) => void;
}) {
  const [texts, setTexts] = useState<Record<string, string>>({});
  const fields = schemaFields(schema, initial);
  const updateField = (name: string, text: string) => {
    const next = { ...texts, [name]: text };
    setTexts(next);
    onChange(buildDraft(fields, initial, next));
  };
  if (!fields.length) return <p class="hint">No arguments.</p>;
  return (
    <div class="form">
      {fields.map((field) => (
        <FieldInput key={field.name} field={field} text={texts[field.name] ?? formatField(field.kind, initial[field.name])}
          touched={field.name in texts} onInput={(text) => updateField(field.name, text)} />
      ))}
    </div>
  );
}

function buildDraft(fields: Field[], initial: JsonObject, texts: Record<string, string>): FormDraft {
  const value: JsonObject = { ...initial };
  let isValid = true;
  for (const field of fields) {
    const text = texts[field.name];
    if (text === undefined) continue;
    if ((text === "" || text === "[]") && !field.required && !(field.kind === "text" && field.name in initial)) {
      delete value[field.name];
      continue;
    }
    const parsed = parseField(field.kind, text, field.choices);
    if ("error" in parsed) isValid = false;
    else value[field.name] = parsed.value;
  }
  return { value, isValid };
}

const KINDS: Partial<Record<FieldKind, string>> = { choice: "one of", choices: "some of", url: "URL", datetime: "date and time", escaped: "text as JSON" };
const MODES: Partial<Record<FieldKind, "decimal" | "email" | "url">> = { number: "decimal", integer: "decimal", email: "email", url: "url" };

/** Checkboxes that select any number of choices. */
function ChoiceList({ id, field, text, onInput }: { id: string; field: Field; text: string; onInput: (text: string) => void }) {
  const selectedValues = text ? (parseJson(text) as Json[]) : [];
  const toggle = (value: Json) =>
    onInput(stringifyJson(selectedValues.includes(value) ? selectedValues.filter((entry) => entry !== value) : [...selectedValues, value]));
  return (
    <div class="choice-list" role="group" aria-labelledby={`${id}-label`}>
      {field.choices.map(({ value, label }) => (
        <label key={String(value)} class="toggle"><input type="checkbox" checked={selectedValues.includes(value)} onChange={() => toggle(value)} /><span><EscapedText text={label} /></span></label>
      ))}
    </div>
  );
}

function FieldInput({ field, text, touched, onInput }: {
  field: Field; text: string; touched: boolean; onInput: (text: string) => void;
}) {
  const id = useId();
  const parsed = touched && (text !== "" || field.required) ? parseField(field.kind, text, field.choices) : null;
  const error = parsed && "error" in parsed ? parsed.error : null;
  const hint = [field.description, field.bounds].filter(Boolean).join(" · ");
  const inputProps = {
    id, "aria-describedby": hint || error ? `${id}-hint` : undefined, "aria-invalid": error ? true : undefined, required: field.required,
  };
  const handleInput = (event: { currentTarget: { value: string } }) => onInput(event.currentTarget.value);
  return (
    <div class="field">
      <label for={field.kind === "choices" ? undefined : id} id={`${id}-label`} class={field.title === field.name ? "" : "titled"}><EscapedText text={field.title} />{field.required && <span class="required" title="required"> *</span>}
        <span class="kind">{KINDS[field.kind] ?? field.kind}</span></label>
      {field.kind === "choices" ? <ChoiceList id={id} field={field} text={text} onInput={onInput} />
      : field.kind === "boolean" ? (
        <input {...inputProps} type="checkbox" checked={text === "true"} onChange={(event) => onInput(String(event.currentTarget.checked))} />
      ) : field.kind === "choice" ? (
        <select {...inputProps} value={text} onChange={handleInput}>
          {!field.required && <option value="" />}
          {field.choices.map(({ value, label }) => <option key={String(value)} value={String(value)}>{escapeUnsafe(label)}</option>)}
        </select>
      ) : field.kind === "json" || field.kind === "escaped" || text.length > 80 || text.includes("\n") ? (
        <textarea {...inputProps} dir="auto" class={field.kind === "json" || field.kind === "escaped" ? "code-input" : ""} rows={Math.min(8, text.split("\n").length + 1)}
          value={text} spellcheck={false} onInput={handleInput} />
      ) : field.kind === "date" || field.kind === "datetime" ? (
        <input {...inputProps} type={field.kind === "date" ? "date" : "datetime-local"} value={text} onInput={handleInput} />
      ) : (
        <input {...inputProps} type="text" dir="auto" inputMode={MODES[field.kind]} value={text} autocomplete="off" onInput={handleInput} />
      )}
      {(hint || error) && <span id={`${id}-hint`} class={error ? "hint error-text" : "hint"}>{error ?? <EscapedText text={hint} />}</span>}
    </div>
  );
}

/** Returns the value if it is a JSON object, and an empty object otherwise. */
export function asObject(value: Json | undefined): JsonObject {
  return isObject(value) ? value : {};
}
