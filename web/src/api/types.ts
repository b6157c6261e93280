/** The types of docs/protocol.md that the dashboard reads. Unknown fields are ignored. */

import type { LosslessNumber } from "lossless-json";

/** Any JSON value. A number that a JavaScript number would round is a `LosslessNumber`. */
export type Json = null | boolean | number | LosslessNumber | string | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: Json };

/** The risk class of a tool. */
export type Risk = "read_only" | "write_low_risk" | "write_high_risk" | "critical";
/** The role of a principal. */
export type Role = "user" | "approver" | "admin";

/** The reason why the model stopped in a message. */
export type MessageStopReason = "end_turn" | "tool_use" | "max_tokens" | "text_limit" | "refusal" | "content_filter" | "stop_sequence";

/** The way in which the final message of a completed run ended. Runs recorded by earlier versions have none. */
export type RunStopReason = "end" | "length" | "refusal" | "content_filter" | "empty";

/** An agent profile that the user may select. */
export interface AgentProfile {
  name: string;
  description: string;
  headless: boolean;
  max_steps: number;
}

/** The signed-in user, as returned by `/agent/me`. */
export interface CurrentUser {
  user_id: string;
  role: Role;
  agents: AgentProfile[];
  default_agent: string;
  version: string;
}

/** The tokens and the cost of one or more model calls. */
export interface Usage {
  input_tokens: number;
  output_tokens: number;
  cached_tokens: number;
  /** True if the provider's report of some tokens was lost, so that they are an estimate. */
  estimated?: boolean;
  /** Null if a price or the number of tokens is unknown. */
  cost_usd: number | null;
  /** The cost including the estimated tokens, if it is unknown because of them. */
  estimated_cost_usd?: number;
}

/** The settings of a user or of a session. */
export interface UserSettings {
  autonomy_level: number;
  require_confirmation: boolean;
  /** Names of tools, or globs. */
  blocked_tools: string[];
  allowed_regions: number[] | null;
  budget_limit: { amount: number; unit: string; period: string } | null;
  preflight?: boolean;
}

/** The owner of a ceiling. */
export interface CeilingScope {
  scope: "installation" | "role" | "agent" | "user";
  name?: string;
}

/** A limit that an administrator set. */
export interface CeilingLimit {
  field: "autonomy_level" | "require_confirmation" | "allowed_regions" | "budget_limits" | "blocked_tools";
  value: Json;
  ceiling: CeilingScope;
}

/** The settings of a user, and what the ceilings leave of them. */
export interface LimitedUserSettings extends UserSettings {
  user_id: string;
  autonomy_name: string;
  effective: UserSettings;
  ceilings: CeilingLimit[];
}

/** The ceilings of the server, as administrators change them. */
export interface Ceilings {
  version: number;
  configured: JsonObject;
  stored: JsonObject;
  in_force: JsonObject;
}

export type SessionStatus = "idle" | "running" | "waiting" | "closed";

/** A row of the session list. */
export interface Session {
  session_id: string;
  user_id: string;
  agent: string;
  title: string | null;
  status: SessionStatus;
  autonomy_level: number;
  preflight: boolean;
  settings: UserSettings;
  usage: Usage;
  created_at: string;
  updated_at: string;
  head?: number;
}

/** A frame of a session's stream: an event, a text delta or a control frame. */
export interface Frame {
  type: string;
  session_id: string;
  run_id: string | null;
  step: number | null;
  /** The agent profile of the session. */
  agent: string;
  /** Null for control frames. */
  seq: number | null;
  /** The position to resume from. Null for control frames. */
  cursor: string | null;
  at: string;
  body: JsonObject;
}

/** The estimated cost of a call. */
export interface CallCost {
  amount: number;
  unit: string;
}

/** A call that waits for approval in a plan. */
export interface PlanStep {
  call_id: string;
  tool: string;
  arguments: JsonObject;
  digest: string;
  risk: Risk;
  description?: string;
  why?: string;
  cost?: CallCost | null;
}

/** A step of a preflight plan. */
export interface ChecklistStep {
  position: number;
  description: string;
  toolName?: string;
  arguments?: JsonObject;
  risk?: Risk;
  needsApproval?: boolean;
  cost?: CallCost | null;
}

export type ApprovalKind = "plan" | "preflight" | "budget" | "unknown_outcome" | "elicitation";
export type ApprovalState = "pending" | "decided" | "expired" | "cancelled";

/** A recorded answer: to one step of a plan, or to an approval without steps. */
export interface RecordedAnswer {
  call_id?: string;
  approved?: boolean;
  decision?: string;
  reason?: string | null;
  by?: string;
  surface?: string;
  at?: string;
  edited?: Json;
  value?: Json;
}

/** An approval of any kind. Fields that belong to one kind are absent in the others. */
export interface Approval {
  approval_id: string;
  kind: ApprovalKind;
  purpose: string;
  max_risk_level?: Risk;
  requested_at: string;
  deadline: string | null;
  on_deadline?: string;
  state: ApprovalState;
  session_id: string;
  run_id: string | null;
  /** For an approval of a child session: the root session and run that it works for. */
  root?: { session_id: string; run_id: string | null };
  user_id?: string;
  decisions: RecordedAnswer[];
  answer?: RecordedAnswer | null;
  escalated_to?: string;
  closed_at?: string | null;
  /** Kinds `plan` and `preflight`. */
  steps?: (PlanStep | ChecklistStep)[];
  estimatedCost?: { inputTokens?: number; outputTokens?: number; estimatedUSD?: number | null };
  requiredPermissions?: string[];
  warnings?: string[];
  /** Kind `budget`. */
  budget?: { scope?: string; period?: string; measure?: Json; limit?: Json };
  spent?: Json;
  needed?: Json;
  /** Kind `unknown_outcome`. */
  call?: { call_id?: string; tool?: string; arguments?: Json; [key: string]: Json | undefined };
  why?: Json;
  /** Kind `elicitation`: a form, or a URL to open. */
  message?: string;
  mode?: string;
  schema?: JsonObject;
  url?: string;
  tool?: string;
  server?: string;
}

