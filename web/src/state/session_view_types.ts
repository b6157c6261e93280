/** What a conversation is made of. */

import type { Json, JsonObject, Approval, Risk, Usage } from "../api/types";

export type CallPhase =
  | "proposed" | "waiting" | "allowed" | "running" | "backing_off" | "completed" | "failed" | "denied";

export interface Attempt {
  attempt: number;
  at: string;
  endedAt: string | null;
  /** Why it is tried again. */
  reason: string | null;
}

export type CallRating = "good" | "unnecessary" | "wrong";

/** What somebody thinks of an answer or of a call; what they thought before is replaced. */
export interface Opinion<T> {
  by: string;
  value: T;
  comment: string | null;
  at: string;
}

export interface Call {
  call_id: string;
  tool: string;
  arguments: Json;
  risk: Risk;
  digest: string;
  step: number | null;
  at: string;
  seq: number;
  phase: CallPhase;
  /** Why it may run: `{kind, …}`. */
  allowedBy: JsonObject | null;
  edit: { arguments: Json; reason?: string } | null;
  attempts: Attempt[];
  retryUntil: string | null;
  progress: { progress: number; total: number | null; message: string | null } | null;
  result: Json | undefined;
  truncated: boolean;
  /** It is the result of an earlier call. */
  cached: boolean;
  error: string | null;
  reason: string | null;
  retriesExhausted: boolean;
  requiredLevel: number | null;
  endedAt: string | null;
  lateResults: string[];
  approval_id: string | null;
  verdicts: Opinion<CallRating>[];
}

export type SessionItem =
  | { kind: "user"; id: string; text: string; at: string; seq: number }
  | { kind: "assistant"; id: string; text: string; at: string; streaming: boolean; stopped: boolean; seq: number }
  | { kind: "call"; id: string; seq: number }
  | { kind: "question"; id: string; seq: number }
  | { kind: "notice"; id: string; tone: "info" | "warn" | "bad"; text: string; detail: string | null; at: string; seq: number }
  | { kind: "summary"; id: string; through: number; text: string; usage: Usage | null; at: string; seq: number }
  | { kind: "end"; id: string; outcome: "completed" | "cancelled" | "failed"; text: string | null; usage: Usage | null; at: string; ms: number; seq: number };

export interface Run {
  run_id: string;
  startedAt: string;
  step: number;
  model: string | null;
  planning: boolean;
  /** It is asked for a summary of what was said before. */
  compacting: boolean;
  /** Until when it waits before it asks the model again. */
  retryUntil: string | null;
}

export interface QueuedMessage {
  message_id: string;
  text: string;
  delivery: string;
}

/** A session of another agent that works for a call, as its parent is told of it: without what was said. */
export interface ChildSession {
  session_id: string;
  agent: string;
  /** The call of this session, or of a child, that it works for. */
  call_id: string;
  /** It is gone, or never was. */
  gone: boolean;
  conversation: SessionView;
}

export interface SessionView {
  seq: number;
  cursor: string;
  title: string | null;
  agent: string;
  owner: string;
  settings: JsonObject | null;
  closed: boolean;
  items: SessionItem[];
  calls: Record<string, Call>;
  questions: Record<string, Approval>;
  queued: QueuedMessage[];
  run: Run | null;
  usage: Usage;
  /** How many approvals for the session hold. */
  grants: number;
  /** Stars, 1 to 5, by the message they are for. */
  ratings: Record<string, Opinion<number>[]>;
  /** Children, and theirs, by their sessions. */
  children: Record<string, ChildSession>;
}

export const NO_USAGE: Usage = { input_tokens: 0, output_tokens: 0, cached_tokens: 0, cost_usd: 0 };

export const EMPTY_VIEW: SessionView = {
  seq: 0, cursor: "", title: null, agent: "", owner: "", settings: null, closed: false, items: [],
  calls: {}, questions: {}, queued: [], run: null, usage: NO_USAGE, grants: 0, ratings: {}, children: {},
};
