/** A call that was sent and whose end nobody knows: it may have taken effect. */

import { useState } from "preact/hooks";
import type { Json, Approval } from "../api/types";
import { Button } from "../components/ui";
import { EscapedText } from "../components/escaped_text";
import type { AnswerState } from "./use_answer";
import { ArgumentsTable } from "./plan_approval";

const sentence = (text: string) => `${text.charAt(0).toUpperCase()}${text.slice(1).replace(/\.$/, "")}.`;

export function UnknownOutcomeApproval({ question, answering }: { question: Approval; answering: AnswerState }) {
  const [result, setResult] = useState("");
  const { call, why } = question;
  const say = (decision: "retry" | "done" | "failed", value?: Json) => void answering.answer(decision, { decision, ...(value === undefined ? {} : { value }) });
  const read = (): Json => {
    try {
      return JSON.parse(result) as Json;
    } catch {
      return result;
    }
  };
  return (
    <>
      <div class="step">
        <div class="step-head"><code class="tool-name"><EscapedText text={String(call?.tool ?? "")} /></code></div>
        {call?.arguments !== undefined && <ArgumentsTable value={call.arguments} />}
        <p class="step-says"><EscapedText text={sentence(typeof why === "string" ? why : "the call was sent and no answer came")} /> It may have taken effect: look before you decide.</p>
        <label class="stacked-field">If it did happen, what came of it?
          <textarea rows={2} value={result} placeholder='what the model should read, such as {"order_id": 7001}' onInput={(event) => setResult(event.currentTarget.value)} />
        </label>
      </div>
      <footer>
        <div class="answers">
          <Button icon="retry" busy={answering.busy === "retry"} onClick={() => say("retry")}>It did not: do it again</Button>
          <Button tone="danger" busy={answering.busy === "failed"} onClick={() => say("failed")}>It failed</Button>
          <Button tone="primary" icon="check" busy={answering.busy === "done"} disabled={!result.trim()} onClick={() => say("done", read())}>It was done</Button>
        </div>
      </footer>
    </>
  );
}
