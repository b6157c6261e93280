/** The dry run of a call: the policy evaluates it, but it is neither run nor recorded. */

import { useState } from "preact/hooks";
import { client } from "../../api/client";
import { toProblem } from "../../api/http";
import type { JsonObject, Policy, Tool, Verdict } from "../../api/types";
import { Badge, Button } from "../../components/ui";
import { LEVEL_LABELS, formatAmount } from "../../components/format";
import { SchemaForm } from "../../approvals/schema_form";

const TONE = { allow: "good", ask: "warn", deny: "bad", invalid: "bad" } as const;
const VERDICT_TEXTS = { allow: "Would run", ask: "Would need approval", deny: "Would be denied", invalid: "Invalid arguments" };

/** A form that evaluates a call of the tool against the policy. */
export function CallDryRun({ tool, policy }: { tool: Tool; policy: Policy }) {
  const [callArguments, setCallArguments] = useState<JsonObject>({});
  const [isValid, setValid] = useState(true);
  const [level, setLevel] = useState(policy.autonomy_level);
  const [verdict, setVerdict] = useState<Verdict | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const evaluate = async () => {
    setProblem(null);
    try {
      setVerdict(await client.evaluateCall({ tool: tool.name, arguments: callArguments, agent: policy.agent, autonomy_level: level }));
    } catch (error) {
      setProblem(toProblem(error).message);
    }
  };
  return (
    <form class="dry-run" onSubmit={(event) => { event.preventDefault(); void evaluate(); }}>
      <h3>Dry run</h3>
      <p class="hint">Evaluates a call against the policy. Nothing runs.</p>
      <SchemaForm schema={tool.input_schema} initial={{}} onChange={(draft) => { setCallArguments(draft.value); setValid(draft.isValid); }} />
      <div class="dry-run-actions">
        <label class="inline-field">Level <select value={level} onChange={(event) => setLevel(Number(event.currentTarget.value))}>
          {LEVEL_LABELS.map((name, index) => <option key={name} value={index}>L{index} {name.toLowerCase()}</option>)}
        </select></label>
        <Button tone="primary" type="submit" disabled={!isValid}>Evaluate</Button>
      </div>
      <div role="status">
        {verdict && <p class="dry-run-verdict"><Badge tone={TONE[verdict.verdict]}>{VERDICT_TEXTS[verdict.verdict]}</Badge> {verdict.why}
          {verdict.cost && <> Cost: {formatAmount(verdict.cost.amount, verdict.cost.unit)}.</>}</p>}
      </div>
      {problem && <p class="error-text" role="alert">{problem}</p>}
    </form>
  );
}
