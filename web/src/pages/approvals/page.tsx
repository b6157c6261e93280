/** The approvals page: pending approvals of all sessions, and closed ones. */

import { useState } from "preact/hooks";
import { client } from "../../api/client";
import type { Approval } from "../../api/types";
import { RelativeTime } from "../../components/time";
import { Badge, Button, EmptyState, ErrorNotice, Loading, SegmentedControl } from "../../components/ui";
import { EscapedText } from "../../components/escaped_text";
import { sessionTitle } from "../../components/format";
import { useLoad } from "../../components/use_load";
import { ApprovalCard } from "../../approvals/approval_card";
import { approvalInbox, loadApprovals, currentUser, sessions } from "../../state/app_state";
import { routeUrl } from "../../state/route";
import { useStore } from "../../state/store";

/** The page with pending and closed approvals. */
export function ApprovalsPage() {
  const [tab, setTab] = useState<"pending" | "closed">("pending");
  const pendingCount = useStore(approvalInbox, (inbox) => inbox.approvals.length);
  return (
    <div class="page">
      <header class="page-head">
        <h1>Approvals</h1>
        <SegmentedControl label="Filter" value={tab} onChange={setTab} options={[
          { value: "pending", label: pendingCount ? `Pending ${pendingCount}` : "Pending" }, { value: "closed", label: "Closed" },
        ]} />
      </header>
      <div class="page-body" tabIndex={0} role="region" aria-label="Approvals">{tab === "pending" ? <PendingApprovals /> : <ClosedApprovalsTable />}</div>
    </div>
  );
}

function PendingApprovals() {
  const { approvals, loaded, error } = useStore(approvalInbox);
  if (error && !approvals.length) return <ErrorNotice problem={error} onRetry={() => void loadApprovals()} />;
  if (!loaded) return <Loading subject="approvals" lines={6} />;
  if (!approvals.length) {
    return <EmptyState icon="inbox" title="No pending approvals">Calls that need approval appear here and in their session. The first answer counts.</EmptyState>;
  }
  // Sorted by deadline; approvals without a deadline are last.
  const sorted = [...approvals].sort((a, b) => (a.deadline ?? "~").localeCompare(b.deadline ?? "~"));
  return <><h2 class="sr-only">Pending approvals</h2><ul class="inbox">{sorted.map((approval) => <li key={approval.approval_id}><ApprovalCard approval={approval} source={<ApprovalSource approval={approval} />} /></li>)}</ul></>;
}

/**
 * Returns true if the user may open the session. Approvers may not open the sessions of other
 * users.
 */
function canOpenSession(approval: Approval): boolean {
  const user = currentUser.get();
  return user?.role === "admin" || approval.user_id === undefined || approval.user_id === user?.user_id;
}

function ApprovalSource({ approval }: { approval: Approval }) {
  const sessionId = approval.root?.session_id ?? approval.session_id;
  const session = useStore(sessions, (list) => list.sessions.find((candidate) => candidate.session_id === sessionId));
  return (
    <>{canOpenSession(approval) ? <a href={routeUrl("chat", sessionId)}>{session ? sessionTitle(session) : "session"}</a> : "session of"}
      {approval.user_id && <>{canOpenSession(approval) ? " · " : " "}{approval.user_id}</>} · <RelativeTime timestamp={approval.requested_at} /></>
  );
}

const TONE = { decided: "good", expired: "warn", cancelled: "plain", pending: "warn" } as const;

function ClosedApprovalsTable() {
  const [pages, setPages] = useState<Approval[][]>([]);
  const [before, setBefore] = useState<string | undefined>(undefined);
  const { value, problem, reload } = useLoad(() => client.listApprovals({ before, limit: 50 }), [before]);
  if (problem && !value) return <ErrorNotice problem={problem} onRetry={reload} />;
  if (!value) return <Loading subject="approvals" lines={6} />;
  const closedApprovals = [...pages.flat(), ...value.approvals].filter((approval) => approval.state !== "pending");
  if (!closedApprovals.length) return <EmptyState icon="inbox" title="No closed approvals yet" />;
  return (
    <div class="table-frame">
      <table class="table">
        <thead><tr><th>Requested</th><th>Purpose</th><th>Outcome</th><th>By</th><th>Surface</th><th>Session</th></tr></thead>
        <tbody>
          {closedApprovals.map((approval) => {
            const decisions = approval.answer ? [approval.answer] : approval.decisions;
            const approved = decisions.filter((answer) => answer.approved).length;
            const outcome = approval.state !== "decided" ? approval.state
              : decisions[0]?.decision ?? (approved === 0 ? "rejected" : approved === decisions.length ? "approved" : `${approved} of ${decisions.length} approved`);
            return (
              <tr key={approval.approval_id}>
                <td><RelativeTime timestamp={approval.requested_at} /></td>
                <td><EscapedText text={approval.purpose} /><div class="hint"><EscapedText text={approval.steps?.map((step) => ("tool" in step ? step.tool : step.toolName)).filter(Boolean).join(", ") ?? ""} /></div></td>
                <td><Badge tone={outcome === "rejected" ? "bad" : TONE[approval.state]}>{outcome}</Badge></td>
                <td>{[...new Set(decisions.map((answer) => answer.by))].join(", ")}</td>
                <td>{[...new Set(decisions.map((answer) => answer.surface))].join(", ")}</td>
                <td>{canOpenSession(approval) ? <a href={routeUrl("chat", approval.root?.session_id ?? approval.session_id)}>Open</a> : approval.user_id}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
      {value.next && <Button tone="quiet" onClick={() => { setPages([...pages, value.approvals]); setBefore(value.next ?? undefined); }}>Load older approvals</Button>}
    </div>
  );
}
