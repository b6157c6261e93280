/**
 * An approval of kind `unknown_outcome`: a call was sent, got no response and may have taken
 * effect.
 */

import { useState } from "preact/hooks";
import { parseJson } from "../api/json";
import type { Json, Approval } from "../api/types";
import { Button } from "../components/ui";
import { EscapedText } from "../components/escaped_text";
import type { AnswerState } from "./use_answer";
import { ArgumentsTable } from "./plan_approval";

const formatSentence = (text: string) => `${text.charAt(0).toUpperCase()}${text.slice(1).replace(/\.$/, "")}.`;

/** The controls of an unknown outcome: retry the call, or mark it as failed or done. */
export function UnknownOutcomeApproval({ approval, answerState }: { approval: Approval; answerState: AnswerState }) {
  const [result, setResult] = useState("");
  const { call, why } = approval;
  const submitDecision = (decision: "retry" | "done" | "failed", value?: Json) => void answerState.submit(decision, { decision, ...(value === undefined ? {} : { value }) });
  const parseResult = (): Json => {
    try {
      return parseJson(result);
    } catch {
      return result;
    }
  };
  return (
    <>
      <div class="step">
        <div class="step-head"><code class="tool-name"><EscapedText text={String(call?.tool ?? "")} /></code></div>
        {call?.arguments !== undefined && <ArgumentsTable value={call.arguments} />}
        <p class="step-description"><EscapedText text={formatSentence(typeof why === "string" ? why : "the call was sent and no response arrived")} /> It may have taken effect. Check before you decide.</p>
        <label class="stacked-field">Result, if the call took effect
          <textarea rows={2} value={result} placeholder='sent to the model, such as {"order_id": 7001}' onInput={(event) => setResult(event.currentTarget.value)} />
        </label>
      </div>
      <footer>
        <div class="button-row">
          <Button icon="retry" busy={answerState.busy === "retry"} onClick={() => submitDecision("retry")}>Retry</Button>
          <Button tone="danger" busy={answerState.busy === "failed"} onClick={() => submitDecision("failed")}>Mark as failed</Button>
          <Button tone="primary" icon="check" busy={answerState.busy === "done"} disabled={!result.trim()} onClick={() => submitDecision("done", parseResult())}>Mark as done</Button>
        </div>
      </footer>
    </>
  );
}
