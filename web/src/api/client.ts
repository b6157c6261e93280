/** The typed API client: one method per server operation that the dashboard uses. */

import { getJson, getText, sendJson } from "./http";
import { fromFlat } from "./frames";
import type {
  AuditRow, Ceilings, Frame, Grant, Json, JsonObject, ContextManifest, CurrentUser, Policy, Approval, Session, LimitedUserSettings, UserSettings, Statistics, Tool,
  ToolServer, Verdict, Workflow,
} from "./types";

const encode = encodeURIComponent;

/** The handling of a message that arrives during a run. */
export type OnBusy = "queue" | "steer" | "interrupt" | "reject";

/** A message to send to a session. */
export interface NewMessage {
  session_id: string;
  /** Absent if the workflow needs no message. */
  message?: string;
  message_id: string;
  on_busy: OnBusy;
  preflight?: boolean;
  workflow?: WorkflowRequest;
}

/** A workflow to run, with its inputs. */
export interface WorkflowRequest {
  name: string;
  inputs: JsonObject;
}

/** The body of an answer to an approval of any kind. */
export interface ApprovalAnswer {
  decision?: "approve" | "reject" | "retry" | "done" | "failed" | "raise" | "stop" | "answer";
  steps?: {
    call_id?: string; position?: number; decision?: "approve" | "reject"; arguments?: Json;
    reason?: string; skip?: boolean; description?: string; toolName?: string;
  }[];
  reason?: string;
  for_session?: { where?: string };
  value?: Json;
}

/** The operations of the API. Each method rejects with a `Problem` when the request fails. */
export const client = {
  getMe: () => getJson<CurrentUser>("/agent/me"),
  /** Sets the sign-in cookie. */
  signIn: (token: string) => sendJson<null>("POST", "/sign-in", { token }),

  listSessions: (before?: string, limit = 50) =>
    getJson<{ sessions: Session[]; next: string | null }>("/agent/session", { before, limit }),
  getSession: (id: string) => getJson<Session>(`/agent/session/${encode(id)}`),
  createSession: (request: { agent?: string; title?: string; autonomy_level?: number; preflight?: boolean }) =>
    sendJson<Session>("POST", "/agent/session", request),
  closeSession: (id: string) => sendJson<Session>("DELETE", `/agent/session/${encode(id)}`),
  purgeSession: (id: string) => sendJson<Json>("DELETE", `/agent/session/${encode(id)}?purge=true`),
  changeSession: (id: string, change: Partial<UserSettings> & { title?: string | null }) =>
    sendJson<Session>("PATCH", `/agent/session/${encode(id)}/settings`, change),
  cancelRun: (id: string, run_id?: string) => sendJson<Json>("POST", `/agent/session/${encode(id)}/cancel`, { run_id }),
  changeQueuedMessage: (id: string, message_id: string, message: string) =>
    sendJson<Json>("PATCH", `/agent/session/${encode(id)}/queue/${encode(message_id)}`, { message }),
  withdrawQueuedMessage: (id: string, message_id: string) =>
    sendJson<Json>("DELETE", `/agent/session/${encode(id)}/queue/${encode(message_id)}`),
  forkSession: (id: string, at_seq?: number, title?: string) =>
    sendJson<Session>("POST", `/agent/session/${encode(id)}/fork`, { at_seq, title }),
  listGrants: (id: string) => getJson<{ grants: Grant[] }>(`/agent/session/${encode(id)}/grants`),
  revokeGrant: (id: string, grant: string) =>
    sendJson<null>("DELETE", `/agent/session/${encode(id)}/grants/${encode(grant)}`),

  listEvents: async (id: string, after = 0, limit = 500): Promise<{ frames: Frame[]; next: number }> => {
    const page = await getJson<{ events: JsonObject[]; next: number }>(
      `/agent/session/${encode(id)}/events`, { after, limit });
    return { frames: page.events.map(fromFlat), next: page.next };
  },

  listApprovals: (query: { state?: string; session_id?: string; before?: string; limit?: number }) =>
    getJson<{ approvals: Approval[]; next: string | null }>("/agent/approvals", query),
  answerApproval: (id: string, answer: ApprovalAnswer) =>
    sendJson<{ closed: boolean; repeated: boolean; approval: Approval }>("POST", `/agent/approvals/${encode(id)}`, answer),

  listWorkflows: () => getJson<{ workflows: Workflow[] }>("/agent/workflows"),
  listTools: () => getJson<{ tools: Tool[]; servers: ToolServer[] }>("/agent/tools"),
  getPolicy: (agent?: string) => getJson<Policy>("/agent/policy", { agent }),
  evaluateCall: (call: { tool: string; arguments: JsonObject; agent?: string; autonomy_level?: number }) =>
    sendJson<Verdict>("POST", "/agent/judge", call),
  getSettings: (user_id?: string) => getJson<LimitedUserSettings>("/agent/settings", { user_id }),
  changeSettings: (change: Partial<UserSettings>) => sendJson<UserSettings>("PATCH", "/agent/settings", change),

  getCeilings: () => getJson<Ceilings>("/admin/ceilings"),
  /** Replaces the stored ceilings; fails with 409 if they no longer have that version. */
  replaceCeilings: (version: number, ceilings: JsonObject) =>
    sendJson<Ceilings>("PUT", "/admin/ceilings", { version, ceilings }),

  controlActor: (path: string, action: "stop" | "restart") => sendJson<Json>("POST", `/admin/actors${path}/${action}`, {}),
  /** Lists the newest rows, or the newest rows before row number `before`. */
  listAuditRows: (query: { session_id?: string; user?: string; action?: string; before?: number; limit?: number }) =>
    getJson<{ rows: AuditRow[]; next: number | null }>("/admin/audit", { order: "newest", ...query }),
  getStatistics: (query: { since?: string; sessions?: number }) => getJson<Statistics>("/agent/statistics", query),
  getContext: (id: string, step?: number, run_id?: string) =>
    getJson<ContextManifest>(`/agent/session/${encode(id)}/context`, { step, run_id }),
  sendFeedback: (feedback: { session_id: string; message_id?: string; call_id?: string; rating?: number; verdict?: string; comment?: string }) =>
    sendJson<Json>("POST", "/agent/feedback", feedback),
  getMetrics: (signal?: AbortSignal) => getText("/metrics", signal),
};
