/** A viewer of JSON values: coloured, collapsible and with a copy button. */

import { useState } from "preact/hooks";
import { isNumber, stringifyJson } from "../api/json";
import type { Json as Value } from "../api/types";
import { IconButton } from "./ui";
import { EscapedText } from "./escaped_text";
import { truncate } from "./format";

/** The number of members of an object or array that are shown initially. */
const SHOWN = 50;
/** The number of characters of a text that are shown initially. */
const TEXT_SHOWN = 2_000;

/** Shows a JSON value. `open` is the number of levels that are expanded initially. */
export function JsonView({ value, label, open = 2 }: { value: Value | undefined; label: string; open?: number }) {
  const [copied, setCopied] = useState(false);
  const copy = () => {
    void navigator.clipboard?.writeText(typeof value === "string" ? value : stringifyJson(value, 2));
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return (
    <div class="json" dir="ltr" role="group" aria-label={label} tabIndex={0}>
      <IconButton icon={copied ? "check" : "copy"} label={copied ? "Copied" : `Copy ${label}`} onClick={copy} />
      {typeof value === "string" ? <LongText text={value} /> : <JsonNode value={value ?? null} open={open} />}
    </div>
  );
}

function LongText({ text }: { text: string }) {
  const [isExpanded, setExpanded] = useState(false);
  if (isExpanded || text.length <= TEXT_SHOWN) return <pre><EscapedText text={text} /></pre>;
  return (
    <>
      <pre><EscapedText text={truncate(text, TEXT_SHOWN)} /></pre>
      <button type="button" class="text-button" onClick={() => setExpanded(true)}>
        Show all {text.length.toLocaleString("en")} characters
      </button>
    </>
  );
}

function JsonNode({ value, name, open }: { value: Value; name?: string; open: number }) {
  const key = name !== undefined && <span class="json-key"><EscapedText text={name} />: </span>;
  if (value === null || typeof value !== "object" || isNumber(value)) {
    return <div class="json-line">{key}<JsonScalar value={value} /></div>;
  }
  const isList = Array.isArray(value);
  const entries = isList ? value.map((item, index): [string, Value] => [String(index), item]) : Object.entries(value);
  const brackets = isList ? "[]" : "{}";
  if (!entries.length) return <div class="json-line">{key}<span class="json-mark">{brackets}</span></div>;
  return <JsonBranch name={key} entries={entries} isList={isList} open={open} />;
}

function JsonBranch({ name, entries, isList, open }: {
  name: preact.ComponentChildren; entries: [string, Value][]; isList: boolean; open: number;
}) {
  const [isOpen, setOpen] = useState(open > 0);
  const [shown, setShown] = useState(SHOWN);
  const summary = isList ? `${entries.length} items` : entries.map(([key]) => key).join(", ");
  return (
    <details open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{name}<span class="json-mark">{isList ? "[" : "{"}</span>{!isOpen && <span class="json-summary"><EscapedText text={truncate(summary, 80)} />{isList ? " ]" : " }"}</span>}</summary>
      {isOpen && (
        <div class="json-children">
          {entries.slice(0, shown).map(([key, item]) => <JsonNode key={key} value={item} name={isList ? undefined : key} open={open - 1} />)}
          {entries.length > shown && (
            <button type="button" class="text-button" onClick={() => setShown(shown + 10 * SHOWN)}>
              Show {entries.length - shown} more
            </button>
          )}
        </div>
      )}
    </details>
  );
}

function JsonScalar({ value }: { value: Exclude<Value, Value[] | { [key: string]: Value }> }) {
  if (value === null) return <span class="json-null">null</span>;
  if (typeof value === "string") return <span class="json-text">“<bdi><EscapedText text={truncate(value, TEXT_SHOWN)} /></bdi>”</span>;
  return <span class={isNumber(value) ? "json-number" : "json-bool"}>{String(value)}</span>;
}
