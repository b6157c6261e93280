/** A line diff of edited arguments. */

import { diffLines } from "diff";
import { useMemo } from "preact/hooks";
import type { Json } from "../api/types";
import { escapeUnsafeJson } from "../components/escaped_text";

/** Shows the lines that an edit of the arguments adds and removes. */
export function ArgumentDiff({ before, after }: { before: Json; after: Json }) {
  const parts = useMemo(() => diffLines(formatJson(before), formatJson(after)), [before, after]);
  return (
    <pre class="diff" tabIndex={0} role="group" aria-label="Changes to the arguments">
      {parts.flatMap((part, partIndex) => part.value.replace(/\n$/, "").split("\n").map((line, lineIndex) => (
        <span key={`${partIndex}.${lineIndex}`} class={part.added ? "added" : part.removed ? "removed" : ""}>
          <span aria-hidden="true">{part.added ? "+ " : part.removed ? "− " : "  "}</span>
          <span class="sr-only">{part.added ? "added: " : part.removed ? "removed: " : ""}</span>{line}{"\n"}
        </span>
      )))}
    </pre>
  );
}

const formatJson = (value: Json) => `${escapeUnsafeJson(value, 2)}\n`;
