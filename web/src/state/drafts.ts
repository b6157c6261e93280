/** Unsent message texts, by session. Kept in memory until the page is closed. */

const drafts = new Map<string, string>();

/**
 * Returns the unsent text stored under `key`: a session id, or `new` for a session not yet created.
 */
export const getDraft = (key: string): string => drafts.get(key) ?? "";

/** Stores the unsent text under `key`; an empty text deletes the draft. */
export function saveDraft(key: string, text: string): void {
  if (text) drafts.set(key, text);
  else drafts.delete(key);
}
