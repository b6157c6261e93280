/** A form for an object, by its JSON schema: the arguments of a call, or what a tool asks for. */

import { useId, useState } from "preact/hooks";
import type { Json, JsonObject } from "../api/types";
import { EscapedText, escapeUnsafe } from "../components/escaped_text";
import { type Field, type FieldKind, fieldsOf, parseField, formatField } from "./schema_fields";

export interface FormDraft {
  value: JsonObject;
  /** Nothing in it is wrong in its form. */
  isValid: boolean;
}

export function SchemaForm({ schema, initial, onChange }: {
  schema: JsonObject | undefined; initial: JsonObject; onChange: (draft: FormDraft) => void;
}) {
  const [texts, setTexts] = useState<Record<string, string>>({});
  const fields = fieldsOf(schema, initial);
  const put = (name: string, text: string) => {
    const next = { ...texts, [name]: text };
    setTexts(next);
    onChange(buildDraft(fields, initial, next));
  };
  if (!fields.length) return <p class="hint">It takes no arguments.</p>;
  return (
    <div class="form">
      {fields.map((field) => (
        <FieldInput key={field.name} field={field} text={texts[field.name] ?? formatField(field.kind, initial[field.name])}
          touched={field.name in texts} onInput={(text) => put(field.name, text)} />
      ))}
    </div>
  );
}

function buildDraft(fields: Field[], initial: JsonObject, texts: Record<string, string>): FormDraft {
  const value: JsonObject = { ...initial };
  let fits = true;
  for (const field of fields) {
    const text = texts[field.name];
    if (text === undefined) continue;
    if ((text === "" || text === "[]") && !field.required && !(field.kind === "text" && field.name in initial)) {
      delete value[field.name];
      continue;
    }
    const said = parseField(field.kind, text, field.choices);
    if ("error" in said) fits = false;
    else value[field.name] = said.value;
  }
  return { value, isValid: fits };
}

const KINDS: Partial<Record<FieldKind, string>> = { choice: "one of", choices: "some of", url: "address", moment: "date and time", escaped: "text as JSON" };
const MODES: Partial<Record<FieldKind, "decimal" | "email" | "url">> = { number: "decimal", integer: "decimal", email: "email", url: "url" };

/** Any number of the choices. */
function ChoiceList({ id, field, text, onInput }: { id: string; field: Field; text: string; onInput: (text: string) => void }) {
  const chosen = text ? (JSON.parse(text) as Json[]) : [];
  const toggle = (value: Json) =>
    onInput(JSON.stringify(chosen.includes(value) ? chosen.filter((one) => one !== value) : [...chosen, value]));
  return (
    <div class="several" role="group" aria-labelledby={`${id}-label`}>
      {field.choices.map(({ value, label }) => (
        <label key={String(value)} class="toggle"><input type="checkbox" checked={chosen.includes(value)} onChange={() => toggle(value)} /><span><EscapedText text={label} /></span></label>
      ))}
    </div>
  );
}

function FieldInput({ field, text, touched, onInput }: {
  field: Field; text: string; touched: boolean; onInput: (text: string) => void;
}) {
  const id = useId();
  const said = touched && (text !== "" || field.required) ? parseField(field.kind, text, field.choices) : null;
  const error = said && "error" in said ? said.error : null;
  const hint = [field.description, field.bounds].filter(Boolean).join(" · ");
  const common = {
    id, "aria-describedby": hint || error ? `${id}-hint` : undefined, "aria-invalid": error ? true : undefined, required: field.required,
  };
  const type = (event: { currentTarget: { value: string } }) => onInput(event.currentTarget.value);
  return (
    <div class="field">
      <label for={field.kind === "choices" ? undefined : id} id={`${id}-label`} class={field.title === field.name ? "" : "titled"}><EscapedText text={field.title} />{field.required && <span class="required" title="required"> *</span>}
        <span class="kind">{KINDS[field.kind] ?? field.kind}</span></label>
      {field.kind === "choices" ? <ChoiceList id={id} field={field} text={text} onInput={onInput} />
      : field.kind === "boolean" ? (
        <input {...common} type="checkbox" checked={text === "true"} onChange={(event) => onInput(String(event.currentTarget.checked))} />
      ) : field.kind === "choice" ? (
        <select {...common} value={text} onChange={type}>
          {!field.required && <option value="" />}
          {field.choices.map(({ value, label }) => <option key={String(value)} value={String(value)}>{escapeUnsafe(label)}</option>)}
        </select>
      ) : field.kind === "json" || field.kind === "escaped" || text.length > 80 || text.includes("\n") ? (
        <textarea {...common} dir="auto" class={field.kind === "json" || field.kind === "escaped" ? "code-input" : ""} rows={Math.min(8, text.split("\n").length + 1)}
          value={text} spellcheck={false} onInput={type} />
      ) : field.kind === "date" || field.kind === "moment" ? (
        <input {...common} type={field.kind === "date" ? "date" : "datetime-local"} value={text} onInput={type} />
      ) : (
        <input {...common} type="text" dir="auto" inputMode={MODES[field.kind]} value={text} autocomplete="off" onInput={type} />
      )}
      {(hint || error) && <span id={`${id}-hint`} class={error ? "hint wrong" : "hint"}>{error ?? <EscapedText text={hint} />}</span>}
    </div>
  );
}

export function asObject(value: Json | undefined): JsonObject {
  return value !== null && typeof value === "object" && !Array.isArray(value) ? value : {};
}
