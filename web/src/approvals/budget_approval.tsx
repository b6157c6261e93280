/** An approval of kind `budget`: raise the limit or stop the run. */

import { useState } from "preact/hooks";
import { isObject } from "../api/json";
import type { Json, Approval } from "../api/types";
import { Button } from "../components/ui";
import { formatAmount } from "../components/format";
import type { AnswerState } from "./use_answer";

const readAmount = (value: Json | undefined): number | null => {
  if (typeof value === "number") return value;
  if (isObject(value)) return readAmount(value.amount);
  return null;
};

/** The controls of a budget approval. */
export function BudgetApproval({ approval, answerState }: { approval: Approval; answerState: AnswerState }) {
  const { budget = {}, spent, needed } = approval;
  const limit = readAmount(budget.limit) ?? 0;
  const spentAmount = readAmount(spent) ?? 0;
  const neededAmount = readAmount(needed) ?? 0;
  const [limitText, setLimitText] = useState(String(suggestLimit(limit, spentAmount + neededAmount)));
  const newLimit = Number(limitText);
  const isValid = Number.isFinite(newLimit) && newLimit > limit;
  const unit = formatUnit(budget.measure);
  const spentPercent = limit ? Math.min(100, (spentAmount / limit) * 100) : 100;
  return (
    <>
      <div class="budget-summary">
        <div class="meter" role="img" aria-label={`${formatAmount(spentAmount, unit)} of ${formatAmount(limit, unit)} spent`}><span ref={(bar) => { if (bar) bar.style.width = `${spentPercent}%`; }} /></div>
        <p><strong>{formatAmount(spentAmount, unit)}</strong> of {formatAmount(limit, unit)} spent{budget.scope && ` by this ${budget.scope}`}
          {budget.period && budget.period !== "total" && ` per ${budget.period}`}{neededAmount > 0 && <>; <strong>{formatAmount(neededAmount, unit)}</strong> more needed to continue</>}</p>
      </div>
      <footer>
        <label class="inline-field">New limit
          <input type="text" inputMode="decimal" value={limitText} aria-invalid={!isValid || undefined} onInput={(event) => setLimitText(event.currentTarget.value)} /> {unit}
        </label>
        <div class="button-row">
          <Button tone="danger" busy={answerState.busy === "stop"} onClick={() => void answerState.submit("stop", { decision: "stop" })}>Stop run</Button>
          <Button tone="primary" icon="up" busy={answerState.busy === "raise"} disabled={!isValid}
            onClick={() => void answerState.submit("raise", { decision: "raise", value: newLimit })}>Raise and continue</Button>
        </div>
      </footer>
    </>
  );
}

function formatUnit(measure: Json | undefined): string {
  if (typeof measure === "string") return measure === "usd" ? "USD" : measure;
  if (isObject(measure)) return String(measure.unit ?? Object.values(measure)[0] ?? "");
  return "";
}

/** Suggests a new limit: twice the current one, or 1.5 times the needed amount if that is more. */
function suggestLimit(limit: number, needed: number): number {
  return Math.max(limit * 2, Math.ceil(needed * 1.5)) || 1;
}
