/** Questions to people in a few words, and each of them announced when it comes. */

import { useEffect } from "preact/hooks";
import type { Question } from "../api/types";
import { visible } from "../parts/visible";
import { announce } from "../state/announce";
import { inbox } from "../state/live";

export const TITLES: Record<string, string> = {
  plan: "Approval needed", preflight: "A plan, before the work", budget: "A budget is used up",
  unknown_outcome: "Did this happen?", elicitation: "A tool has a question",
};

/** What it is, and of which tools. */
export function inShort({ kind, steps = [], call, tool }: Question): string {
  const tools = [...steps.map((step) => ("tool" in step ? step.tool : step.toolName)), call?.tool, tool];
  const named = [...new Set(tools.filter(Boolean))].join(", ");
  return visible(`${TITLES[kind] ?? "Question"}${named && `: ${named}`}`);
}

/** Of all sessions, in whatever room one is. Those that were there before are no news. */
export function useHeardQuestions(): void {
  useEffect(() => {
    const heard = new Set<string>();
    let first = true;
    const look = () => {
      const { questions, loaded } = inbox.get();
      if (!loaded) return;
      for (const question of questions) {
        if (!first && !heard.has(question.approval_id)) announce(inShort(question));
        heard.add(question.approval_id);
      }
      first = false;
    };
    look();
    return inbox.listen(look);
  }, []);
}
