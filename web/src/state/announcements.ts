/** What people hear who don't see the page: that an answer is complete, that somebody is needed. */

import type { SessionView } from "./session_view_types";
import { Store } from "./store";

export interface Announcement {
  id: number;
  text: string;
}

/** Those that stand beside each other, so that two at once are both heard. */
const KEPT_MAX = 4;

export const announcements = new Store<Announcement[]>([]);
let lastId = 0;

export function announce(text: string): void {
  announcements.update((before) => [...before, { id: ++lastId, text }].slice(-KEPT_MAX));
}

/** How the run came out that ended between the two, and when. */
export function endBetween(before: SessionView, after: SessionView): { text: string; at: string } | null {
  const end = after.items.findLast((item) => item.kind === "end");
  if (end?.kind !== "end" || end.seq <= before.seq) return null;
  const said = { completed: "Answer complete", cancelled: "Cancelled", failed: `The run failed: ${end.text ?? ""}` };
  return { text: said[end.outcome], at: end.at };
}
