/** Titles and summaries of approvals, and the announcement of new ones to screen readers. */

import { useEffect } from "preact/hooks";
import type { Approval } from "../api/types";
import { escapeUnsafe } from "../components/escaped_text";
import { announce } from "../state/announcements";
import { approvalInbox } from "../state/app_state";

/** The title of an approval, by kind. */
export const APPROVAL_KIND_TITLES: Record<string, string> = {
  plan: "Approval needed", preflight: "Preflight plan", budget: "Budget reached",
  unknown_outcome: "Outcome unknown", elicitation: "Input requested",
};

/** Returns the title of an approval and the names of its tools. */
export function approvalSummary({ kind, steps = [], call, tool }: Approval): string {
  const tools = [...steps.map((step) => ("tool" in step ? step.tool : step.toolName)), call?.tool, tool];
  const toolNames = [...new Set(tools.filter(Boolean))].join(", ");
  return escapeUnsafe(`${APPROVAL_KIND_TITLES[kind] ?? "Approval"}${toolNames && `: ${toolNames}`}`);
}

/**
 * Announces new approvals of all sessions, on every page. Does not announce those that exist at the
 * start.
 */
export function useApprovalAnnouncements(): void {
  useEffect(() => {
    const knownIds = new Set<string>();
    let isFirst = true;
    const announceNew = () => {
      const { approvals, loaded } = approvalInbox.get();
      if (!loaded) return;
      for (const approval of approvals) {
        if (!isFirst && !knownIds.has(approval.approval_id)) announce(approvalSummary(approval));
        knownIds.add(approval.approval_id);
      }
      isFirst = false;
    };
    announceNew();
    return approvalInbox.listen(announceNew);
  }, []);
}
