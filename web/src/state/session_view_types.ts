/** The types of a session's view. */

import type { Json, JsonObject, Approval, Risk, RunStopReason, Usage } from "../api/types";

/** The phase of a tool call. */
export type CallPhase =
  | "proposed" | "waiting" | "allowed" | "running" | "backing_off" | "completed" | "failed" | "denied";

/** One attempt of a tool call. */
export interface Attempt {
  attempt: number;
  at: string;
  endedAt: string | null;
  /** The reason for the retry that follows this attempt. */
  reason: string | null;
}

/** A user's rating of a tool call. */
export type CallRating = "good" | "unnecessary" | "wrong";

/** One user's latest feedback on an answer or on a call. */
export interface Feedback<T> {
  by: string;
  value: T;
  comment: string | null;
  at: string;
}

/** A tool call and its history. */
export interface Call {
  call_id: string;
  tool: string;
  arguments: JsonObject;
  /** The model's text in place of a JSON object. */
  argumentsText: string | null;
  risk: Risk;
  digest: string;
  step: number | null;
  at: string;
  seq: number;
  phase: CallPhase;
  /** The source of the permission to run: `{kind, …}`. */
  allowedBy: JsonObject | null;
  edit: { arguments: Json; reason?: string } | null;
  attempts: Attempt[];
  retryUntil: string | null;
  progress: { progress: number; total: number | null; message: string | null } | null;
  result: Json | undefined;
  truncated: boolean;
  /** True if the result is that of an earlier call. */
  cached: boolean;
  error: string | null;
  reason: string | null;
  retriesExhausted: boolean;
  requiredLevel: number | null;
  endedAt: string | null;
  lateResults: string[];
  approval_id: string | null;
  verdicts: Feedback<CallRating>[];
}

/** An entry of the session's message list. */
export type SessionItem =
  | { kind: "user"; id: string; text: string; at: string; seq: number }
  | { kind: "assistant"; id: string; text: string; at: string; streaming: boolean; stopped: boolean; notice: string | null; seq: number }
  | { kind: "call"; id: string; seq: number }
  | { kind: "approval"; id: string; seq: number }
  | { kind: "notice"; id: string; tone: "info" | "warn" | "bad"; text: string; detail: string | null; at: string; seq: number }
  | { kind: "summary"; id: string; through: number; text: string; usage: Usage | null; at: string; seq: number }
  | { kind: "end"; id: string; outcome: "completed" | "cancelled" | "failed"; stop_reason: RunStopReason | null; text: string | null; usage: Usage | null; at: string; ms: number; seq: number };

/** The current run of a session. */
export interface Run {
  run_id: string;
  startedAt: string;
  step: number;
  model: string | null;
  planning: boolean;
  /** True while the model summarises the older part of the conversation. */
  compacting: boolean;
  /** The time of the next attempt of the model call. */
  retryUntil: string | null;
}

/** A message that waits for its run. */
export interface QueuedMessage {
  message_id: string;
  text: string;
  delivery: string;
  /** Its own run, or the run that it steers. */
  run_id: string | null;
}

/** A child session, built from the events that the parent's log mirrors. These contain no text. */
export interface ChildSession {
  session_id: string;
  agent: string;
  /** The call that the child session works for: of this session or of another child. */
  call_id: string;
  /** True if the child session was purged or never created. */
  gone: boolean;
  view: SessionView;
}

/** The state of a session that the dashboard shows. */
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
  approvals: Record<string, Approval>;
  queued: QueuedMessage[];
  run: Run | null;
  usage: Usage;
  /** The number of grants in force. */
  grants: number;
  /** The ratings of answers, 1 to 5 stars, by message id. */
  ratings: Record<string, Feedback<number>[]>;
  /** All descendant sessions, by session id. */
  children: Record<string, ChildSession>;
}

/** A usage of zero. */
export const NO_USAGE: Usage = { input_tokens: 0, output_tokens: 0, cached_tokens: 0, cost_usd: 0 };

/** The view of a session without events. */
export const EMPTY_VIEW: SessionView = {
  seq: 0, cursor: "", title: null, agent: "", owner: "", settings: null, closed: false, items: [],
  calls: {}, approvals: {}, queued: [], run: null, usage: NO_USAGE, grants: 0, ratings: {}, children: {},
};