/** A tool in the tool registry. */
export interface Tool {
  name: string;
  server: string;
  description: string;
  input_schema: JsonObject;
  risk: Risk;
  risk_source: { kind: string; glob?: string; hint?: string; word?: string };
  parallel: boolean;
  repeatable: boolean;
  available: boolean;
  unavailable_because: string | null;
}

/** A connected tool server. */
export interface ToolServer {
  name: string;
  state: string;
  reason?: string | null;
  tools?: number;
  [key: string]: Json | undefined;
}

/** The result of the policy for a call. */
export interface Verdict {
  verdict: "allow" | "ask" | "deny" | "invalid";
  why: string;
  cost?: CallCost | null;
  required_level?: number | null;
}

/**
 * The policy of an agent for the current user. `matrix` has a row per level and a column per risk.
 */
export interface Policy {
  agent: string;
  autonomy_level: number;
  levels: string[];
  risks: Risk[];
  matrix: ("allow" | "ask" | "confirm" | "budget" | "deny")[][];
  ceilings: CeilingLimit[];
  tools: { name: string; levels: Verdict[] }[];
}

/** The snapshot of a live actor on the status board. */
export interface Actor {
  path: string;
  kind: string;
  state: string;
  waiting: { for_whom: string; since: string } | null;
  mailbox_depth: number;
  mailbox_depth_max: number;
  current_message: string | null;
  current_message_since: string | null;
  handled: number;
  failed: number;
  restarts: number;
  started_at: string;
  last_error: string | null;
  /** The orders that the actor accepts. */
  takes?: ("stop" | "restart")[];
}

/** A row of the audit log. */
export interface AuditRow {
  n: number;
  at: string;
  action: string;
  outcome: string;
  user?: string;
  role?: string;
  signed_in_by?: string;
  surface?: string;
  session_id?: string;
  seq?: number;
  run_id?: string;
  approval_id?: string;
  call_id?: string;
  tool?: string;
  digest?: string;
  reason?: string;
  details?: Json;
  hash: string;
}

/** An approval that covers later calls of a tool in the session. */
export interface Grant {
  grant_id: string;
  tool: string;
  server?: string;
  where?: string | null;
  by: string;
  at: string;
}

/** The content of one step's model request, section by section. */
export interface ContextManifest {
  model: string;
  window_tokens: number;
  output_tokens: number;
  tokens: number;
  sections: ContextSection[];
  run_id: string;
  step: number;
  attempt: number;
  seq: number;
}

/** One section of a model request. */
export interface ContextSection {
  name: string;
  tokens: number;
  items?: string[];
  included?: number;
  left_out?: number;
  summarised?: number;
  cut?: number;
}

/** A workflow: a task with inputs, defined in a file or by a tool server. */
export interface Workflow {
  name: string;
  source: "file" | "mcp";
  server?: string;
  description: string | null;
  inputs: WorkflowInput[];
  autonomy_level?: number | null;
  preflight?: boolean;
}

/** An input of a workflow. Its other fields are JSON schema keywords. */
export interface WorkflowInput {
  name: string;
  required: boolean;
  [rule: string]: Json | undefined;
}

/** A distribution of durations in milliseconds. Statistics of an empty distribution are null. */
export interface DurationSummary {
  count: number;
  average: number | null;
  p50: number | null;
  p95: number | null;
  longest: number;
}

/** Statistics of the runs of an agent or of a workflow. */
export interface RunStatistics {
  runs: number;
  completed: number;
  failed: number;
  cancelled: number;
  failure_rate: number | null;
  steps: number;
  step_retries: number;
  run_ms: DurationSummary;
  usage: Usage;
  /** `stars[i]` is the number of ratings with `i + 1` stars. */
  rating: { count: number; average: number | null; stars: number[] };
}

/** Statistics of the steps of a model. */
export interface ModelStatistics {
  steps: number;
  completed: number;
  failed: number;
  failure_rate: number | null;
  step_ms: DurationSummary;
  usage: Usage;
}

/** Statistics of the calls of a tool. */
export interface ToolStatistics {
  calls: number;
  completed: number;
  failed: number;
  failure_rate: number | null;
  denied: number;
  denial_rate: number | null;
  /** Calls that were rejected, expired or cancelled. */
  refused: number;
  asked: number;
  approved: number;
  rejected: number;
  expired: number;
  approval_rate: number | null;
  retries: number;
  call_ms: DurationSummary;
  verdicts: { good: number; unnecessary: number; wrong: number };
}

/** Statistics of the approvals of one kind. */
export interface ApprovalKindStatistics {
  asked: number;
  decided: number;
  expired: number;
  cancelled: number;
  wait_ms: DurationSummary;
}

/** The counts of one time interval of the timeline. */
export interface TimelineBucket {
  at: string;
  runs: { completed: number; failed: number; cancelled: number };
  calls: { completed: number; failed: number; denied: number; refused: number };
  retries: number;
  usage: Usage;
  step_ms: DurationSummary;
}

/** The response of `/agent/statistics`. */
export interface Statistics {
  agents: Record<string, RunStatistics>;
  workflows: Record<string, RunStatistics>;
  models: Record<string, ModelStatistics>;
  tools: Record<string, ToolStatistics>;
  approvals: Record<string, ApprovalKindStatistics>;
  timeline: { width_s: number; buckets: TimelineBucket[] };
  looked_at: { sessions: number; events: number; complete: boolean; since: string | null };
}
