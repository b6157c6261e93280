/** Questions to people in a few words, and each of them announced when it comes. */

import { useEffect } from "preact/hooks";
import type { Approval } from "../api/types";
import { escapeUnsafe } from "../components/escaped_text";
import { announce } from "../state/announcements";
import { approvalInbox } from "../state/app_state";

export const APPROVAL_TITLES: Record<string, string> = {
  plan: "Approval needed", preflight: "A plan, before the work", budget: "A budget is used up",
  unknown_outcome: "Did this happen?", elicitation: "A tool has a question",
};

/** What it is, and of which tools. */
export function approvalSummary({ kind, steps = [], call, tool }: Approval): string {
  const tools = [...steps.map((step) => ("tool" in step ? step.tool : step.toolName)), call?.tool, tool];
  const named = [...new Set(tools.filter(Boolean))].join(", ");
  return escapeUnsafe(`${APPROVAL_TITLES[kind] ?? "Question"}${named && `: ${named}`}`);
}

/** Of all sessions, in whatever room one is. Those that were there before are no news. */
export function useApprovalAnnouncements(): void {
  useEffect(() => {
    const heard = new Set<string>();
    let first = true;
    const look = () => {
      const { approvals: questions, loaded } = approvalInbox.get();
      if (!loaded) return;
      for (const question of questions) {
        if (!first && !heard.has(question.approval_id)) announce(approvalSummary(question));
        heard.add(question.approval_id);
      }
      first = false;
    };
    look();
    return approvalInbox.listen(look);
  }, []);
}
