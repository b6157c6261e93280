/** What was said and done, in order. */

import { memo } from "preact/compat";
import { useState } from "preact/hooks";
import { Icon } from "../../components/icon";
import { Markdown } from "../../components/markdown";
import { RelativeTime, Countdown } from "../../components/time";
import { IconButton } from "../../components/ui";
import { formatDuration, formatDateTime, formatMoney, formatNumber, formatTokens } from "../../components/format";
import { ApprovalCard } from "../../approvals/approval_card";
import { type SessionView, type SessionItem, pendingApprovals, type Opinion, type Run } from "../../state/session_view";
import { CallItem } from "./call_item";
import { Rating } from "./feedback";

/** What can be done from within a conversation. */
export interface ItemActions {
  session_id: string;
  onFork: (at_seq: number) => void;
  /** Goes back to before a message, to say it otherwise. */
  onRephrase: (at_seq: number, text: string) => void;
}

export function Items({ conversation, ways }: { conversation: SessionView; ways: ItemActions }) {
  const { items, calls, questions, children, run, queued, ratings } = conversation;
  const last = items[items.length - 1];
  const writes = last?.kind === "assistant" && last.streaming && last.text !== "";
  const waits = pendingApprovals(conversation).length > 0;
  const works = Object.values(calls).some((call) => call.phase === "running" || call.phase === "backing_off");
  return (
    <>
      <ol class="items">
        {items.map((item) => (
          <li key={`${item.kind}${item.id}`} class={`item of-${item.kind}`}>
            {item.kind === "call" ? <CallItem id={item.id} of={conversation} children={children} session_id={ways.session_id} />
              : item.kind === "question" ? questions[item.id] && <ApprovalCard question={questions[item.id]!} />
              : <ItemView item={item} ratings={ratings[item.id]} ways={ways} />}
          </li>
        ))}
      </ol>
      {run && !writes && !waits && !works && <RunStatus run={run} />}
      {queued.length > 0 && (
        <ul class="queued" aria-label="Messages that wait">
          {queued.map((one) => (
            <li key={one.message_id}><Icon name="clock" size={15} /><span dir="auto">{one.text}</span>
              <small>{one.delivery === "next_run" ? "after this run" : one.delivery === "after_decision" ? "after the decision" : "with the next step"}</small></li>
          ))}
        </ul>
      )}
    </>
  );
}

function RunStatus({ run }: { run: Run }) {
  if (run.retryUntil) return <p class="working" role="status"><Icon name="retry" size={15} /> asks the model again in <Countdown until={run.retryUntil} over="a moment" /></p>;
  return (
    <p class="working" role="status">
      <span class="dots" aria-hidden="true"><i /><i /><i /></span>
      {run.planning ? "makes a plan" : run.compacting ? "summarises what was said before" : "thinks"}{run.step > 1 && <small> step {run.step}</small>}
    </p>
  );
}

const NONE: Opinion<number>[] = [];

type TextItem = Exclude<SessionItem, { kind: "call" } | { kind: "question" }>;

const ItemView = memo(function Said({ item, ratings, ways }: { item: TextItem; ratings: Opinion<number>[] | undefined; ways: ItemActions }) {
  switch (item.kind) {
    case "user":
      return (
        <div class="of-person">
          <IconButton icon="pencil" label="Say this otherwise" title="Say this otherwise, in a fork of the conversation" onClick={() => ways.onRephrase(item.seq - 1, item.text)} />
          <article class="bubble" dir="auto" aria-label="You" title={formatDateTime(Date.parse(item.at))}>{item.text}</article>
        </div>
      );
    case "assistant":
      if (!item.text && item.streaming) return null;
      return (
        <article class="answer" aria-label="Agent">
          <Markdown text={item.text} streaming={item.streaming} />
          {item.stopped && <p class="stopped"><Icon name="stop" size={13} /> stopped here</p>}
          {!item.streaming && (
            <Rating session_id={ways.session_id} message_id={item.id} given={ratings ?? NONE} actions={
              <><Copy text={item.text} /><IconButton icon="fork" label="Fork the conversation after this answer" onClick={() => ways.onFork(item.seq)} /></>
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
        <div class={`end ended-${item.outcome}`}>
          {item.outcome === "failed" && <p class="notice bad"><Icon name="warn" size={15} /><span>The run failed<small>{item.text}</small></span></p>}
          <p class="end-facts">
            {item.outcome === "cancelled" && <span>Cancelled{item.text && ` ${item.text}`}</span>}
            <span>{formatDuration(item.ms)}</span>
            {item.usage && item.usage.output_tokens > 0 && <span title={formatMoney(item.usage.cost_usd)}>{formatTokens(item.usage)}{item.usage.cost_usd ? ` · ${formatMoney(item.usage.cost_usd)}` : ""}</span>}
            <RelativeTime at={item.at} />
            <IconButton icon="fork" label="Fork the conversation here" onClick={() => ways.onFork(item.seq)} />
          </p>
        </div>
      );
  }
});

function Copy({ text }: { text: string }) {
  const [copied, setCopied] = useState(false);
  const copy = () => {
    void navigator.clipboard?.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return <IconButton icon={copied ? "check" : "copy"} label={copied ? "Copied" : "Copy this answer"} onClick={copy} />;
}

/** From here on a summary stands for what is above. Nothing of that is lost to people. */
function Summary({ item }: { item: Extract<SessionItem, { kind: "summary" }> }) {
  return (
    <details class="summary-mark">
      <summary><span><Icon name="compress" size={15} /> {formatNumber(item.through)} older messages are told to the model as a summary <Icon name="chevron" size={14} /></span></summary>
      <div class="summary-text">
        <Markdown text={item.text} />
        <p class="hint">{item.usage && <>{formatTokens(item.usage)} to write · </>}<RelativeTime at={item.at} /></p>
      </div>
    </details>
  );
}
