/** The sessions as far as they were asked for, the newest first. Pure. */

import type { Session } from "../api/types";

export interface SessionPage {
  sessions: Session[];
  /** The `before` of the next page. */
  next: string | null;
}

/** The newest page anew, and what was read beyond it still. Ids are in the order of their making. */
export function mergeNewestPage(known: SessionPage, newest: SessionPage): SessionPage {
  const end = newest.sessions[newest.sessions.length - 1]?.session_id;
  if (newest.next === null || end === undefined) return newest;
  // More than a page is new: between both there are some that nobody has read.
  if (!known.sessions.some(({ session_id }) => session_id >= end)) return newest;
  const older = known.sessions.filter(({ session_id }) => session_id < end);
  return older.length ? { sessions: [...newest.sessions, ...older], next: known.next } : newest;
}

export function matches(session: Session, search: string): boolean {
  const { title, session_id, user_id, agent } = session;
  return `${title ?? ""} ${session_id} ${user_id} ${agent}`.toLowerCase().includes(search.trim().toLowerCase());
}
