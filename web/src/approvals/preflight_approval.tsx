/** An approval of kind `preflight`: a checklist whose steps can be reworded or skipped. */

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

/** The controls of a preflight plan. */
export function PreflightApproval({ approval, answerState }: { approval: Approval; answerState: AnswerState }) {
  const [changes, setChanges] = useState<Record<number, StepChange>>({});
  const steps = (approval.steps ?? []) as ChecklistStep[];
  const updateStep = (position: number, change: StepChange) =>
    setChanges((previous) => ({ ...previous, [position]: { ...previous[position], ...change } }));
  const approve = () => {
    const changed = Object.entries(changes)
      .map(([position, change]) => ({ position: Number(position), ...change }))
      .filter((change) => change.skip || change.description !== undefined);
    const answer: ApprovalAnswer = { decision: "approve", ...(changed.length ? { steps: changed } : {}) };
    void answerState.submit("approve", answer);
  };
  const estimate = approval.estimatedCost;
  const includedCount = steps.filter((step) => !changes[step.position]?.skip).length;
  return (
    <>
      <ol class="steps checklist">
        {steps.map((step) => (
          <ChecklistItem key={step.position} step={step} change={changes[step.position] ?? {}} onChange={(change) => updateStep(step.position, change)} />
        ))}
      </ol>
      {!!approval.warnings?.length && (
        <ul class="warnings">{approval.warnings.map((warning) => <li key={warning}><Icon name="warn" size={15} /> <EscapedText text={warning} /></li>)}</ul>
      )}
      <footer>
        <p class="hint">
          {estimate && <>Estimate: {formatCompact((estimate.inputTokens ?? 0) + (estimate.outputTokens ?? 0))} tokens, {formatMoney(estimate.estimatedUSD ?? null)}</>}
          {!!approval.requiredPermissions?.length && <> · requires <EscapedText text={approval.requiredPermissions.join(", ")} /></>}
        </p>
        <div class="button-row">
          <Button tone="danger" busy={answerState.busy === "reject"} onClick={() => void answerState.submit("reject", { decision: "reject" })}>Reject</Button>
          <Button tone="primary" icon="check" busy={answerState.busy === "approve"} disabled={includedCount === 0} onClick={approve}>
            {includedCount === steps.length ? "Approve plan" : `Approve ${includedCount} of ${steps.length} steps`}
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
        {step.needsApproval && <Badge tone="warn" title="Covered by the approval of the plan">needs approval</Badge>}
        {step.risk && <RiskBadge risk={step.risk} />}
      </div>
      {step.toolName && <div class="step-call"><code class="tool-name"><EscapedText text={step.toolName} /></code>
        {step.arguments !== undefined && step.arguments !== null && <ArgumentsTable value={step.arguments} />}</div>}
      <div class="step-actions">
        <button type="button" class="text-button" aria-pressed={!!change.skip} onClick={() => onChange({ skip: !change.skip })}>
          {change.skip ? "Include" : "Skip"}
        </button>
        {!editing && !change.skip && (
          <button type="button" class="text-button" onClick={() => setEditing(true)}><Icon name="pencil" size={14} /> Edit</button>
        )}
      </div>
    </li>
  );
}
