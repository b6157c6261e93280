/** The labels of call ratings. */

import type { CallRating } from "../state/session_view_types";

/** The label, colour and description of each call rating. */
export const CALL_RATINGS: Record<CallRating, { label: string; tone: "good" | "warn" | "bad"; title: string }> = {
  good: { label: "Good", tone: "good", title: "Correct call" },
  unnecessary: { label: "Unnecessary", tone: "warn", title: "Harmless, but not needed" },
  wrong: { label: "Wrong", tone: "bad", title: "Wrong tool or wrong arguments" },
};
