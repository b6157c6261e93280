/** Answering a question: what is under way, and what came of it. */

import { useState } from "preact/hooks";
import { client, type ApprovalAnswer } from "../api/client";
import { type Problem, toProblem } from "../api/http";

export interface AnswerState {
  busy: string | null;
  problem: Problem | null;
  /** `what` names the button that was pressed. */
  answer: (what: string, answer: ApprovalAnswer) => Promise<boolean>;
}

export function useAnswer(approval_id: string): AnswerState {
  const [busy, setBusy] = useState<string | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const answer = async (what: string, said: ApprovalAnswer) => {
    if (busy !== null) return false;
    setBusy(what);
    setProblem(null);
    try {
      await client.decide(approval_id, said);
      return true;
    } catch (error) {
      setProblem(toProblem(error));
      return false;
    } finally {
      setBusy(null);
    }
  };
  return { busy, problem, answer };
}

/** A problem with an answer, as people need to hear it. */
export function problemText(problem: Problem): string {
  switch (problem.code) {
    case "already_decided": return "Somebody else answered this first.";
    case "approval_expired": return "Time ran out before the answer arrived.";
    case "approval_cancelled": return "The question was withdrawn: its run was cancelled.";
    case "four_eyes": return "This step is critical and yours: somebody else has to approve it.";
    default: return problem.message;
  }
}
