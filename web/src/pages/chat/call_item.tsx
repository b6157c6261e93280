/** A call in the message list, and the child sessions that work for it. */

import { memo } from "preact/compat";
import { Icon } from "../../components/icon";
import { Badge } from "../../components/ui";
import { formatDuration, formatTokens } from "../../components/format";
import { ApprovalCard } from "../../approvals/approval_card";
import { type ChildSession, childSessionsOfCall, type SessionView, type SessionItem, sessionStatus } from "../../state/session_view";
import { routeUrl } from "../../state/route";
import { CallCard } from "./call_card";

/**
 * Shows a call and its child sessions. A call that waits for approval is shown by its approval
 * card.
 */
export function CallItem({ id, view, children, session_id }: {
  id: string; view: SessionView; children: SessionView["children"]; session_id: string;
}) {
  const call = view.calls[id];
  if (!call) return null;
  const approval = call.phase === "waiting" && call.approval_id ? view.approvals[call.approval_id] : undefined;
  return (
    <>
      {approval?.state !== "pending" && <CallCard call={call} session_id={session_id} />}
      {childSessionsOfCall({ children }, id).map((child) => <ChildCard key={child.session_id} child={child} children={children} />)}
    </>
  );
}

const STATUS_LABELS = { running: "running", waiting: "waiting for approval", idle: "done", closed: "done" } as const;

/** A child session: its calls, approvals and warnings. Its text goes to the call as the result. */
const ChildCard = memo(function ChildCard({ child, children }: { child: ChildSession; children: SessionView["children"] }) {
  const { view, agent, session_id } = child;
  const status = child.gone ? "closed" : sessionStatus(view);
  const end = view.items.findLast((item) => item.kind === "end");
  const shownItems = view.items.filter((item) => item.kind === "call" || item.kind === "approval" || (item.kind === "notice" && item.tone !== "info"));
  return (
    <section class="child" aria-label={`Child session of agent ${agent}`} data-agent={agent} data-status={status}>
      <header>
        <span class="child-icon"><Icon name="branch" size={15} /></span>
        <strong>{agent}</strong>
        <span class="child-state"><span class={`status-dot ${status}`} aria-hidden="true" /> {child.gone ? "unavailable" : STATUS_LABELS[status]}</span>
        {end?.kind === "end" && end.outcome !== "completed" && <Badge tone={end.outcome === "failed" ? "bad" : "warn"}>{end.outcome}</Badge>}
        {end?.kind === "end" && <span class="hint numbers">{formatDuration(end.ms)}{end.usage && ` · ${formatTokens(end.usage)}`}</span>}
        <a href={routeUrl("chat", session_id)}>Open</a>
      </header>
      {shownItems.length > 0 && (
        <ol>{shownItems.map((item) => <li key={`${item.kind}${item.id}`}><ChildItem item={item} view={view} children={children} session_id={session_id} /></li>)}</ol>
      )}
      {end?.kind === "end" && end.outcome === "failed" && <p class="call-reason">{end.text}</p>}
    </section>
  );
});

function ChildItem({ item, view, children, session_id }: {
  item: SessionItem; view: SessionView; children: SessionView["children"]; session_id: string;
}) {
  switch (item.kind) {
    case "call": return <CallItem id={item.id} view={view} children={children} session_id={session_id} />;
    case "approval": return view.approvals[item.id] ? <ApprovalCard approval={view.approvals[item.id]!} /> : null;
    case "notice": return <p class={`notice ${item.tone}`}><Icon name="warn" size={15} /><span>{item.text}{item.detail && <small>{item.detail}</small>}</span></p>;
    case "user":
    case "assistant":
    case "summary":
    case "end":
      return null;
  }
}
