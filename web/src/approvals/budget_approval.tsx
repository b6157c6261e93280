/** A budget that is used up: raise it, or stop. */

import { useState } from "preact/hooks";
import type { Json, Approval } from "../api/types";
import { Button } from "../components/ui";
import { formatNumber } from "../components/format";
import type { AnswerState } from "./use_answer";

const amountOf = (value: Json | undefined): number | null => {
  if (typeof value === "number") return value;
  if (value !== null && typeof value === "object" && !Array.isArray(value)) return amountOf(value.amount);
  return null;
};

export function BudgetApproval({ question, answering }: { question: Approval; answering: AnswerState }) {
  const { budget = {}, spent, needed } = question;
  const limit = amountOf(budget.limit) ?? 0;
  const used = amountOf(spent) ?? 0;
  const need = amountOf(needed) ?? 0;
  const [text, setText] = useState(String(suggested(limit, used + need)));
  const value = Number(text);
  const fits = Number.isFinite(value) && value > limit;
  const unit = unitOf(budget.measure);
  const share = limit ? Math.min(100, (used / limit) * 100) : 100;
  return (
    <>
      <div class="budget-said">
        <div class="meter" role="img" aria-label={`${formatNumber(used)} of ${formatNumber(limit)} ${unit} spent`}><span ref={(bar) => { if (bar) bar.style.width = `${share}%`; }} /></div>
        <p><strong>{formatNumber(used)}</strong> of {formatNumber(limit)} {unit} spent{budget.scope && ` by this ${budget.scope}`}
          {budget.period && budget.period !== "total" && ` per ${budget.period}`}{need > 0 && <>; <strong>{formatNumber(need)}</strong> more needed to go on</>}</p>
      </div>
      <footer>
        <label class="inline-field">New limit
          <input type="text" inputMode="decimal" value={text} aria-invalid={!fits || undefined} onInput={(event) => setText(event.currentTarget.value)} /> {unit}
        </label>
        <div class="answers">
          <Button tone="danger" busy={answering.busy === "stop"} onClick={() => void answering.answer("stop", { decision: "stop" })}>Stop the run</Button>
          <Button tone="primary" icon="up" busy={answering.busy === "raise"} disabled={!fits}
            onClick={() => void answering.answer("raise", { decision: "raise", value })}>Raise and go on</Button>
        </div>
      </footer>
    </>
  );
}

function unitOf(measure: Json | undefined): string {
  if (typeof measure === "string") return measure === "usd" ? "USD" : measure;
  if (measure && typeof measure === "object" && !Array.isArray(measure)) return String(measure.unit ?? Object.values(measure)[0] ?? "");
  return "";
}

/** Twice the limit, or enough for what is needed. */
function suggested(limit: number, needed: number): number {
  return Math.max(limit * 2, Math.ceil(needed * 1.5)) || 1;
}
