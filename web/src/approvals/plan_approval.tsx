/** Calls that need a person: each can be approved, rejected, or approved with other arguments. */

import { useEffect, useState } from "preact/hooks";
import { client, type ApprovalAnswer } from "../api/client";
import type { Json, JsonObject, PlanStep, Approval, Tool } from "../api/types";
import { Icon } from "../components/icon";
import { Button, AutofocusInput, RiskBadge, SegmentedControl, Toggle } from "../components/ui";
import { EscapedText, escapeUnsafe, escapeUnsafeJson } from "../components/escaped_text";
import { formatNumber } from "../components/format";
import type { AnswerState } from "./use_answer";
import { Diff } from "./argument_diff";
import { asObject, type FormDraft, SchemaForm } from "./schema_form";

interface StepChoice {
  decision: "approve" | "reject" | null;
  edited: JsonObject | null;
  fits: boolean;
  reason: string;
}

const UNDECIDED: StepChoice = { decision: null, edited: null, fits: true, reason: "" };

let tools: Promise<Tool[]> | null = null;
/** Schemas of tools, for hints; asked for once. */
const allTools = () => (tools ??= client.tools().then((found) => found.tools).catch(() => {
  tools = null;
  return [];
}));

export function PlanApproval({ question, answering }: { question: Approval; answering: AnswerState }) {
  const [choices, setChoices] = useState<Record<string, StepChoice>>({});
  const [forSession, setForSession] = useState(false);
  const [where, setWhere] = useState("");
  const steps = (question.steps ?? []) as PlanStep[];
  const decided = new Set(question.decisions.map((decision) => decision.call_id));
  const open = steps.filter((step) => !decided.has(step.call_id));
  const choice = (step: PlanStep) => choices[step.call_id] ?? UNDECIDED;
  const put = (step: PlanStep, change: Partial<StepChoice>) =>
    setChoices((all) => ({ ...all, [step.call_id]: { ...(all[step.call_id] ?? UNDECIDED), ...change } }));
  const chosen = open.filter((step) => choice(step).decision !== null);
  const fits = open.every((step) => choice(step).fits);
  const edits = open.some((step) => choice(step).edited);
  const grantable = !open.some((step) => step.risk === "critical");
  const grant = forSession ? { for_session: where.trim() ? { where: where.trim() } : {} } : {};

  const stepAnswer = (step: PlanStep, decision: "approve" | "reject") => {
    const { edited, reason } = choice(step);
    return {
      call_id: step.call_id, decision,
      ...(edited && decision === "approve" ? { arguments: edited as Json } : {}),
      ...(reason.trim() ? { reason: reason.trim() } : {}),
    };
  };
  const send = (what: string, answer: ApprovalAnswer) => void answering.answer(what, answer);
  const all = (decision: "approve" | "reject") => {
    const plain = !edits && open.every((step) => !choice(step).reason);
    send(decision, {
      ...(plain ? { decision } : { steps: open.map((step) => stepAnswer(step, decision)) }),
      ...(decision === "approve" ? grant : {}),
    });
  };
  const some = () => send("some", {
    steps: chosen.map((step) => stepAnswer(step, choice(step).decision!)),
    ...(chosen.some((step) => choice(step).decision === "approve") ? grant : {}),
  });

  return (
    <>
      <ol class="steps">
        {open.map((step) => (
          <PlanStepItem key={step.call_id} step={step} choice={choice(step)} many={open.length > 1} onChange={(change) => put(step, change)} />
        ))}
      </ol>
      <footer>
        {grantable && (
          <div class="for-session">
            <Toggle label="For this session" title="Later calls of the same tool run without asking" checked={forSession} onChange={setForSession} />
            {forSession && (
              <input type="text" class="code-input" aria-label="Only where" placeholder="only where… args.quantity <= 1000" value={where}
                onInput={(event) => setWhere(event.currentTarget.value)} />
            )}
          </div>
        )}
        <div class="answers">
          {chosen.length > 0 && open.length > 1 ? (
            <Button tone="primary" icon="check" busy={answering.busy === "some"} disabled={!fits} onClick={some}>
              {chosen.length === open.length ? "Send decisions" : `Send ${chosen.length} of ${open.length} decisions`}
            </Button>
          ) : (
            <>
              <Button tone="danger" busy={answering.busy === "reject"} onClick={() => all("reject")}>
                {open.length > 1 ? "Reject all" : "Reject"}
              </Button>
              <Button tone="primary" icon="check" busy={answering.busy === "approve"} disabled={!fits} onClick={() => all("approve")}>
                {open.length > 1 ? `Approve all ${open.length}` : edits ? "Approve as edited" : "Approve"}
              </Button>
            </>
          )}
        </div>
      </footer>
    </>
  );
}

