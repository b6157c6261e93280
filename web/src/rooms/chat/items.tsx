/** What was said and done, in order. */

import { memo } from "preact/compat";
import { Icon } from "../../parts/icon";
import { Markdown } from "../../parts/markdown";
import { Ago, Countdown } from "../../parts/time";
import { IconButton } from "../../parts/ui";
import { duration, money, tokens } from "../../parts/words";
import { QuestionCard } from "../../questions/card";
import type { Call, Conversation, Item, Run } from "../../state/conversation";
import { CallCard } from "./call_card";

export function Items({ conversation, onFork }: { conversation: Conversation; onFork: (at_seq: number) => void }) {
  const { items, calls, questions, run, queued } = conversation;
  const last = items[items.length - 1];
  const writes = last?.kind === "assistant" && last.streaming && last.text !== "";
  const waits = Object.values(questions).some((question) => question.state === "pending");
  const works = Object.values(calls).some((call) => call.phase === "running" || call.phase === "backing_off");
  return (
    <>
      <ol class="items">
        {items.map((item) => (
          <li key={`${item.kind}${item.id}`} class={`item of-${item.kind}`}>
            {item.kind === "call" ? <OneCall call={calls[item.id]} questions={questions} />
              : item.kind === "question" ? questions[item.id] && <QuestionCard question={questions[item.id]!} />
              : <Said item={item} onFork={onFork} />}
          </li>
        ))}
      </ol>
      {run && !writes && !waits && !works && <Working run={run} />}
      {queued.length > 0 && (
        <ul class="queued" aria-label="Messages that wait">
          {queued.map((one) => (
            <li key={one.message_id}><Icon name="clock" size={15} /><span>{one.text}</span>
              <small>{one.delivery === "next_run" ? "after this run" : one.delivery === "after_decision" ? "after the decision" : "with the next step"}</small></li>
          ))}
        </ul>
      )}
    </>
  );
}

/** While a call waits for a person, its question shows it. */
function OneCall({ call, questions }: { call: Call | undefined; questions: Conversation["questions"] }) {
  const asked = call?.phase === "waiting" && call.approval_id ? questions[call.approval_id] : undefined;
  return call && asked?.state !== "pending" ? <CallCard call={call} /> : null;
}

function Working({ run }: { run: Run }) {
  if (run.retryUntil) return <p class="working" role="status"><Icon name="retry" size={15} /> asks the model again in <Countdown until={run.retryUntil} over="a moment" /></p>;
  return (
    <p class="working" role="status">
      <span class="dots" aria-hidden="true"><i /><i /><i /></span>
      {run.planning ? "makes a plan" : "thinks"}{run.step > 1 && <small> step {run.step}</small>}
    </p>
  );
}

type SaidItem = Exclude<Item, { kind: "call" } | { kind: "question" }>;

const Said = memo(function Said({ item, onFork }: { item: SaidItem; onFork: (at_seq: number) => void }) {
  switch (item.kind) {
    case "user":
      return <article class="bubble" aria-label="You" title={new Date(item.at).toLocaleString()}>{item.text}</article>;
    case "assistant":
      if (!item.text && item.streaming) return null;
      return (
        <article class="answer" aria-label="Agent">
          <Markdown text={item.text} streaming={item.streaming} />
          {item.stopped && <p class="stopped"><Icon name="stop" size={13} /> stopped here</p>}
        </article>
      );
    case "notice":
      return (
        <p class={`notice ${item.tone}`}><Icon name={item.tone === "info" ? "settings" : "warn"} size={15} />
          <span>{item.text}{item.detail && <small>{item.detail}</small>}</span></p>
      );
    case "end":
      return (
        <div class={`end ${item.outcome}`}>
          {item.outcome === "failed" && <p class="notice bad"><Icon name="warn" size={15} /><span>The run failed<small>{item.text}</small></span></p>}
          <p class="end-facts">
            {item.outcome === "cancelled" && <span>Cancelled{item.text && ` ${item.text}`}</span>}
            <span>{duration(item.ms)}</span>
            {item.usage && item.usage.output_tokens > 0 && <span title={money(item.usage.cost_usd)}>{tokens(item.usage)}{item.usage.cost_usd ? ` · ${money(item.usage.cost_usd)}` : ""}</span>}
            <Ago at={item.at} />
            <IconButton icon="fork" label="Fork the conversation here" onClick={() => onFork(item.seq)} />
          </p>
        </div>
      );
  }
});
