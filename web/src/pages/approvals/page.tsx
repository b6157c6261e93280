/** All questions that wait for people, across sessions; and those that were answered. */

import { useState } from "preact/hooks";
import { client } from "../../api/client";
import type { Approval } from "../../api/types";
import { RelativeTime } from "../../components/time";
import { Badge, Button, EmptyState, ErrorNotice, Loading, SegmentedControl } from "../../components/ui";
import { EscapedText } from "../../components/escaped_text";
import { sessionTitle } from "../../components/format";
import { useLoad } from "../../components/use_load";
import { ApprovalCard } from "../../approvals/approval_card";
import { approvalInbox, loadApprovals, me, sessions } from "../../state/app_state";
import { routeUrl } from "../../state/route";
import { useStore } from "../../state/store";

export function ApprovalsPage() {
  const [shown, setShown] = useState<"pending" | "answered">("pending");
  const waiting = useStore(approvalInbox, (found) => found.approvals.length);
  return (
    <div class="page">
      <header class="room-head">
        <h1>Approvals</h1>
        <SegmentedControl label="Which" value={shown} onChange={setShown} options={[
          { value: "pending", label: waiting ? `Waiting ${waiting}` : "Waiting" }, { value: "answered", label: "Answered" },
        ]} />
      </header>
      <div class="page-body" tabIndex={0} role="region" aria-label="Approvals">{shown === "pending" ? <Pending /> : <AnsweredTable />}</div>
    </div>
  );
}

function Pending() {
  const { approvals: questions, loaded, error } = useStore(approvalInbox);
  if (error && !questions.length) return <ErrorNotice problem={error} retry={() => void loadApprovals()} />;
  if (!loaded) return <Loading what="approvals" lines={6} />;
  if (!questions.length) {
    return <EmptyState icon="inbox" title="Nobody waits for you">What an agent may not do by itself is asked here, and in its conversation. The first answer counts.</EmptyState>;
  }
  // Those that end first come first.
  const sorted = [...questions].sort((one, other) => (one.deadline ?? "~").localeCompare(other.deadline ?? "~"));
  return <><h2 class="sr-only">Waiting for a person</h2><ul class="inbox">{sorted.map((question) => <li key={question.approval_id}><ApprovalCard question={question} from={<ApprovalSource question={question} />} /></li>)}</ul></>;
}

/** Approvers answer for conversations of others, and don't see them. */
function canOpenSession(question: Approval): boolean {
  const who = me.get();
  return who?.role === "admin" || question.user_id === undefined || question.user_id === who?.user_id;
}

function ApprovalSource({ question }: { question: Approval }) {
  const of = question.root?.session_id ?? question.session_id;
  const session = useStore(sessions, (found) => found.sessions.find((one) => one.session_id === of));
  return (
    <>{canOpenSession(question) ? <a href={routeUrl("chat", of)}>{session ? sessionTitle(session) : "its conversation"}</a> : "a conversation of"}
      {question.user_id && <>{canOpenSession(question) ? " · " : " "}{question.user_id}</>} · <RelativeTime at={question.requested_at} /></>
  );
}

const TONE = { decided: "good", expired: "warn", cancelled: "plain", pending: "warn" } as const;

function AnsweredTable() {
  const [pages, setPages] = useState<Approval[][]>([]);
  const [before, setBefore] = useState<string | undefined>(undefined);
  const { value, problem, reload } = useLoad(() => client.approvals({ before, limit: 50 }), [before]);
  if (problem && !value) return <ErrorNotice problem={problem} retry={reload} />;
  if (!value) return <Loading what="approvals" lines={6} />;
  const all = [...pages.flat(), ...value.approvals].filter((question) => question.state !== "pending");
  if (!all.length) return <EmptyState icon="inbox" title="Nothing was answered yet" />;
  return (
    <div class="table-frame">
      <table class="table">
        <thead><tr><th>Asked</th><th>What</th><th>Outcome</th><th>By</th><th>Through</th><th>Session</th></tr></thead>
        <tbody>
          {all.map((question) => {
            const decisions = question.answer ? [question.answer] : question.decisions;
            const approved = decisions.filter((one) => one.approved).length;
            const outcome = question.state !== "decided" ? question.state
              : decisions[0]?.decision ?? (approved === 0 ? "rejected" : approved === decisions.length ? "approved" : `${approved} of ${decisions.length} approved`);
            return (
              <tr key={question.approval_id}>
                <td><RelativeTime at={question.requested_at} /></td>
                <td><EscapedText text={question.purpose} /><div class="hint"><EscapedText text={question.steps?.map((step) => ("tool" in step ? step.tool : step.toolName)).filter(Boolean).join(", ") ?? ""} /></div></td>
                <td><Badge tone={outcome === "rejected" ? "bad" : TONE[question.state]}>{outcome}</Badge></td>
                <td>{[...new Set(decisions.map((one) => one.by))].join(", ")}</td>
                <td>{[...new Set(decisions.map((one) => one.surface))].join(", ")}</td>
                <td>{canOpenSession(question) ? <a href={routeUrl("chat", question.root?.session_id ?? question.session_id)}>open</a> : question.user_id}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
      {value.next && <Button tone="quiet" onClick={() => { setPages([...pages, value.approvals]); setBefore(value.next ?? undefined); }}>Older ones</Button>}
    </div>
  );
}
