/** The session list as far as it was loaded, newest first. Pure. */

import type { Session } from "../api/types";

/** One or more contiguous pages of the session list. */
export interface SessionPage {
  sessions: Session[];
  /** The `before` parameter of the next page. Null if there are no more sessions. */
  next: string | null;
}

/**
 * Replaces the newest page and keeps the older sessions that were loaded before. Session ids sort by
 * creation time.
 */
export function mergeNewestPage(known: SessionPage, newest: SessionPage): SessionPage {
  const end = newest.sessions[newest.sessions.length - 1]?.session_id;
  if (newest.next === null || end === undefined) return newest;
  // More than one page is new, so there is a gap between both pages.
  if (!known.sessions.some(({ session_id }) => session_id >= end)) return newest;
  const older = known.sessions.filter(({ session_id }) => session_id < end);
  return older.length ? { sessions: [...newest.sessions, ...older], next: known.next } : newest;
}

/** Returns true if the title, id, user or agent of the session contains the search text. */
export function sessionMatches(session: Session, searchText: string): boolean {
  const { title, session_id, user_id, agent } = session;
  return `${title ?? ""} ${session_id} ${user_id} ${agent}`.toLowerCase().includes(searchText.trim().toLowerCase());
}
