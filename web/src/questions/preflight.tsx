/** The checklist of a plan before the work: each step can be changed or skipped. */

import { useState } from "preact/hooks";
import type { Answer } from "../api/client";
import type { ChecklistStep, Question } from "../api/types";
import { Icon } from "../parts/icon";
import { Badge, Button, FocusedInput, RiskBadge } from "../parts/ui";
import { Visible, visible } from "../parts/visible";
import { compact, money } from "../parts/words";
import type { Answering } from "./answering";
import { Arguments } from "./plan";

interface Change {
  skip?: boolean;
  description?: string;
}

export function PreflightQuestion({ question, answering }: { question: Question; answering: Answering }) {
  const [changes, setChanges] = useState<Record<number, Change>>({});
  const steps = (question.steps ?? []) as ChecklistStep[];
  const put = (position: number, change: Change) =>
    setChanges((all) => ({ ...all, [position]: { ...all[position], ...change } }));
  const approve = () => {
    const changed = Object.entries(changes)
      .map(([position, change]) => ({ position: Number(position), ...change }))
      .filter((change) => change.skip || change.description !== undefined);
    const answer: Answer = { decision: "approve", ...(changed.length ? { steps: changed } : {}) };
    void answering.answer("approve", answer);
  };
  const estimate = question.estimatedCost;
  const left = steps.filter((step) => !changes[step.position]?.skip).length;
  return (
    <>
      <ol class="steps checklist">
        {steps.map((step) => (
          <Step key={step.position} step={step} change={changes[step.position] ?? {}} onChange={(change) => put(step.position, change)} />
        ))}
      </ol>
      {!!question.warnings?.length && (
        <ul class="warnings">{question.warnings.map((warning) => <li key={warning}><Icon name="warn" size={15} /> <Visible text={warning} /></li>)}</ul>
      )}
      <footer>
        <p class="hint">
          {estimate && <>about {compact((estimate.inputTokens ?? 0) + (estimate.outputTokens ?? 0))} tokens, {money(estimate.estimatedUSD ?? null)}</>}
          {!!question.requiredPermissions?.length && <> · needs <Visible text={question.requiredPermissions.join(", ")} /></>}
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

function Step({ step, change, onChange }: { step: ChecklistStep; change: Change; onChange: (change: Change) => void }) {
  const [editing, setEditing] = useState(false);
  return (
    <li class={`step ${change.skip ? "skipped" : ""}`}>
      <div class="step-head">
        {editing
          ? <FocusedInput label={`Description of step ${step.position}`} value={change.description ?? visible(step.description)}
              onInput={(description) => onChange({ description })} />
          : <span class="step-text" dir="auto"><Visible text={change.description ?? step.description} /></span>}
        {step.needsApproval && <Badge tone="warn" title="Approving the plan covers it">needs approval</Badge>}
        {step.risk && <RiskBadge risk={step.risk} />}
      </div>
      {step.toolName && <div class="step-call"><code class="tool-name"><Visible text={step.toolName} /></code>
        {step.arguments !== undefined && step.arguments !== null && <Arguments value={step.arguments} />}</div>}
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
