/** The message list of a session. */

import { memo } from "preact/compat";
import { useState } from "preact/hooks";
import { Icon } from "../../components/icon";
import { Markdown } from "../../components/markdown";
import { RelativeTime, Countdown } from "../../components/time";
import { IconButton } from "../../components/ui";
import { formatDuration, formatDateTime, formatMoney, formatNumber, formatTokens, formatUsage } from "../../components/format";
import { ApprovalCard } from "../../approvals/approval_card";
import { type SessionView, type SessionItem, pendingApprovals, type Feedback, type Run } from "../../state/session_view";
import { CallItem } from "./call_item";
import { Rating } from "./feedback";
import { QueuedMessages } from "./queued_messages";

/** The actions of the message list. */
export interface ItemActions {
  session_id: string;
  onFork: (at_seq: number) => void;
  /** Forks the session before a message and puts its text into the composer of the fork. */
  onEditMessage: (at_seq: number, text: string) => void;
}

/** Shows the items of a session, the status of its run and its queued messages. */
export function SessionItems({ view, actions }: { view: SessionView; actions: ItemActions }) {
  const { items, calls, approvals, children, run, queued, ratings } = view;
  const last = items[items.length - 1];
  const isStreaming = last?.kind === "assistant" && last.streaming && last.text !== "";
  const isWaiting = pendingApprovals(view).length > 0;
  const hasRunningCall = Object.values(calls).some((call) => call.phase === "running" || call.phase === "backing_off");
  return (
    <>
      <ol class="items">
        {items.map((item) => (
          <li key={`${item.kind}${item.id}`} class={`item item-${item.kind}`}>
            {item.kind === "call" ? <CallItem id={item.id} view={view} children={children} session_id={actions.session_id} />
              : item.kind === "approval" ? approvals[item.id] && <ApprovalCard approval={approvals[item.id]!} />
              : <ItemView item={item} ratings={ratings[item.id]} actions={actions} />}
          </li>
        ))}
      </ol>
      {run && !isStreaming && !isWaiting && !hasRunningCall && <RunStatus run={run} />}
      {queued.length > 0 && <QueuedMessages session_id={actions.session_id} queued={queued} />}
    </>
  );
}

function RunStatus({ run }: { run: Run }) {
  if (run.retryUntil) return <p class="run-status" role="status"><Icon name="retry" size={15} /> retrying the model call in <Countdown until={run.retryUntil} endedText="a moment" /></p>;
  return (
    <p class="run-status" role="status">
      <span class="dots" aria-hidden="true"><i /><i /><i /></span>
      {run.planning ? "planning" : run.compacting ? "compacting the context" : "thinking"}{run.step > 1 && <small> step {run.step}</small>}
    </p>
  );
}

const NO_RATINGS: Feedback<number>[] = [];

type TextItem = Exclude<SessionItem, { kind: "call" } | { kind: "approval" }>;

const ItemView = memo(function ItemView({ item, ratings, actions }: { item: TextItem; ratings: Feedback<number>[] | undefined; actions: ItemActions }) {
  switch (item.kind) {
    case "user":
      return (
        <div class="user-message">
          <IconButton icon="pencil" label="Edit message" title="Edit the message in a fork of the session" onClick={() => actions.onEditMessage(item.seq - 1, item.text)} />
          <article class="bubble" dir="auto" aria-label="You" title={formatDateTime(Date.parse(item.at))}>{item.text}</article>
        </div>
      );
    case "assistant":
      if (!item.text && item.streaming) return null;
      return (
        <article class="answer" aria-label="Agent">
          <Markdown text={item.text} streaming={item.streaming} />
          {item.stopped && <p class="stopped"><Icon name="stop" size={13} /> stopped</p>}
          {item.notice && <p class="notice warn"><Icon name="warn" size={15} /><span>{item.notice}</span></p>}
          {!item.streaming && (
            <Rating session_id={actions.session_id} message_id={item.id} entries={ratings ?? NO_RATINGS} actions={
              <><CopyButton text={item.text} /><IconButton icon="fork" label="Fork the session after this answer" onClick={() => actions.onFork(item.seq)} /></>
            } />
          )}
        </article>
      );
    case "notice":
      return (
        <p class={`notice ${item.tone}`}><Icon name={item.tone === "info" ? "settings" : "warn"} size={15} />
          <span>{item.text}{item.detail && <small>{item.detail}</small>}</span></p>
      );
    case "summary":
      return <Summary item={item} />;
    case "end":
      return (
        <div class={`run-end ended-${item.outcome}`}>
          {item.outcome === "failed" && <p class="notice bad"><Icon name="warn" size={15} /><span>Run failed<small>{item.text}</small></span></p>}
          <p class="run-end-facts">
            {item.outcome === "cancelled" && <span>Cancelled{item.text && ` ${item.text}`}</span>}
            <span>{formatDuration(item.ms)}</span>
            {item.usage && item.usage.output_tokens > 0 && <span title={formatMoney(item.usage.cost_usd)}>{formatUsage(item.usage)}</span>}
            <RelativeTime timestamp={item.at} />
            <IconButton icon="fork" label="Fork the session here" onClick={() => actions.onFork(item.seq)} />
          </p>
        </div>
      );
  }
});

function CopyButton({ text }: { text: string }) {
  const [copied, setCopied] = useState(false);
  const copy = () => {
    void navigator.clipboard?.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return <IconButton icon={copied ? "check" : "copy"} label={copied ? "Copied" : "Copy answer"} onClick={copy} />;
}

/**
 * Marks the point up to which the model reads a summary instead of the messages, which stay
 * visible.
 */
function Summary({ item }: { item: Extract<SessionItem, { kind: "summary" }> }) {
  return (
    <details class="summary-mark">
      <summary><span><Icon name="compress" size={15} /> {formatNumber(item.through)} older messages are summarised for the model <Icon name="chevron" size={14} /></span></summary>
      <div class="summary-text">
        <Markdown text={item.text} />
        <p class="hint">{item.usage && <>{formatTokens(item.usage)} used · </>}<RelativeTime timestamp={item.at} /></p>
      </div>
    </details>
  );
}
