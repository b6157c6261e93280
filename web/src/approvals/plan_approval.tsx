/**
 * An approval of kind `plan`: each call can be approved, rejected, or approved with edited
 * arguments.
 */

import { useEffect, useState } from "preact/hooks";
import { client, type ApprovalAnswer } from "../api/client";
import { isNumber, stringifyJson } from "../api/json";
import type { Json, JsonObject, PlanStep, Approval, Tool } from "../api/types";
import { Icon } from "../components/icon";
import { Button, AutofocusInput, RiskBadge, SegmentedControl, Toggle } from "../components/ui";
import { EscapedText, escapeUnsafe, escapeUnsafeJson } from "../components/escaped_text";
import { formatAmount } from "../components/format";
import type { AnswerState } from "./use_answer";
import { ArgumentDiff } from "./argument_diff";
import { asObject, type FormDraft, SchemaForm } from "./schema_form";

interface StepChoice {
  decision: "approve" | "reject" | null;
  edited: JsonObject | null;
  isValid: boolean;
  reason: string;
}

const UNDECIDED: StepChoice = { decision: null, edited: null, isValid: true, reason: "" };

let toolsPromise: Promise<Tool[]> | null = null;
/**
 * Loads the tools once, for the schemas of their arguments. A failed load returns no tools and is
 * retried.
 */
const loadTools = () => (toolsPromise ??= client.listTools().then((loaded) => loaded.tools).catch(() => {
  toolsPromise = null;
  return [];
}));

/** The controls of a plan: decisions for each call, or one for all of them. */
export function PlanApproval({ approval, answerState }: { approval: Approval; answerState: AnswerState }) {
  const [choices, setChoices] = useState<Record<string, StepChoice>>({});
  const [forSession, setForSession] = useState(false);
  const [condition, setCondition] = useState("");
  const steps = (approval.steps ?? []) as PlanStep[];
  const answeredIds = new Set(approval.decisions.map((decision) => decision.call_id));
  const openSteps = steps.filter((step) => !answeredIds.has(step.call_id));
  const choiceOf = (step: PlanStep) => choices[step.call_id] ?? UNDECIDED;
  const updateChoice = (step: PlanStep, change: Partial<StepChoice>) =>
    setChoices((all) => ({ ...all, [step.call_id]: { ...(all[step.call_id] ?? UNDECIDED), ...change } }));
  const decidedSteps = openSteps.filter((step) => choiceOf(step).decision !== null);
  const isValid = openSteps.every((step) => choiceOf(step).isValid);
  const hasEdits = openSteps.some((step) => choiceOf(step).edited);
  const canGrant = !openSteps.some((step) => step.risk === "critical");
  const grant = forSession ? { for_session: condition.trim() ? { where: condition.trim() } : {} } : {};

  const stepAnswer = (step: PlanStep, decision: "approve" | "reject") => {
    const { edited, reason } = choiceOf(step);
    return {
      call_id: step.call_id, decision,
      ...(edited && decision === "approve" ? { arguments: edited as Json } : {}),
      ...(reason.trim() ? { reason: reason.trim() } : {}),
    };
  };
  const send = (button: string, answer: ApprovalAnswer) => void answerState.submit(button, answer);
  const decideAll = (decision: "approve" | "reject") => {
    const isUniform = !hasEdits && openSteps.every((step) => !choiceOf(step).reason);
    send(decision, {
      ...(isUniform ? { decision } : { steps: openSteps.map((step) => stepAnswer(step, decision)) }),
      ...(decision === "approve" ? grant : {}),
    });
  };
  const submitDecided = () => send("some", {
    steps: decidedSteps.map((step) => stepAnswer(step, choiceOf(step).decision!)),
    ...(decidedSteps.some((step) => choiceOf(step).decision === "approve") ? grant : {}),
  });

  return (
    <>
      <ol class="steps">
        {openSteps.map((step) => (
          <PlanStepItem key={step.call_id} step={step} choice={choiceOf(step)} isMultiple={openSteps.length > 1} onChange={(change) => updateChoice(step, change)} />
        ))}
      </ol>
      <footer>
        {canGrant && (
          <div class="for-session">
            <Toggle label="Approve for this session" title="Later calls of the same tool run without approval" checked={forSession} onChange={setForSession} />
            {forSession && (
              <input type="text" class="code-input" aria-label="Condition" placeholder="if args.quantity <= 1000" value={condition}
                onInput={(event) => setCondition(event.currentTarget.value)} />
            )}
          </div>
        )}
        <div class="button-row">
          {decidedSteps.length > 0 && openSteps.length > 1 ? (
            <Button tone="primary" icon="check" busy={answerState.busy === "some"} disabled={!isValid} onClick={submitDecided}>
              {decidedSteps.length === openSteps.length ? "Send decisions" : `Send ${decidedSteps.length} of ${openSteps.length} decisions`}
            </Button>
          ) : (
            <>
              <Button tone="danger" busy={answerState.busy === "reject"} onClick={() => decideAll("reject")}>
                {openSteps.length > 1 ? "Reject all" : "Reject"}
              </Button>
              <Button tone="primary" icon="check" busy={answerState.busy === "approve"} disabled={!isValid} onClick={() => decideAll("approve")}>
                {openSteps.length > 1 ? `Approve all ${openSteps.length}` : hasEdits ? "Approve as edited" : "Approve"}
              </Button>
            </>
          )}
        </div>
      </footer>
    </>
  );
}

