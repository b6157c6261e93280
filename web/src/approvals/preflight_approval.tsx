/** The checklist of a plan before the work: each step can be changed or skipped. */

import { useState } from "preact/hooks";
import type { ApprovalAnswer } from "../api/client";
import type { ChecklistStep, Approval } from "../api/types";
import { Icon } from "../components/icon";
import { Badge, Button, AutofocusInput, RiskBadge } from "../components/ui";
import { EscapedText, escapeUnsafe } from "../components/escaped_text";
import { formatCompact, formatMoney } from "../components/format";
import type { AnswerState } from "./use_answer";
import { ArgumentsTable } from "./plan_approval";

interface StepChange {
  skip?: boolean;
  description?: string;
}

export function PreflightApproval({ question, answering }: { question: Approval; answering: AnswerState }) {
  const [changes, setChanges] = useState<Record<number, StepChange>>({});
  const steps = (question.steps ?? []) as ChecklistStep[];
  const put = (position: number, change: StepChange) =>
    setChanges((all) => ({ ...all, [position]: { ...all[position], ...change } }));
  const approve = () => {
    const changed = Object.entries(changes)
      .map(([position, change]) => ({ position: Number(position), ...change }))
      .filter((change) => change.skip || change.description !== undefined);
    const answer: ApprovalAnswer = { decision: "approve", ...(changed.length ? { steps: changed } : {}) };
    void answering.answer("approve", answer);
  };
  const estimate = question.estimatedCost;
  const left = steps.filter((step) => !changes[step.position]?.skip).length;
  return (
    <>
      <ol class="steps checklist">
        {steps.map((step) => (
          <ChecklistItem key={step.position} step={step} change={changes[step.position] ?? {}} onChange={(change) => put(step.position, change)} />
        ))}
      </ol>
      {!!question.warnings?.length && (
        <ul class="warnings">{question.warnings.map((warning) => <li key={warning}><Icon name="warn" size={15} /> <EscapedText text={warning} /></li>)}</ul>
      )}
      <footer>
        <p class="hint">
          {estimate && <>about {formatCompact((estimate.inputTokens ?? 0) + (estimate.outputTokens ?? 0))} tokens, {formatMoney(estimate.estimatedUSD ?? null)}</>}
          {!!question.requiredPermissions?.length && <> · needs <EscapedText text={question.requiredPermissions.join(", ")} /></>}
        </p>
        <div class="answers">
          <Button tone="danger" busy={answering.busy === "reject"} onClick={() => void answering.answer("reject", { decision: "reject" })}>Refuse</Button>
          <Button tone="primary" icon="check" busy={answering.busy === "approve"} disabled={left === 0} onClick={approve}>
            {left === steps.length ? "Approve the plan" : `Approve ${left} of ${steps.length} steps`}
          </Button>
        </div>
      </footer>
    </>
  );
}

function ChecklistItem({ step, change, onChange }: { step: ChecklistStep; change: StepChange; onChange: (change: StepChange) => void }) {
  const [editing, setEditing] = useState(false);
  return (
    <li class={`step ${change.skip ? "skipped" : ""}`}>
      <div class="step-head">
        {editing
          ? <AutofocusInput label={`Description of step ${step.position}`} value={change.description ?? escapeUnsafe(step.description)}
              onInput={(description) => onChange({ description })} />
          : <span class="step-text" dir="auto"><EscapedText text={change.description ?? step.description} /></span>}
        {step.needsApproval && <Badge tone="warn" title="Approving the plan covers it">needs approval</Badge>}
        {step.risk && <RiskBadge risk={step.risk} />}
      </div>
      {step.toolName && <div class="step-call"><code class="tool-name"><EscapedText text={step.toolName} /></code>
        {step.arguments !== undefined && step.arguments !== null && <ArgumentsTable value={step.arguments} />}</div>}
      <div class="step-more">
        <button type="button" class="text-button" aria-pressed={!!change.skip} onClick={() => onChange({ skip: !change.skip })}>
          {change.skip ? "Do it after all" : "Skip"}
        </button>
        {!editing && !change.skip && (
          <button type="button" class="text-button" onClick={() => setEditing(true)}><Icon name="pencil" size={14} /> Reword</button>
        )}
      </div>
    </li>
  );
}
