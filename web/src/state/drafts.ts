/** What somebody has written and not sent, by the conversation it is for. It lasts as long as the page. */

const drafts = new Map<string, string>();

export const getDraft = (conversation: string): string => drafts.get(conversation) ?? "";

export function saveDraft(conversation: string, text: string): void {
  if (text) drafts.set(conversation, text);
  else drafts.delete(conversation);
}
