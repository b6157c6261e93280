/** A call tried against the judge: nothing runs, and nothing is recorded. */

import { useState } from "preact/hooks";
import { client } from "../../api/client";
import { toProblem } from "../../api/http";
import type { JsonObject, Policy, Tool, Verdict } from "../../api/types";
import { Badge, Button } from "../../components/ui";
import { LEVEL_LABELS, formatNumber } from "../../components/format";
import { SchemaForm } from "../../approvals/schema_form";

const TONE = { allow: "good", ask: "warn", deny: "bad", invalid: "bad" } as const;
const VERDICT_TEXTS = { allow: "It would run.", ask: "A person would be asked.", deny: "It would be denied.", invalid: "The arguments do not fit." };

export function TryCall({ tool, policy }: { tool: Tool; policy: Policy }) {
  const [given, setGiven] = useState<JsonObject>({});
  const [fits, setFits] = useState(true);
  const [level, setLevel] = useState(policy.autonomy_level);
  const [verdict, setVerdict] = useState<Verdict | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const judge = async () => {
    setProblem(null);
    try {
      setVerdict(await client.judge({ tool: tool.name, arguments: given, agent: policy.agent, autonomy_level: level }));
    } catch (error) {
      setProblem(toProblem(error).message);
    }
  };
  return (
    <form class="try" onSubmit={(event) => { event.preventDefault(); void judge(); }}>
      <h3>Try a call</h3>
      <p class="hint">The judge says what would happen. Nothing runs.</p>
      <SchemaForm schema={tool.input_schema} initial={{}} onChange={(draft) => { setGiven(draft.value); setFits(draft.isValid); }} />
      <div class="try-foot">
        <label class="inline-field">at <select value={level} onChange={(event) => setLevel(Number(event.currentTarget.value))}>
          {LEVEL_LABELS.map((name, at) => <option key={name} value={at}>L{at} {name.toLowerCase()}</option>)}
        </select></label>
        <Button tone="primary" type="submit" disabled={!fits}>Judge</Button>
      </div>
      <div role="status">
        {verdict && <p class="judged"><Badge tone={TONE[verdict.verdict]}>{VERDICT_TEXTS[verdict.verdict]}</Badge> {verdict.why}
          {verdict.cost && <> It would cost {formatNumber(verdict.cost.amount)} {verdict.cost.unit}.</>}</p>}
      </div>
      {problem && <p class="wrong" role="alert">{problem}</p>}
    </form>
  );
}
