/** The queued messages of a session, which can be changed and withdrawn until they are delivered. */

import { useRef, useState } from "preact/hooks";
import { client } from "../../api/client";
import { toProblem } from "../../api/http";
import { Icon } from "../../components/icon";
import { Button, IconButton } from "../../components/ui";
import { useFocusHandover, useRestoreFocus } from "../../components/use_focus";
import type { QueuedMessage } from "../../state/session_view";

const DELIVERY_TEXTS: Record<string, string> = {
  next_run: "after this run", next_step: "with the next step", after_decision: "after the decision",
};

/** Lists the queued messages in the order of their delivery, each with its actions. */
export function QueuedMessages({ session_id, queued }: { session_id: string; queued: QueuedMessage[] }) {
  return (
    <ul class="queued" aria-label="Queued messages">
      {queued.map((message) => <QueuedItem key={message.message_id} session_id={session_id} message={message} />)}
    </ul>
  );
}

function QueuedItem({ session_id, message }: { session_id: string; message: QueuedMessage }) {
  const container = useRef<HTMLLIElement>(null);
  const [isEditing, setEditing] = useState(false);
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  useFocusHandover(container, ".queued li", true);
  useRestoreFocus(container, "button", isEditing);

  const runAction = async (action: () => Promise<unknown>) => {
    setBusy(true);
    setProblem(null);
    try {
      await action();
      setEditing(false);
    } catch (error) {
      setProblem(toProblem(error).message);
    }
    setBusy(false);
  };
  const change = (text: string) => void runAction(() => client.changeQueuedMessage(session_id, message.message_id, text));
  const withdraw = () => void runAction(() => client.withdrawQueuedMessage(session_id, message.message_id));

  return (
    <li ref={container} tabIndex={-1} aria-label={`Queued message: ${message.text}`}>
      <Icon name="clock" size={15} />
      {isEditing
        ? <QueuedMessageForm text={message.text} busy={busy} onSave={change} onClose={() => { setEditing(false); setProblem(null); }} />
        : (
          <>
            <span dir="auto">{message.text}</span>
            <small>{DELIVERY_TEXTS[message.delivery] ?? message.delivery}</small>
            <IconButton icon="pencil" label="Edit queued message" onClick={() => setEditing(true)} />
            <IconButton icon="trash" label="Withdraw queued message" aria-disabled={busy || undefined} onClick={() => busy || withdraw()} />
          </>
        )}
      {problem && <p class="error-text" role="alert">{problem}</p>}
    </li>
  );
}

function QueuedMessageForm({ text, busy, onSave, onClose }: {
  text: string; busy: boolean; onSave: (text: string) => void; onClose: () => void;
}) {
  const [draft, setDraft] = useState(text);
  const isEmpty = draft.trim() === "";
  const save = () => {
    if (!isEmpty && !busy) onSave(draft);
  };
  return (
    <form onSubmit={(event) => { event.preventDefault(); save(); }}
      onKeyDown={(event) => {
        if (event.key === "Escape") onClose();
        if (event.key === "Enter" && !event.shiftKey && event.target instanceof HTMLTextAreaElement && !event.isComposing) {
          event.preventDefault();
          save();
        }
      }}>
      <textarea aria-label="New text of the queued message" dir="auto" rows={2} value={draft} ref={focusOnce}
        onInput={(event) => setDraft(event.currentTarget.value)} />
      <Button tone="primary" type="submit" busy={busy} disabled={isEmpty}>Save</Button>
      <Button tone="quiet" onClick={onClose}>Discard changes</Button>
    </form>
  );
}

/** Focuses a field when it appears, with the cursor at its end. */
function focusOnce(field: HTMLTextAreaElement | null): void {
  if (!field || field.dataset.focused) return;
  field.dataset.focused = "true";
  field.focus();
  field.setSelectionRange(field.value.length, field.value.length);
}
