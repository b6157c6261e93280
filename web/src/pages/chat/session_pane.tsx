/** One conversation. */

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { client, type OnBusy, type WorkflowRequest } from "../../api/client";
import { Problem, toProblem } from "../../api/http";
import { Button, EmptyState, ErrorNotice, IconButton, Loading } from "../../components/ui";
import { useOnReconnect } from "../../components/use_load";
import { statusOf } from "../../state/session_view";
import { saveDraft } from "../../state/drafts";
import { openSession, sendMessage } from "../../state/app_state";
import { routeUrl } from "../../state/route";
import { useStore } from "../../state/store";
import { Composer } from "./composer";
import { Items, type ItemActions } from "./session_items";
import { PaneHead } from "./pane_head";

export function SessionPane({ session_id, onClose, onOpen, back }: {
  session_id: string; onClose?: () => void; onOpen: (session_id: string) => void; back: ComponentChildren;
}) {
  const session = useMemo(() => openSession(session_id), [session_id]);
  useEffect(() => session.retain(), [session]);
  const ready = useStore(session.ready);
  const conversation = useStore(session.conversation);
  const gone = useStore(session.isPurged);
  const [problem, setProblem] = useState<Problem | null>(null);
  useOnReconnect(() => ready instanceof Problem && ready.isOffline && void session.load());
  const status = statusOf(conversation);

  const attempt = async (work: () => Promise<unknown>) => {
    setProblem(null);
    try {
      await work();
      return true;
    } catch (error) {
      setProblem(toProblem(error));
      return false;
    }
  };
  const send = (message: string, message_id: string, on_busy: OnBusy, workflow?: WorkflowRequest) =>
    attempt(() => sendMessage({ session_id, message: message || undefined, message_id, on_busy, workflow }));
  const cancel = () => void attempt(() => client.cancel(session_id, conversation.run?.run_id));
  const fork = (at_seq?: number, draft = "") => void attempt(async () => {
    const made = await client.fork(session_id, at_seq, conversation.title ? `${conversation.title} (fork)` : undefined);
    saveDraft(made.session_id, draft);
    onOpen(made.session_id);
  });
  const ways = useMemo((): ItemActions => ({ session_id, onFork: (seq) => latest.current(seq), onRephrase: (seq, text) => latest.current(seq, text) }), [session_id]);
  const latest = useRef(fork);
  latest.current = fork;
  if (gone) return <DeletedPane back={back} onClose={onClose} />;

  return (
    <section class="pane" aria-label={conversation.title ?? "Conversation"} data-session={session_id} data-status={status}>
      <PaneHead session_id={session_id} conversation={conversation} status={status} back={back} onClose={onClose} onFork={() => fork()} />
      <Scroller follow={conversation}>
        {ready instanceof Problem ? <ErrorNotice problem={ready} retry={() => void session.load()} />
          : ready === "loading" && !conversation.seq ? <Loading what="the conversation" lines={6} />
          : <Items conversation={conversation} ways={ways} />}
      </Scroller>
      <Composer conversation={session_id} state={status} problem={problem} onSend={send} onCancel={cancel} />
    </section>
  );
}

/** It was deleted, here or anywhere else. */
function DeletedPane({ back, onClose }: { back: ComponentChildren; onClose?: () => void }) {
  return (
    <section class="pane" aria-label="A deleted conversation" data-status="gone">
      <header class="pane-head">{back}<div class="pane-title"><h2>Deleted</h2></div>{onClose && <IconButton icon="close" label="Close this pane" onClick={onClose} />}</header>
      <EmptyState icon="trash" title="This conversation was deleted">Its log, its messages and its questions are gone for good. <a href={routeUrl("chat", "new")}>Begin another</a></EmptyState>
    </section>
  );
}

/** Keeps to the end while one is there, and stays where one is otherwise. */
function Scroller({ children, follow }: { children: ComponentChildren; follow: unknown }) {
  const box = useRef<HTMLDivElement>(null);
  const atEnd = useRef(true);
  const [away, setAway] = useState(false);
  const toEnd = () => {
    const element = box.current;
    if (element) element.scrollTop = element.scrollHeight;
  };
  useEffect(() => {
    if (atEnd.current) toEnd();
  }, [follow]);
  useEffect(() => {
    const content = box.current?.firstElementChild;
    if (!content) return;
    // Cards unfold and pictures of text grow after they are there.
    const watch = new ResizeObserver(() => atEnd.current && toEnd());
    watch.observe(content);
    return () => watch.disconnect();
  }, []);
  return (
    <div class="scroll-frame">
      <div class="scroller" ref={box} tabIndex={0} role="log" aria-label="Messages" aria-live="off"
        onScroll={(event) => {
          const { scrollTop, scrollHeight, clientHeight } = event.currentTarget;
          atEnd.current = scrollHeight - scrollTop - clientHeight < 60;
          setAway(!atEnd.current);
        }}>
        <div class="scrolled">{children}</div>
      </div>
      {away && <div class="to-end"><Button icon="down" onClick={toEnd}>Latest</Button></div>}
    </div>
  );
}
