/** Where people write. */

import type { ComponentChildren } from "preact";
import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { OnBusy, WorkflowRequest } from "../../api/client";
import type { Problem } from "../../api/http";
import { Button, IconButton, SegmentedControl } from "../../components/ui";
import { getDraft, saveDraft } from "../../state/drafts";
import { selectWorkflow, type SelectedWorkflow, matching, useWorkflows, WorkflowForm, WorkflowList } from "./workflows";

/** What the server takes. */
const MESSAGE_BYTES_MAX = 256 * 1024;
/** Lines that the field grows to. */
const HEIGHT_MAX = 220;

export function Composer({ conversation, state, problem, onSend, onCancel, options }: {
  /** What it is for: what is written and not sent is kept by it. */
  conversation: string;
  state: "new" | "idle" | "running" | "waiting" | "closed";
  problem: Problem | null;
  onSend: (message: string, message_id: string, onBusy: OnBusy, workflow?: WorkflowRequest) => Promise<boolean>;
  onCancel: () => void;
  options?: ComponentChildren;
}) {
  const [text, setText] = useState(() => getDraft(conversation));
  const [onBusy, setOnBusy] = useState<OnBusy>("queue");
  const [sending, setSending] = useState(false);
  // The same message under the same name, however often it is tried.
  const id = useRef(crypto.randomUUID());
  const field = useRef<HTMLTextAreaElement>(null);
  const busy = state === "running" || state === "waiting";
  const tooLong = text.length > MESSAGE_BYTES_MAX / 4 && new Blob([text]).size > MESSAGE_BYTES_MAX;
  useEffect(() => {
    saveDraft(conversation, text);
    const element = field.current;
    if (!element) return;
    element.style.height = "auto";
    element.style.height = `${Math.min(element.scrollHeight, HEIGHT_MAX)}px`;
  }, [text]);
  useLayoutEffect(() => {
    if (innerWidth >= 760) field.current?.focus();
  }, []);
  const [chosen, setChosen] = useState<SelectedWorkflow | null>(null);
  const [row, setRow] = useState(0);
  /** Escape closes the list until something else is written. */
  const [isShut, setShut] = useState(false);
  const listId = useId();
  const isSlash = !chosen && /^\/\S*$/.test(text);
  const workflows = useWorkflows(isSlash);
  const found = isSlash && !isShut ? matching(workflows, text).slice(0, 8) : [];
  const ready = (chosen ? chosen.complete : text.trim() !== "") && !sending && !tooLong;
  const send = async () => {
    if (!ready) return;
    setSending(true);
    const sent = await onSend(text.trim(), id.current, onBusy, chosen?.request);
    setSending(false);
    if (!sent) return;
    id.current = crypto.randomUUID();
    setText("");
    setChosen(null);
    field.current?.focus();
  };
  const pick = (at: number) => {
    const workflow = found[at];
    if (!workflow) return;
    setChosen(selectWorkflow(workflow));
    setText("");
  };
  const stop = () => {
    // The button goes with the run.
    if (innerWidth >= 760) field.current?.focus();
    onCancel();
  };
  /** What is chosen is for what is written: `Enter` sends it. */
  const chooseBusy = (how: OnBusy) => {
    setOnBusy(how);
    field.current?.focus();
  };
  const press = (event: KeyboardEvent) => {
    if (event.isComposing) return;
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (found.length && event.key === "Escape") {
      event.preventDefault();
      setShut(true);
    } else if (found.length && step) {
      event.preventDefault();
      setRow((row + step + found.length) % found.length);
    } else if (found.length && (event.key === "Enter" || event.key === "Tab")) {
      event.preventDefault();
      pick(Math.min(row, found.length - 1));
    } else if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      void send();
    }
  };
  if (state === "closed") return <p class="composer closed">This session is closed. It can be read, and forked.</p>;
  return (
    <form class="composer" onSubmit={(event) => { event.preventDefault(); void send(); }}>
      {problem && <p class="wrong" role="alert">{problem.message}</p>}
      {tooLong && <p class="wrong" role="alert">A message has room for 256 KiB.</p>}
      {found.length > 0 && <WorkflowList id={listId} found={found} at={row} onChoose={(one) => pick(found.indexOf(one))} />}
      {chosen && <WorkflowForm chosen={chosen} onChange={setChosen} onClose={() => { setChosen(null); field.current?.focus(); }} />}
      <div class="composer-box">
        <textarea ref={field} dir="auto" rows={1} value={text} aria-label="Message" enterkeyhint="send"
          placeholder={chosen ? "Anything to add?" : busy ? "Say something meanwhile…" : "Message, or / for workflows"}
          aria-autocomplete={found.length ? "list" : undefined} aria-controls={found.length ? listId : undefined}
          aria-activedescendant={found.length ? `${listId}-${row}` : undefined}
          onInput={(event) => { setText(event.currentTarget.value); setRow(0); setShut(false); }} onKeyDown={press} />
        <div class="composer-end">
          {busy && <Button icon="stop" tone="quiet" onClick={stop}>Stop</Button>}
          {(!busy || text.trim() || chosen) && <IconButton icon="up" label="Send" type="submit" disabled={!ready} />}
        </div>
      </div>
      <div class="composer-foot">
        {busy && text.trim() ? (
          <SegmentedControl small label="While it works" value={onBusy} onChange={chooseBusy} options={[
            { value: "queue", label: "Queue", title: "A run of its own, after this one" },
            { value: "steer", label: "Steer", title: "This run reads it with its next step" },
            { value: "interrupt", label: "Interrupt", title: "This run is cancelled, and the message runs" },
          ]} />
        ) : options}
        <span class="keys"><kbd>Enter</kbd> sends · <kbd>Shift Enter</kbd> breaks the line</span>
      </div>
    </form>
  );
}
