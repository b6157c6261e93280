/** What an edit changes, line by line. */

import { diffLines } from "diff";
import { useMemo } from "preact/hooks";
import type { Json } from "../api/types";
import { escapeUnsafeJson } from "../components/escaped_text";

export function Diff({ before, after }: { before: Json; after: Json }) {
  const parts = useMemo(() => diffLines(pretty(before), pretty(after)), [before, after]);
  return (
    <pre class="diff" tabIndex={0} role="group" aria-label="What the edit changes">
      {parts.flatMap((part, at) => part.value.replace(/\n$/, "").split("\n").map((line, row) => (
        <span key={`${at}.${row}`} class={part.added ? "added" : part.removed ? "removed" : ""}>
          <span aria-hidden="true">{part.added ? "+ " : part.removed ? "− " : "  "}</span>
          <span class="sr-only">{part.added ? "added: " : part.removed ? "removed: " : ""}</span>{line}{"\n"}
        </span>
      )))}
    </pre>
  );
}

const pretty = (value: Json) => `${escapeUnsafeJson(value, 2)}\n`;
