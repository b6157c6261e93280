/** Calls that need a person: each can be approved, rejected, or approved with other arguments. */

import { useEffect, useState } from "preact/hooks";
import { client, type Answer } from "../api/client";
import type { Json, JsonObject, PlanStep, Question, Tool } from "../api/types";
import { Icon } from "../parts/icon";
import { Button, FocusedInput, RiskBadge, Segmented, Toggle } from "../parts/ui";
import { Visible, visible, visibleJson } from "../parts/visible";
import { number } from "../parts/words";
import type { Answering } from "./answering";
import { Diff } from "./diff";
import { objectOf, SchemaForm } from "./form";

interface Choice {
  decision: "approve" | "reject" | null;
  edited: JsonObject | null;
  fits: boolean;
  reason: string;
}

const UNDECIDED: Choice = { decision: null, edited: null, fits: true, reason: "" };

let tools: Promise<Tool[]> | null = null;
/** Schemas of tools, for hints; asked for once. */
const allTools = () => (tools ??= client.tools().then((found) => found.tools).catch(() => {
  tools = null;
  return [];
}));

export function PlanQuestion({ question, answering }: { question: Question; answering: Answering }) {
  const [choices, setChoices] = useState<Record<string, Choice>>({});
  const [forSession, setForSession] = useState(false);
  const [where, setWhere] = useState("");
  const steps = (question.steps ?? []) as PlanStep[];
  const decided = new Set(question.decisions.map((decision) => decision.call_id));
  const open = steps.filter((step) => !decided.has(step.call_id));
  const choice = (step: PlanStep) => choices[step.call_id] ?? UNDECIDED;
  const put = (step: PlanStep, change: Partial<Choice>) =>
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
  const send = (what: string, answer: Answer) => void answering.answer(what, answer);
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
          <Step key={step.call_id} step={step} choice={choice(step)} many={open.length > 1} onChange={(change) => put(step, change)} />
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

function Step({ step, choice, many, onChange }: {
  step: PlanStep; choice: Choice; many: boolean; onChange: (change: Partial<Choice>) => void;
}) {
  const [editing, setEditing] = useState(false);
  const [saying, setSaying] = useState(false);
  const given = objectOf(step.arguments);
  const stop = () => {
    setEditing(false);
    onChange({ edited: null, fits: true });
  };
  const edit = ({ value, fits }: { value: JsonObject; fits: boolean }) => {
    const same = JSON.stringify(value) === JSON.stringify(given);
    onChange({ edited: same ? null : value, fits });
  };
  return (
    <li class={`step ${choice.decision ?? ""}`}>
      <div class="step-head">
        <code class="tool-name"><Visible text={step.tool} /></code>
        {many && <RiskBadge risk={step.risk} />}
        {step.cost && <span class="cost">{number(step.cost.amount)} {step.cost.unit}</span>}
        {many && (
          <Segmented small label={`Decision on ${visible(step.tool)}`} value={choice.decision ?? ("none" as string)}
            options={[{ value: "approve", label: "Approve" }, { value: "reject", label: "Reject" }]}
            onChange={(value) => onChange({ decision: choice.decision === value ? null : (value as "approve" | "reject") })} />
        )}
      </div>
      {step.description && <p class="step-says" dir="auto"><Visible text={step.description} /></p>}
      {editing ? <Editor step={step} given={given} edited={choice.edited} onChange={edit} /> : <Arguments value={choice.edited ?? step.arguments} />}
      {choice.edited && <Diff before={given} after={choice.edited} />}
      <div class="step-more">
        {editing
          ? <button type="button" class="text-button" onClick={stop}>Leave the arguments as they were</button>
          : <button type="button" class="text-button" onClick={() => setEditing(true)}><Icon name="pencil" size={14} /> Edit arguments</button>}
        {saying || choice.reason
          ? <FocusedInput label={`Reason for the decision on ${visible(step.tool)}`} placeholder="Why? The model reads it." value={choice.reason}
              onInput={(reason) => onChange({ reason })} />
          : <button type="button" class="text-button" onClick={() => setSaying(true)}>Add a reason</button>}
        {step.why && <span class="hint why"><Visible text={step.why} /></span>}
      </div>
    </li>
  );
}

function Editor({ step, given, edited, onChange }: {
  step: PlanStep; given: JsonObject; edited: JsonObject | null; onChange: (draft: { value: JsonObject; fits: boolean }) => void;
}) {
  const [schema, setSchema] = useState<JsonObject | undefined>(undefined);
  const [initial] = useState(edited ?? given);
  useEffect(() => {
    void allTools().then((found) => setSchema(found.find((tool) => tool.name === step.tool)?.input_schema));
  }, [step.tool]);
  return <SchemaForm schema={schema} initial={initial} onChange={onChange} />;
}

/** Arguments as a short table. */
export function Arguments({ value }: { value: Json }) {
  const entries = Object.entries(objectOf(value));
  if (!entries.length) return value === null || typeof value === "object" ? <p class="hint">no arguments</p> : <pre class="raw"><Visible text={String(value)} /></pre>;
  return (
    <dl class="arguments">
      {entries.map(([name, one]) => (
        <div key={name}><dt><Visible text={name} /></dt><dd dir="auto"><Visible text={typeof one === "string" ? one : visibleJson(one)} /></dd></div>
      ))}
    </dl>
  );
}
