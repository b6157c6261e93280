/** The card of an approval of any kind, with its deadline; and the outcome of a closed approval. */

import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import type { RecordedAnswer, Approval } from "../api/types";
import { Icon } from "../components/icon";
import { Countdown, CountdownRing } from "../components/time";
import { Badge, RiskBadge } from "../components/ui";
import { useFocusHandover } from "../components/use_focus";
import { EscapedText, escapeUnsafe } from "../components/escaped_text";
import { shortId } from "../components/format";
import { type AnswerState, answerErrorText, useAnswer } from "./use_answer";
import { BudgetApproval } from "./budget_approval";
import { ElicitationApproval } from "./elicitation_approval";
import { APPROVAL_KIND_TITLES } from "./approval_announcements";
import { PlanApproval } from "./plan_approval";
import { PreflightApproval } from "./preflight_approval";
import { UnknownOutcomeApproval } from "./unknown_outcome_approval";

/**
 * Shows a pending approval with controls, or the outcome of a closed one. `source` links to its
 * session.
 */
export function ApprovalCard({ approval, source }: { approval: Approval; source?: ComponentChildren }) {
  const answerState = useAnswer(approval.approval_id);
  const cardRef = useRef<HTMLElement>(null);
  useFocusHandover(cardRef, ".approval-card", approval.state === "pending");
  if (approval.state !== "pending") return <ClosedApproval approval={approval} />;
  return (
    <section ref={cardRef} tabIndex={-1} class={`approval-card ${approval.kind}`} aria-label={`${APPROVAL_KIND_TITLES[approval.kind] ?? "Approval"}: ${escapeUnsafe(approval.purpose)}, ${shortId(approval.approval_id)}`}
      data-approval={approval.approval_id}>
      <header>
        <span class="approval-icon"><Icon name={approval.kind === "unknown_outcome" ? "warn" : "shield"} /></span>
        <div class="approval-title">
          <h3>{APPROVAL_KIND_TITLES[approval.kind] ?? approval.kind}</h3>
          <p><EscapedText text={approval.purpose} />{source && <> · {source}</>}</p>
        </div>
        {approval.max_risk_level && <RiskBadge risk={approval.max_risk_level} />}
        <Deadline approval={approval} />
      </header>
      <ApprovalBody approval={approval} answerState={answerState} />
      {answerState.problem && <p class="error-text" role="alert">{answerErrorText(answerState.problem)}</p>}
    </section>
  );
}

function ApprovalBody({ approval, answerState }: { approval: Approval; answerState: AnswerState }) {
  switch (approval.kind) {
    case "plan": return <PlanApproval approval={approval} answerState={answerState} />;
    case "preflight": return <PreflightApproval approval={approval} answerState={answerState} />;
    case "budget": return <BudgetApproval approval={approval} answerState={answerState} />;
    case "unknown_outcome": return <UnknownOutcomeApproval approval={approval} answerState={answerState} />;
    case "elicitation": return <ElicitationApproval approval={approval} answerState={answerState} />;
    default: return <p class="hint">This version of the dashboard does not support this kind of approval.</p>;
  }
}

const DEADLINE_TEXTS: Record<string, string> = {
  deny: "Denied at the deadline", escalate: "Escalated at the deadline", wait: "Stays open after the deadline",
};

function Deadline({ approval }: { approval: Approval }) {
  if (!approval.deadline) return <span class="deadline">No deadline</span>;
  const deadlineText = DEADLINE_TEXTS[approval.on_deadline ?? ""];
  return (
    <span class="deadline" title={deadlineText}>
      <CountdownRing from={approval.requested_at} until={approval.deadline} />
      <Countdown until={approval.deadline} endedText="expired" />
      {approval.escalated_to && <Badge tone="warn">Escalated to {approval.escalated_to}s</Badge>}
    </span>
  );
}

/** One line with the outcome of a closed approval. */
function ClosedApproval({ approval }: { approval: Approval }) {
  const decisions = approval.answer ? [approval.answer] : approval.decisions;
  const by = [...new Set(decisions.map((answer) => answer.by).filter(Boolean))].join(", ");
  const [tone, text] = outcome(approval, decisions);
  const reason = decisions.map((answer) => answer.reason).find(Boolean);
  return (
    <p class={`closed-approval ${tone}`}>
      <Icon name={tone === "good" ? "check" : tone === "warn" ? "clock" : "close"} size={15} />
      <span>{text}{by && ` by ${by}`}{decisions.some((answer) => answer.edited !== undefined && answer.edited !== null) && ", arguments edited"}
        {reason && <q dir="auto">{reason}</q>}</span>
    </p>
  );
}

function outcome(approval: Approval, decisions: RecordedAnswer[]): ["good" | "warn" | "bad", string] {
  if (approval.state === "expired") return ["warn", "Expired"];
  if (approval.state === "cancelled") return ["warn", "Cancelled"];
  const approved = decisions.filter((answer) => answer.approved ?? answer.decision === "approve").length;
  const firstDecision = decisions[0]?.decision;
  if (firstDecision && firstDecision !== "approve" && firstDecision !== "reject") {
    const labels: Record<string, string> = {
      raise: "Budget raised", stop: "Run stopped", retry: "Retry requested", done: "Marked as done", failed: "Marked as failed", answer: "Answered",
    };
    return [firstDecision === "stop" || firstDecision === "failed" ? "bad" : "good", labels[firstDecision] ?? firstDecision];
  }
  if (!approved) return ["bad", "Rejected"];
  return ["good", approved === decisions.length ? "Approved" : `${approved} of ${decisions.length} approved`];
}
