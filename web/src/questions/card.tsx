/** A question to a person, of whatever kind, with its deadline; and how it came out. */

import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import type { Decision, Question } from "../api/types";
import { Icon } from "../parts/icon";
import { Countdown, Ring } from "../parts/time";
import { Badge, RiskBadge } from "../parts/ui";
import { useHandOn } from "../parts/use_hand_on";
import { Visible, visible } from "../parts/visible";
import { short } from "../parts/words";
import { type Answering, inWords, useAnswering } from "./answering";
import { BudgetQuestion } from "./budget";
import { ElicitationQuestion } from "./elicitation";
import { TITLES } from "./heard";
import { PlanQuestion } from "./plan";
import { PreflightQuestion } from "./preflight";
import { UnknownOutcomeQuestion } from "./unknown_outcome";

export function QuestionCard({ question, from }: { question: Question; from?: ComponentChildren }) {
  const answering = useAnswering(question.approval_id);
  const box = useRef<HTMLElement>(null);
  useHandOn(box, ".question", question.state === "pending");
  if (question.state !== "pending") return <Closed question={question} />;
  return (
    <section ref={box} tabIndex={-1} class={`question ${question.kind}`} aria-label={`${TITLES[question.kind] ?? "Question"}: ${visible(question.purpose)}, ${short(question.approval_id)}`}
      data-approval={question.approval_id}>
      <header>
        <span class="question-icon"><Icon name={question.kind === "unknown_outcome" ? "warn" : "shield"} /></span>
        <div class="question-title">
          <h3>{TITLES[question.kind] ?? question.kind}</h3>
          <p><Visible text={question.purpose} />{from && <> · {from}</>}</p>
        </div>
        {question.max_risk_level && <RiskBadge risk={question.max_risk_level} />}
        <Deadline question={question} />
      </header>
      <Body question={question} answering={answering} />
      {answering.problem && <p class="wrong" role="alert">{inWords(answering.problem)}</p>}
    </section>
  );
}

function Body({ question, answering }: { question: Question; answering: Answering }) {
  switch (question.kind) {
    case "plan": return <PlanQuestion question={question} answering={answering} />;
    case "preflight": return <PreflightQuestion question={question} answering={answering} />;
    case "budget": return <BudgetQuestion question={question} answering={answering} />;
    case "unknown_outcome": return <UnknownOutcomeQuestion question={question} answering={answering} />;
    case "elicitation": return <ElicitationQuestion question={question} answering={answering} />;
    default: return <p class="hint">This kind of question needs a newer dashboard.</p>;
  }
}

const THEN: Record<string, string> = {
  deny: "then it is denied", escalate: "then others are asked", wait: "and it goes on waiting",
};

function Deadline({ question }: { question: Question }) {
  if (!question.deadline) return <span class="deadline">no deadline</span>;
  const then = THEN[question.on_deadline ?? ""];
  return (
    <span class="deadline" title={then}>
      <Ring from={question.requested_at} until={question.deadline} />
      <Countdown until={question.deadline} over="time is up" />
      {question.escalated_to && <Badge tone="warn">for {question.escalated_to}s</Badge>}
    </span>
  );
}

/** One line that tells how it ended. */
function Closed({ question }: { question: Question }) {
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

function outcome(question: Question, decisions: Decision[]): ["good" | "warn" | "bad", string] {
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
