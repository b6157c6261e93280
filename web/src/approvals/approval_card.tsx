/** A question to a person, of whatever kind, with its deadline; and how it came out. */

import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import type { RecordedAnswer, Approval } from "../api/types";
import { Icon } from "../components/icon";
import { Countdown, CountdownRing } from "../components/time";
import { Badge, RiskBadge } from "../components/ui";
import { useFocusHandover } from "../components/use_focus";
import { EscapedText, escapeUnsafe } from "../components/escaped_text";
import { shortId } from "../components/format";
import { type AnswerState, problemText, useAnswer } from "./use_answer";
import { BudgetApproval } from "./budget_approval";
import { ElicitationApproval } from "./elicitation_approval";
import { APPROVAL_TITLES } from "./approval_announcements";
import { PlanApproval } from "./plan_approval";
import { PreflightApproval } from "./preflight_approval";
import { UnknownOutcomeApproval } from "./unknown_outcome_approval";

export function ApprovalCard({ question, from }: { question: Approval; from?: ComponentChildren }) {
  const answering = useAnswer(question.approval_id);
  const box = useRef<HTMLElement>(null);
  useFocusHandover(box, ".question", question.state === "pending");
  if (question.state !== "pending") return <ClosedApproval question={question} />;
  return (
    <section ref={box} tabIndex={-1} class={`question ${question.kind}`} aria-label={`${APPROVAL_TITLES[question.kind] ?? "Question"}: ${escapeUnsafe(question.purpose)}, ${shortId(question.approval_id)}`}
      data-approval={question.approval_id}>
      <header>
        <span class="question-icon"><Icon name={question.kind === "unknown_outcome" ? "warn" : "shield"} /></span>
        <div class="question-title">
          <h3>{APPROVAL_TITLES[question.kind] ?? question.kind}</h3>
          <p><EscapedText text={question.purpose} />{from && <> · {from}</>}</p>
        </div>
        {question.max_risk_level && <RiskBadge risk={question.max_risk_level} />}
        <Deadline question={question} />
      </header>
      <ApprovalBody question={question} answering={answering} />
      {answering.problem && <p class="wrong" role="alert">{problemText(answering.problem)}</p>}
    </section>
  );
}

function ApprovalBody({ question, answering }: { question: Approval; answering: AnswerState }) {
  switch (question.kind) {
    case "plan": return <PlanApproval question={question} answering={answering} />;
    case "preflight": return <PreflightApproval question={question} answering={answering} />;
    case "budget": return <BudgetApproval question={question} answering={answering} />;
    case "unknown_outcome": return <UnknownOutcomeApproval question={question} answering={answering} />;
    case "elicitation": return <ElicitationApproval question={question} answering={answering} />;
    default: return <p class="hint">This kind of question needs a newer dashboard.</p>;
  }
}

const DEADLINE_TEXTS: Record<string, string> = {
  deny: "then it is denied", escalate: "then others are asked", wait: "and it goes on waiting",
};

function Deadline({ question }: { question: Approval }) {
  if (!question.deadline) return <span class="deadline">no deadline</span>;
  const then = DEADLINE_TEXTS[question.on_deadline ?? ""];
  return (
    <span class="deadline" title={then}>
      <CountdownRing from={question.requested_at} until={question.deadline} />
      <Countdown until={question.deadline} over="time is up" />
      {question.escalated_to && <Badge tone="warn">for {question.escalated_to}s</Badge>}
    </span>
  );
}

/** One line that tells how it ended. */
function ClosedApproval({ question }: { question: Approval }) {
  const decisions = question.answer ? [question.answer] : question.decisions;
  const by = [...new Set(decisions.map((one) => one.by).filter(Boolean))].join(", ");
  const [tone, text] = outcome(question, decisions);
  const reason = decisions.map((one) => one.reason).find(Boolean);
  return (
    <p class={`answered ${tone}`}>
      <Icon name={tone === "good" ? "check" : tone === "warn" ? "clock" : "close"} size={15} />
      <span>{text}{by && ` by ${by}`}{decisions.some((one) => one.edited !== undefined && one.edited !== null) && ", with other arguments"}
        {reason && <q dir="auto">{reason}</q>}</span>
    </p>
  );
}

function outcome(question: Approval, decisions: RecordedAnswer[]): ["good" | "warn" | "bad", string] {
  if (question.state === "expired") return ["warn", "Nobody answered in time"];
  if (question.state === "cancelled") return ["warn", "Withdrawn"];
  const approved = decisions.filter((one) => one.approved ?? one.decision === "approve").length;
  const word = decisions[0]?.decision;
  if (word && word !== "approve" && word !== "reject") {
    const said: Record<string, string> = {
      raise: "Budget raised", stop: "Stopped", retry: "To be tried again", done: "Marked as done", failed: "Marked as failed", answer: "Answered",
    };
    return [word === "stop" || word === "failed" ? "bad" : "good", said[word] ?? word];
  }
  if (!approved) return ["bad", "Rejected"];
  return ["good", approved === decisions.length ? "Approved" : `${approved} of ${decisions.length} approved`];
}
