/** The texts that screen readers announce: the end of a run and new approvals. */

import type { RunStopReason } from "../api/types";
import type { SessionView } from "./session_view_types";
import { Store } from "./store";

/** A text to announce. */
export interface Announcement {
  id: number;
  text: string;
}

/**
 * The number of announcements that stay in the document, so that simultaneous ones are all read.
 */
const KEPT_MAX = 4;

/** The most recent announcements, oldest first. */
export const announcements = new Store<Announcement[]>([]);
let lastId = 0;

/** Announces a text to screen readers. */
export function announce(text: string): void {
  announcements.update((before) => [...before, { id: ++lastId, text }].slice(-KEPT_MAX));
}

const COMPLETED_TEXTS: Record<RunStopReason, string> = {
  end: "Answer complete", length: "Answer truncated", refusal: "Refused by the model",
  content_filter: "Blocked by the provider's content filter", empty: "The model returned no text",
};

/**
 * Returns the announcement text and the time of the run that ended between two states of a session,
 * if any.
 */
export function runEndBetween(before: SessionView, after: SessionView): { text: string; at: string } | null {
  const end = after.items.findLast((item) => item.kind === "end");
  if (end?.kind !== "end" || end.seq <= before.seq) return null;
  const texts = { completed: COMPLETED_TEXTS[end.stop_reason ?? "end"] ?? COMPLETED_TEXTS.end, cancelled: "Run cancelled", failed: `Run failed: ${end.text ?? ""}` };
  return { text: texts[end.outcome], at: end.at };
}
