/** All questions that wait for people, across sessions; and those that were answered. */

import { useState } from "preact/hooks";
import { client } from "../../api/client";
import type { Question } from "../../api/types";
import { Ago } from "../../parts/time";
import { Badge, Button, Empty, Failed, Loading, Segmented } from "../../parts/ui";
import { Visible } from "../../parts/visible";
import { titled } from "../../parts/words";
import { useLoaded } from "../../parts/use_loaded";
import { QuestionCard } from "../../questions/card";
import { inbox, loadInbox, me, sessions } from "../../state/live";
import { link } from "../../state/route";
import { useStore } from "../../state/store";

export function ApprovalsRoom() {
  const [shown, setShown] = useState<"pending" | "answered">("pending");
  const waiting = useStore(inbox, (found) => found.questions.length);
  return (
    <div class="page">
      <header class="room-head">
        <h1>Approvals</h1>
        <Segmented label="Which" value={shown} onChange={setShown} options={[
          { value: "pending", label: waiting ? `Waiting ${waiting}` : "Waiting" }, { value: "answered", label: "Answered" },
        ]} />
      </header>
      <div class="page-body" tabIndex={0} role="region" aria-label="Approvals">{shown === "pending" ? <Pending /> : <Answered />}</div>
    </div>
  );
}

function Pending() {
  const { questions, loaded, error } = useStore(inbox);
  if (error && !questions.length) return <Failed problem={error} retry={() => void loadInbox()} />;
  if (!loaded) return <Loading what="approvals" lines={6} />;
  if (!questions.length) {
    return <Empty icon="inbox" title="Nobody waits for you">What an agent may not do by itself is asked here, and in its conversation. The first answer counts.</Empty>;
  }
  // Those that end first come first.
  const sorted = [...questions].sort((one, other) => (one.deadline ?? "~").localeCompare(other.deadline ?? "~"));
  return <><h2 class="sr-only">Waiting for a person</h2><ul class="inbox">{sorted.map((question) => <li key={question.approval_id}><QuestionCard question={question} from={<From question={question} />} /></li>)}</ul></>;
}

/** Approvers answer for conversations of others, and don't see them. */
function isOpen(question: Question): boolean {
  const who = me.get();
  return who?.role === "admin" || question.user_id === undefined || question.user_id === who?.user_id;
}

function From({ question }: { question: Question }) {
  const of = question.root?.session_id ?? question.session_id;
  const session = useStore(sessions, (found) => found.sessions.find((one) => one.session_id === of));
  return (
    <>{isOpen(question) ? <a href={link("chat", of)}>{session ? titled(session) : "its conversation"}</a> : "a conversation of"}
      {question.user_id && <>{isOpen(question) ? " · " : " "}{question.user_id}</>} · <Ago at={question.requested_at} /></>
  );
}

const TONE = { decided: "good", expired: "warn", cancelled: "plain", pending: "warn" } as const;

function Answered() {
  const [pages, setPages] = useState<Question[][]>([]);
  const [before, setBefore] = useState<string | undefined>(undefined);
  const { value, problem, reload } = useLoaded(() => client.approvals({ before, limit: 50 }), [before]);
  if (problem && !value) return <Failed problem={problem} retry={reload} />;
  if (!value) return <Loading what="approvals" lines={6} />;
  const all = [...pages.flat(), ...value.approvals].filter((question) => question.state !== "pending");
  if (!all.length) return <Empty icon="inbox" title="Nothing was answered yet" />;
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
                <td><Ago at={question.requested_at} /></td>
                <td><Visible text={question.purpose} /><div class="hint"><Visible text={question.steps?.map((step) => ("tool" in step ? step.tool : step.toolName)).filter(Boolean).join(", ") ?? ""} /></div></td>
                <td><Badge tone={outcome === "rejected" ? "bad" : TONE[question.state]}>{outcome}</Badge></td>
                <td>{[...new Set(decisions.map((one) => one.by))].join(", ")}</td>
                <td>{[...new Set(decisions.map((one) => one.surface))].join(", ")}</td>
                <td>{isOpen(question) ? <a href={link("chat", question.root?.session_id ?? question.session_id)}>open</a> : question.user_id}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
      {value.next && <Button tone="quiet" onClick={() => { setPages([...pages, value.approvals]); setBefore(value.next ?? undefined); }}>Older ones</Button>}
    </div>
  );
}