function PlanStepItem({ step, choice, many, onChange }: {
  step: PlanStep; choice: StepChoice; many: boolean; onChange: (change: Partial<StepChoice>) => void;
}) {
  const [editing, setEditing] = useState(false);
  const [saying, setSaying] = useState(false);
  const given = asObject(step.arguments);
  const stop = () => {
    setEditing(false);
    onChange({ edited: null, fits: true });
  };
  const edit = ({ value, isValid: fits }: FormDraft) => {
    const same = JSON.stringify(value) === JSON.stringify(given);
    onChange({ edited: same ? null : value, fits });
  };
  return (
    <li class={`step ${choice.decision ?? ""}`}>
      <div class="step-head">
        <code class="tool-name"><EscapedText text={step.tool} /></code>
        {many && <RiskBadge risk={step.risk} />}
        {step.cost && <span class="cost">{formatNumber(step.cost.amount)} {step.cost.unit}</span>}
        {many && (
          <SegmentedControl small label={`Decision on ${escapeUnsafe(step.tool)}`} value={choice.decision ?? ("none" as string)}
            options={[{ value: "approve", label: "Approve" }, { value: "reject", label: "Reject" }]}
            onChange={(value) => onChange({ decision: choice.decision === value ? null : (value as "approve" | "reject") })} />
        )}
      </div>
      {step.description && <p class="step-says" dir="auto"><EscapedText text={step.description} /></p>}
      {editing ? <ArgumentsEditor step={step} given={given} edited={choice.edited} onChange={edit} /> : <ArgumentsTable value={choice.edited ?? step.arguments} />}
      {choice.edited && <Diff before={given} after={choice.edited} />}
      <div class="step-more">
        {editing
          ? <button type="button" class="text-button" onClick={stop}>Leave the arguments as they were</button>
          : <button type="button" class="text-button" onClick={() => setEditing(true)}><Icon name="pencil" size={14} /> Edit arguments</button>}
        {saying || choice.reason
          ? <AutofocusInput label={`Reason for the decision on ${escapeUnsafe(step.tool)}`} placeholder="Why? The model reads it." value={choice.reason}
              onInput={(reason) => onChange({ reason })} />
          : <button type="button" class="text-button" onClick={() => setSaying(true)}>Add a reason</button>}
        {step.why && <span class="hint why"><EscapedText text={step.why} /></span>}
      </div>
    </li>
  );
}

function ArgumentsEditor({ step, given, edited, onChange }: {
  step: PlanStep; given: JsonObject; edited: JsonObject | null; onChange: (draft: FormDraft) => void;
}) {
  const [schema, setSchema] = useState<JsonObject | undefined>(undefined);
  const [initial] = useState(edited ?? given);
  useEffect(() => {
    void allTools().then((found) => setSchema(found.find((tool) => tool.name === step.tool)?.input_schema));
  }, [step.tool]);
  return <SchemaForm schema={schema} initial={initial} onChange={onChange} />;
}

/** Arguments as a short table. */
export function ArgumentsTable({ value }: { value: Json }) {
  const entries = Object.entries(asObject(value));
  if (!entries.length) return value === null || typeof value === "object" ? <p class="hint">no arguments</p> : <pre class="raw"><EscapedText text={String(value)} /></pre>;
  return (
    <dl class="arguments">
      {entries.map(([name, one]) => (
        <div key={name}><dt><EscapedText text={name} /></dt><dd dir="auto"><EscapedText text={typeof one === "string" ? one : escapeUnsafeJson(one)} /></dd></div>
      ))}
    </dl>
  );
}
