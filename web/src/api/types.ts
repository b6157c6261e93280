/** The shapes of docs/protocol.md that the dashboard reads. Unknown fields are ignored. */

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: Json };

export type Risk = "read_only" | "write_low_risk" | "write_high_risk" | "critical";
export type Role = "user" | "approver" | "admin";

export interface Agent {
  name: string;
  description: string;
  headless: boolean;
  max_steps: number;
}

export interface Me {
  user_id: string;
  role: Role;
  agents: Agent[];
  default_agent: string;
  version: string;
}

export interface Usage {
  input_tokens: number;
  output_tokens: number;
  cached_tokens: number;
  /** Null where a price is unknown. */
  cost_usd: number | null;
}

export interface Settings {
  autonomy_level: number;
  require_confirmation: boolean;
  blocked_tools: string[];
  allowed_regions: number[] | null;
  budget_limit: { amount: number; unit: string; period: string } | null;
  preflight?: boolean;
}

export type SessionStatus = "idle" | "running" | "waiting" | "closed";

export interface Session {
  session_id: string;
  user_id: string;
  agent: string;
  title: string | null;
  status: SessionStatus;
  autonomy_level: number;
  preflight: boolean;
  settings: Settings;
  usage: Usage;
  created_at: string;
  updated_at: string;
  head?: number;
}

/** One thing that was said to us: an event of a session, or a piece of text on its way. */
export interface Frame {
  type: string;
  session_id: string;
  run_id: string | null;
  step: number | null;
  /** The session's profile. */
  agent: string;
  /** Null for control frames. */
  seq: number | null;
  /** Where to resume; null for control frames. */
  cursor: string | null;
  at: string;
  body: JsonObject;
}

export interface Cost {
  amount: number;
  unit: string;
}

export interface PlanStep {
  call_id: string;
  tool: string;
  arguments: Json;
  digest: string;
  risk: Risk;
  description?: string;
  why?: string;
  cost?: Cost | null;
}

export interface ChecklistStep {
  position: number;
  description: string;
  toolName?: string;
  arguments?: Json;
  risk?: Risk;
  needsApproval?: boolean;
  cost?: Cost | null;
}

export type ApprovalKind = "plan" | "preflight" | "budget" | "unknown_outcome" | "elicitation";
export type ApprovalState = "pending" | "decided" | "expired" | "cancelled";

/** How one step was decided, or a question that has no steps. */
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

/** A question to a person, of whatever kind. */
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
  /** Where people follow it, if a child asks: the run that it works for in the end. */
  root?: { session_id: string; run_id: string | null };
  user_id?: string;
  decisions: RecordedAnswer[];
  answer?: RecordedAnswer | null;
  escalated_to?: string;
  closed_at?: string | null;
  /** Of a plan, or of a checklist. */
  steps?: (PlanStep | ChecklistStep)[];
  estimatedCost?: { inputTokens?: number; outputTokens?: number; estimatedUSD?: number | null };
  requiredPermissions?: string[];
  warnings?: string[];
  /** Of a budget. */
  budget?: { scope?: string; period?: string; measure?: Json; limit?: Json };
  spent?: Json;
  needed?: Json;
  /** Of an unknown outcome. */
  call?: { call_id?: string; tool?: string; arguments?: Json; [key: string]: Json | undefined };
  why?: Json;
  /** Of an elicitation: a form, or a page to visit. */
  message?: string;
  mode?: string;
  schema?: JsonObject;
  url?: string;
  tool?: string;
  server?: string;
}

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

export interface ToolServer {
  name: string;
  state: string;
  reason?: string | null;
  tools?: number;
  [key: string]: Json | undefined;
}

export interface Verdict {
  verdict: "allow" | "ask" | "deny" | "invalid";
  why: string;
  cost?: Cost | null;
  required_level?: number | null;
}

export interface Policy {
  agent: string;
  autonomy_level: number;
  levels: string[];
  risks: Risk[];
  matrix: ("allow" | "ask" | "confirm" | "budget" | "deny")[][];
  tools: { name: string; levels: Verdict[] }[];
}

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
  /** The orders that it takes. */
  takes?: ("stop" | "restart")[];
}

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

export interface Grant {
  grant_id: string;
  tool: string;
  server?: string;
  where?: string | null;
  by: string;
  at: string;
}

/** What a step was told, part by part. */
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

export interface ContextSection {
  name: string;
  tokens: number;
  items?: string[];
  included?: number;
  left_out?: number;
  summarised?: number;
  cut?: number;
}

/** A task with inputs, of a file or of a tool server. */
export interface Workflow {
  name: string;
  source: "file" | "mcp";
  server?: string;
  description: string | null;
  inputs: WorkflowInput[];
  autonomy_level?: number | null;
  preflight?: boolean;
}

export interface WorkflowInput {
  name: string;
  required: boolean;
  [rule: string]: Json | undefined;
}

/** Milliseconds; those of nothing are null. */
export interface DurationSummary {
  count: number;
  average: number | null;
  p50: number | null;
  p95: number | null;
  longest: number;
}

/** Of an agent or a workflow. */
export interface RunFigures {
  runs: number;
  completed: number;
  failed: number;
  cancelled: number;
  failure_rate: number | null;
  steps: number;
  step_retries: number;
  run_ms: DurationSummary;
  usage: Usage;
  /** `stars` is how often each number of them was given, from one to five. */
  rating: { count: number; average: number | null; stars: number[] };
}

export interface ModelFigures {
  steps: number;
  completed: number;
  failed: number;
  failure_rate: number | null;
  step_ms: DurationSummary;
  usage: Usage;
}

export interface ToolFigures {
  calls: number;
  completed: number;
  failed: number;
  failure_rate: number | null;
  denied: number;
  denial_rate: number | null;
  /** Rejected, not answered in time, or cancelled. */
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

export interface ApprovalFigures {
  asked: number;
  decided: number;
  expired: number;
  cancelled: number;
  wait_ms: DurationSummary;
}

/** What happened within some time. */
export interface TimelineBucket {
  at: string;
  runs: { completed: number; failed: number; cancelled: number };
  calls: { completed: number; failed: number; denied: number; refused: number };
  retries: number;
  usage: Usage;
  step_ms: DurationSummary;
}

export interface Statistics {
  agents: Record<string, RunFigures>;
  workflows: Record<string, RunFigures>;
  models: Record<string, ModelFigures>;
  tools: Record<string, ToolFigures>;
  approvals: Record<string, ApprovalFigures>;
  timeline: { width_s: number; buckets: TimelineBucket[] };
  looked_at: { sessions: number; events: number; complete: boolean; since: string | null };
}