function PlanStepItem({ step, choice, isMultiple, onChange }: {
  step: PlanStep; choice: StepChoice; isMultiple: boolean; onChange: (change: Partial<StepChoice>) => void;
}) {
  const [editing, setEditing] = useState(false);
  const [isAddingReason, setAddingReason] = useState(false);
  const proposed = asObject(step.arguments);
  const discardEdit = () => {
    setEditing(false);
    onChange({ edited: null, isValid: true });
  };
  const edit = ({ value, isValid }: FormDraft) => {
    const isUnchanged = stringifyJson(value) === stringifyJson(proposed);
    onChange({ edited: isUnchanged ? null : value, isValid });
  };
  return (
    <li class={`step ${choice.decision ?? ""}`}>
      <div class="step-head">
        <code class="tool-name"><EscapedText text={step.tool} /></code>
        {isMultiple && <RiskBadge risk={step.risk} />}
        {step.cost && <span class="cost">{formatAmount(step.cost.amount, step.cost.unit)}</span>}
        {isMultiple && (
          <SegmentedControl small label={`Decision on ${escapeUnsafe(step.tool)}`} value={choice.decision ?? ("none" as string)}
            options={[{ value: "approve", label: "Approve" }, { value: "reject", label: "Reject" }]}
            onChange={(value) => onChange({ decision: choice.decision === value ? null : (value as "approve" | "reject") })} />
        )}
      </div>
      {step.description && <p class="step-description" dir="auto"><EscapedText text={step.description} /></p>}
      {editing ? <ArgumentsEditor step={step} proposed={proposed} edited={choice.edited} onChange={edit} /> : <ArgumentsTable value={choice.edited ?? step.arguments} />}
      {choice.edited && <ArgumentDiff before={proposed} after={choice.edited} />}
      <div class="step-actions">
        {editing
          ? <button type="button" class="text-button" onClick={discardEdit}>Discard changes</button>
          : <button type="button" class="text-button" onClick={() => setEditing(true)}><Icon name="pencil" size={14} /> Edit arguments</button>}
        {isAddingReason || choice.reason
          ? <AutofocusInput label={`Reason for the decision on ${escapeUnsafe(step.tool)}`} placeholder="Reason, sent to the model" value={choice.reason}
              onInput={(reason) => onChange({ reason })} />
          : <button type="button" class="text-button" onClick={() => setAddingReason(true)}>Add reason</button>}
        {step.why && <span class="hint policy-reason"><EscapedText text={step.why} /></span>}
      </div>
    </li>
  );
}

function ArgumentsEditor({ step, proposed, edited, onChange }: {
  step: PlanStep; proposed: JsonObject; edited: JsonObject | null; onChange: (draft: FormDraft) => void;
}) {
  const [schema, setSchema] = useState<JsonObject | undefined>(undefined);
  const [initial] = useState(edited ?? proposed);
  useEffect(() => {
    void loadTools().then((loaded) => setSchema(loaded.find((tool) => tool.name === step.tool)?.input_schema));
  }, [step.tool]);
  return <SchemaForm schema={schema} initial={initial} onChange={onChange} />;
}

/** Shows arguments as a compact table. */
export function ArgumentsTable({ value }: { value: Json }) {
  const entries = Object.entries(asObject(value));
  if (!entries.length) return value === null || (typeof value === "object" && !isNumber(value)) ? <p class="hint">No arguments</p> : <pre class="raw-value"><EscapedText text={String(value)} /></pre>;
  return (
    <dl class="arguments">
      {entries.map(([name, argument]) => (
        <div key={name}><dt><EscapedText text={name} /></dt><dd dir="auto"><EscapedText text={typeof argument === "string" ? argument : escapeUnsafeJson(argument)} /></dd></div>
      ))}
    </dl>
  );
}
