/** The message input of a session. */

import type { ComponentChildren } from "preact";
import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { OnBusy, WorkflowRequest } from "../../api/client";
import type { Problem } from "../../api/http";
import { Button, IconButton, SegmentedControl } from "../../components/ui";
import { getDraft, saveDraft } from "../../state/drafts";
import { selectWorkflow, type SelectedWorkflow, matchWorkflows, useWorkflows, WorkflowForm, WorkflowList } from "./workflows";

/** The server's limit for a message. */
const MESSAGE_BYTES_MAX = 256 * 1024;
/** The maximum height of the input in pixels. */
const HEIGHT_MAX = 220;

/** The message input, with workflows, delivery options and the stop button. */
export function Composer({ draftKey, state, problem, onSend, onCancel, options }: {
  /** The key under which the unsent text is kept. */
  draftKey: string;
  state: "new" | "idle" | "running" | "waiting" | "closed";
  problem: Problem | null;
  onSend: (message: string, message_id: string, onBusy: OnBusy, workflow?: WorkflowRequest) => Promise<boolean>;
  onCancel: () => void;
  options?: ComponentChildren;
}) {
  const [text, setText] = useState(() => getDraft(draftKey));
  const [onBusy, setOnBusy] = useState<OnBusy>("queue");
  const [sending, setSending] = useState(false);
  // A retry of the same message uses the same id, so it starts only one run.
  const messageId = useRef(crypto.randomUUID());
  const textareaRef = useRef<HTMLTextAreaElement>(null);
  const isRunning = state === "running" || state === "waiting";
  const isTooLong = text.length > MESSAGE_BYTES_MAX / 4 && new Blob([text]).size > MESSAGE_BYTES_MAX;
  useEffect(() => {
    saveDraft(draftKey, text);
    const element = textareaRef.current;
    if (!element) return;
    element.style.height = "auto";
    element.style.height = `${Math.min(element.scrollHeight, HEIGHT_MAX)}px`;
  }, [text]);
  useLayoutEffect(() => {
    if (innerWidth >= 760) textareaRef.current?.focus();
  }, []);
  const [selectedWorkflow, setSelectedWorkflow] = useState<SelectedWorkflow | null>(null);
  const [activeIndex, setActiveIndex] = useState(0);
  /** True after Escape closed the workflow list, until the text changes. */
  const [isListClosed, setListClosed] = useState(false);
  const listId = useId();
  const isSlash = !selectedWorkflow && /^\/\S*$/.test(text);
  const workflows = useWorkflows(isSlash);
  const matches = isSlash && !isListClosed ? matchWorkflows(workflows, text).slice(0, 8) : [];
  const canSend = (selectedWorkflow ? selectedWorkflow.isComplete : text.trim() !== "") && !sending && !isTooLong;
  const send = async () => {
    if (!canSend) return;
    setSending(true);
    const wasSent = await onSend(text.trim(), messageId.current, onBusy, selectedWorkflow?.request);
    setSending(false);
    if (!wasSent) return;
    messageId.current = crypto.randomUUID();
    setText("");
    setSelectedWorkflow(null);
    textareaRef.current?.focus();
  };
  const pickWorkflow = (index: number) => {
    const workflow = matches[index];
    if (!workflow) return;
    setSelectedWorkflow(selectWorkflow(workflow));
    setText("");
  };
  const cancelRun = () => {
    // The button disappears with the run, so the focus moves to the input.
    if (innerWidth >= 760) textareaRef.current?.focus();
    onCancel();
  };
  /** Returns the focus to the input, so that `Enter` sends the message. */
  const selectOnBusy = (value: OnBusy) => {
    setOnBusy(value);
    textareaRef.current?.focus();
  };
  const handleKey = (event: KeyboardEvent) => {
    if (event.isComposing) return;
    const offset = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (matches.length && event.key === "Escape") {
      event.preventDefault();
      setListClosed(true);
    } else if (matches.length && offset) {
      event.preventDefault();
      setActiveIndex((activeIndex + offset + matches.length) % matches.length);
    } else if (matches.length && (event.key === "Enter" || event.key === "Tab")) {
      event.preventDefault();
      pickWorkflow(Math.min(activeIndex, matches.length - 1));
    } else if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      void send();
    }
  };
  if (state === "closed") return <p class="composer closed">This session is closed. You can read it and fork it.</p>;
  return (
    <form class="composer" onSubmit={(event) => { event.preventDefault(); void send(); }}>
      {problem && <p class="error-text" role="alert">{problem.message}</p>}
      {isTooLong && <p class="error-text" role="alert">The message is too long. The limit is 256 KiB.</p>}
      {matches.length > 0 && <WorkflowList id={listId} workflows={matches} activeIndex={activeIndex} onSelect={(workflow) => pickWorkflow(matches.indexOf(workflow))} />}
      {selectedWorkflow && <WorkflowForm selected={selectedWorkflow} onChange={setSelectedWorkflow} onClose={() => { setSelectedWorkflow(null); textareaRef.current?.focus(); }} />}
      <div class="composer-box">
        <textarea ref={textareaRef} dir="auto" rows={1} value={text} aria-label="Message" enterkeyhint="send"
          placeholder={selectedWorkflow ? "Additional message (optional)" : isRunning ? "Message during the run" : "Message, or / for workflows"}
          aria-autocomplete={matches.length ? "list" : undefined} aria-controls={matches.length ? listId : undefined}
          aria-activedescendant={matches.length ? `${listId}-${activeIndex}` : undefined}
          onInput={(event) => { setText(event.currentTarget.value); setActiveIndex(0); setListClosed(false); }} onKeyDown={handleKey} />
        <div class="composer-buttons">
          {isRunning && <Button icon="stop" tone="quiet" onClick={cancelRun}>Stop</Button>}
          {(!isRunning || text.trim() || selectedWorkflow) && <IconButton icon="up" label="Send" type="submit" disabled={!canSend} />}
        </div>
      </div>
      <div class="composer-footer">
        {isRunning && text.trim() ? (
          <SegmentedControl small label="During the run" value={onBusy} onChange={selectOnBusy} options={[
            { value: "queue", label: "Queue", title: "Starts its own run after this one" },
            { value: "steer", label: "Steer", title: "This run reads the message in its next step" },
            { value: "interrupt", label: "Interrupt", title: "Cancels this run and starts a run with the message" },
          ]} />
        ) : options}
        <span class="keyboard-hint"><kbd>Enter</kbd> to send · <kbd>Shift Enter</kbd> for new line</span>
      </div>
    </form>
  );
}
