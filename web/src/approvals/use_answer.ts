/** The submission of an answer to an approval. */

import { useState } from "preact/hooks";
import { client, type ApprovalAnswer } from "../api/client";
import { type Problem, toProblem } from "../api/http";

/** The state of a submission. */
export interface AnswerState {
  /** The name of the button whose answer is being sent. */
  busy: string | null;
  problem: Problem | null;
  /**
   * Sends an answer. `button` names the button that was pressed. Returns true if the server
   * accepted it.
   */
  submit: (button: string, answer: ApprovalAnswer) => Promise<boolean>;
}

/** Returns the state of the answer to an approval. Only one answer is sent at a time. */
export function useAnswer(approval_id: string): AnswerState {
  const [busy, setBusy] = useState<string | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const submit = async (button: string, answer: ApprovalAnswer) => {
    if (busy !== null) return false;
    setBusy(button);
    setProblem(null);
    try {
      await client.answerApproval(approval_id, answer);
      return true;
    } catch (error) {
      setProblem(toProblem(error));
      return false;
    } finally {
      setBusy(null);
    }
  };
  return { busy, problem, submit };
}

/** Returns the text of an error response to an answer. */
export function answerErrorText(problem: Problem): string {
  switch (problem.code) {
    case "already_decided": return `${problem.message[0]?.toUpperCase() ?? ""}${problem.message.slice(1)}.`;
    case "approval_expired": return "The approval expired before the answer arrived.";
    case "approval_cancelled": return "The approval was cancelled with its run.";
    default: return problem.message;
  }
}
