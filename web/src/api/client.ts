/** Everything the dashboard asks of the server, typed. */

import { get, send, getText } from "./http";
import { fromFlat } from "./frames";
import type {
  AuditRow, Frame, Grant, Json, JsonObject, ContextManifest, Me, Policy, Approval, Session, Settings, Statistics, Tool,
  ToolServer, Verdict, Workflow,
} from "./types";

const at = encodeURIComponent;

export type OnBusy = "queue" | "steer" | "interrupt" | "reject";

export interface NewMessage {
  session_id: string;
  /** Left out where the workflow speaks for itself. */
  message?: string;
  message_id: string;
  on_busy: OnBusy;
  preflight?: boolean;
  workflow?: WorkflowRequest;
}

export interface WorkflowRequest {
  name: string;
  inputs: JsonObject;
}

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

export const client = {
  me: () => get<Me>("/agent/me"),
  /** Leaves a cookie. */
  signIn: (token: string) => send<null>("POST", "/sign-in", { token }),

  sessions: (before?: string, limit = 50) =>
    get<{ sessions: Session[]; next: string | null }>("/agent/session", { before, limit }),
  session: (id: string) => get<Session>(`/agent/session/${at(id)}`),
  createSession: (wish: { agent?: string; title?: string; autonomy_level?: number; preflight?: boolean }) =>
    send<Session>("POST", "/agent/session", wish),
  closeSession: (id: string) => send<Session>("DELETE", `/agent/session/${at(id)}`),
  purgeSession: (id: string) => send<Json>("DELETE", `/agent/session/${at(id)}?purge=true`),
  changeSession: (id: string, change: Partial<Settings> & { title?: string | null }) =>
    send<Session>("PATCH", `/agent/session/${at(id)}/settings`, change),
  cancel: (id: string, run_id?: string) => send<Json>("POST", `/agent/session/${at(id)}/cancel`, { run_id }),
  fork: (id: string, at_seq?: number, title?: string) =>
    send<Session>("POST", `/agent/session/${at(id)}/fork`, { at_seq, title }),
  grants: (id: string) => get<{ grants: Grant[] }>(`/agent/session/${at(id)}/grants`),
  revokeGrant: (id: string, grant: string) =>
    send<null>("DELETE", `/agent/session/${at(id)}/grants/${at(grant)}`),

  events: async (id: string, after = 0, limit = 500): Promise<{ frames: Frame[]; next: number }> => {
    const page = await get<{ events: JsonObject[]; next: number }>(
      `/agent/session/${at(id)}/events`, { after, limit });
    return { frames: page.events.map(fromFlat), next: page.next };
  },

  approvals: (query: { state?: string; session_id?: string; before?: string; limit?: number }) =>
    get<{ approvals: Approval[]; next: string | null }>("/agent/approvals", query),
  decide: (id: string, answer: ApprovalAnswer) =>
    send<{ closed: boolean; repeated: boolean; approval: Approval }>("POST", `/agent/approvals/${at(id)}`, answer),

  workflows: () => get<{ workflows: Workflow[] }>("/agent/workflows"),
  tools: () => get<{ tools: Tool[]; servers: ToolServer[] }>("/agent/tools"),
  policy: (agent?: string) => get<Policy>("/agent/policy", { agent }),
  judge: (question: { tool: string; arguments: JsonObject; agent?: string; autonomy_level?: number }) =>
    send<Verdict>("POST", "/agent/judge", question),
  settings: (user_id?: string) => get<Settings & { user_id: string; autonomy_name: string }>("/agent/settings", { user_id }),
  changeSettings: (change: Partial<Settings>) => send<Settings>("PATCH", "/agent/settings", change),

  actOn: (path: string, what: "stop" | "restart") => send<Json>("POST", `/admin/actors${path}/${what}`, {}),
  /** The newest rows, or those before one. */
  audit: (query: { session_id?: string; user?: string; action?: string; before?: number; limit?: number }) =>
    get<{ rows: AuditRow[]; next: number | null }>("/admin/audit", { order: "newest", ...query }),
  statistics: (query: { since?: string; sessions?: number }) => get<Statistics>("/agent/statistics", query),
  context: (id: string, step?: number, run_id?: string) =>
    get<ContextManifest>(`/agent/session/${at(id)}/context`, { step, run_id }),
  feedback: (said: { session_id: string; message_id?: string; call_id?: string; rating?: number; verdict?: string; comment?: string }) =>
    send<Json>("POST", "/agent/feedback", said),
  metrics: (signal?: AbortSignal) => getText("/metrics", signal),
};
