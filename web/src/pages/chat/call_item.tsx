/** A call among what was said; and what another agent does that works for it. */

import { memo } from "preact/compat";
import { Icon } from "../../components/icon";
import { Badge } from "../../components/ui";
import { formatDuration, formatTokens } from "../../components/format";
import { ApprovalCard } from "../../approvals/approval_card";
import { type ChildSession, childrenOf, type SessionView, type SessionItem, statusOf } from "../../state/session_view";
import { routeUrl } from "../../state/route";
import { CallCard } from "./call_card";

/** While a call waits for a person, its question shows it. `children` are those of the whole conversation. */
export function CallItem({ id, of, children, session_id }: {
  id: string; of: SessionView; children: SessionView["children"]; session_id: string;
}) {
  const call = of.calls[id];
  if (!call) return null;
  const asked = call.phase === "waiting" && call.approval_id ? of.questions[call.approval_id] : undefined;
  return (
    <>
      {asked?.state !== "pending" && <CallCard call={call} session_id={session_id} />}
      {childrenOf({ children }, id).map((child) => <ChildCard key={child.session_id} child={child} children={children} />)}
    </>
  );
}

const STATUS = { running: "at work", waiting: "waits for a person", idle: "done", closed: "done" } as const;

/** Another agent at work: its calls, and what it asks of people. What it says, it says to the call. */
const ChildCard = memo(function ChildCard({ child, children }: { child: ChildSession; children: SessionView["children"] }) {
  const { conversation, agent, session_id } = child;
  const status = child.gone ? "closed" : statusOf(conversation);
  const end = conversation.items.findLast((item) => item.kind === "end");
  const shown = conversation.items.filter((item) => item.kind === "call" || item.kind === "question" || (item.kind === "notice" && item.tone !== "info"));
  return (
    <section class="child" aria-label={`What ${agent} does`} data-agent={agent} data-status={status}>
      <header>
        <span class="child-icon"><Icon name="branch" size={15} /></span>
        <strong>{agent}</strong>
        <span class="child-state"><span class={`status-dot ${status}`} aria-hidden="true" /> {child.gone ? "gone" : STATUS[status]}</span>
        {end?.kind === "end" && end.outcome !== "completed" && <Badge tone={end.outcome === "failed" ? "bad" : "warn"}>{end.outcome}</Badge>}
        {end?.kind === "end" && <span class="hint numbers">{formatDuration(end.ms)}{end.usage && ` · ${formatTokens(end.usage)}`}</span>}
        <a href={routeUrl("chat", session_id)}>Open</a>
      </header>
      {shown.length > 0 && (
        <ol>{shown.map((item) => <li key={`${item.kind}${item.id}`}><ChildItem item={item} conversation={conversation} children={children} session_id={session_id} /></li>)}</ol>
      )}
      {end?.kind === "end" && end.outcome === "failed" && <p class="call-reason">{end.text}</p>}
    </section>
  );
});

function ChildItem({ item, conversation, children, session_id }: {
  item: SessionItem; conversation: SessionView; children: SessionView["children"]; session_id: string;
}) {
  switch (item.kind) {
    case "call": return <CallItem id={item.id} of={conversation} children={children} session_id={session_id} />;
    case "question": return conversation.questions[item.id] ? <ApprovalCard question={conversation.questions[item.id]!} /> : null;
    case "notice": return <p class={`notice ${item.tone}`}><Icon name="warn" size={15} /><span>{item.text}{item.detail && <small>{item.detail}</small>}</span></p>;
    case "user":
    case "assistant":
    case "summary":
    case "end":
      return null;
  }
}
