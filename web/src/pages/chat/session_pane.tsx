/** The pane of an open session. */

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { client, type OnBusy, type WorkflowRequest } from "../../api/client";
import { Problem, toProblem } from "../../api/http";
import { Button, EmptyState, ErrorNotice, IconButton, Loading } from "../../components/ui";
import { useOnReconnect } from "../../components/use_load";
import { sessionStatus } from "../../state/session_view";
import { saveDraft } from "../../state/drafts";
import { openSession, sendMessage } from "../../state/app_state";
import { routeUrl } from "../../state/route";
import { useStore } from "../../state/store";
import { Composer } from "./composer";
import { SessionItems, type ItemActions } from "./session_items";
import { PaneHead } from "./pane_head";

/** Shows a session. `onOpen` opens another session, such as a fork; `leading` starts the header. */
export function SessionPane({ session_id, onClose, onOpen, leading }: {
  session_id: string; onClose?: () => void; onOpen: (session_id: string) => void; leading: ComponentChildren;
}) {
  const session = useMemo(() => openSession(session_id), [session_id]);
  useEffect(() => session.retain(), [session]);
  const ready = useStore(session.ready);
  const view = useStore(session.view);
  const isPurged = useStore(session.isPurged);
  const [problem, setProblem] = useState<Problem | null>(null);
  useOnReconnect(() => ready instanceof Problem && ready.isOffline && void session.load());
  const status = sessionStatus(view);

  const runAction = async (action: () => Promise<unknown>) => {
    setProblem(null);
    try {
      await action();
      return true;
    } catch (error) {
      setProblem(toProblem(error));
      return false;
    }
  };
  const send = (message: string, message_id: string, on_busy: OnBusy, workflow?: WorkflowRequest) =>
    runAction(() => sendMessage({ session_id, message: message || undefined, message_id, on_busy, workflow }));
  const cancelRun = () => void runAction(() => client.cancelRun(session_id, view.run?.run_id));
  const forkSession = (at_seq?: number, draft = "") => void runAction(async () => {
    const forked = await client.forkSession(session_id, at_seq, view.title ? `${view.title} (fork)` : undefined);
    saveDraft(forked.session_id, draft);
    onOpen(forked.session_id);
  });
  const itemActions = useMemo((): ItemActions => ({ session_id, onFork: (seq) => latestFork.current(seq), onEditMessage: (seq, text) => latestFork.current(seq, text) }), [session_id]);
  const latestFork = useRef(forkSession);
  latestFork.current = forkSession;
  if (isPurged) return <DeletedPane leading={leading} onClose={onClose} />;

  return (
    <section class="pane" aria-label={view.title ?? "Session"} data-session={session_id} data-status={status}>
      <PaneHead session_id={session_id} view={view} status={status} leading={leading} onClose={onClose} onFork={() => forkSession()} />
      <Scroller>
        {ready instanceof Problem ? <ErrorNotice problem={ready} onRetry={() => void session.load()} />
          : ready === "loading" && !view.seq ? <Loading subject="the session" lines={6} />
          : <SessionItems view={view} actions={itemActions} />}
      </Scroller>
      <Composer draftKey={session_id} state={status} problem={problem} onSend={send} onCancel={cancelRun} />
    </section>
  );
}

/** The pane of a session that was purged. */
function DeletedPane({ leading, onClose }: { leading: ComponentChildren; onClose?: () => void }) {
  return (
    <section class="pane" aria-label="Deleted session" data-status="gone">
      <header class="pane-head">{leading}<div class="pane-title"><h2>Deleted</h2></div>{onClose && <IconButton icon="close" label="Close pane" onClick={onClose} />}</header>
      <EmptyState icon="trash" title="Session deleted">Its messages, calls and approvals were permanently removed. <a href={routeUrl("chat", "new")}>Start a new session</a></EmptyState>
    </section>
  );
}

/** A scroll area that follows its end while it is scrolled to the end. */
function Scroller({ children }: { children: ComponentChildren }) {
  const container = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  // Content that moves below a pressed pointer gets no click, so the area does not move during a press.
  const isPressed = useRef(false);
  const lastScrollTop = useRef(0);
  const [isAway, setAway] = useState(false);
  const scrollToEnd = () => {
    const element = container.current;
    if (element) element.scrollTop = element.scrollHeight;
  };
  useEffect(() => {
    const followEnd = () => isAtEnd.current && !isPressed.current && scrollToEnd();
    const [element, content] = [container.current, container.current?.firstElementChild];
    if (!element || !content) return;
    // Runs before any other task, so no click is dispatched between a change and its scroll.
    const mutationObserver = new MutationObserver(followEnd);
    mutationObserver.observe(content, { childList: true, characterData: true, subtree: true, attributeFilter: ["open"] });
    // Heights also change without a mutation, for example with the width of the window.
    const resizeObserver = new ResizeObserver(followEnd);
    for (const resized of [element, content]) resizeObserver.observe(resized);
    const release = () => {
      if (!isPressed.current) return;
      isPressed.current = false;
      // The click of this press is dispatched first.
      requestAnimationFrame(followEnd);
    };
    for (const type of ["pointerup", "pointercancel"]) addEventListener(type, release);
    return () => {
      mutationObserver.disconnect();
      resizeObserver.disconnect();
      for (const type of ["pointerup", "pointercancel"]) removeEventListener(type, release);
    };
  }, []);
  return (
    <div class="scroll-frame">
      <div class="scroller" ref={container} tabIndex={0} role="log" aria-label="Messages" aria-live="off"
        onPointerDown={(event) => { isPressed.current = event.button === 0; }}
        onScroll={(event) => {
          const { scrollTop, scrollHeight, clientHeight } = event.currentTarget;
          // The event of `scrollToEnd` may arrive when the content has grown again: only a scroll up leaves the end.
          if (scrollHeight - scrollTop - clientHeight < 60) isAtEnd.current = true;
          else if (scrollTop < lastScrollTop.current) isAtEnd.current = false;
          lastScrollTop.current = scrollTop;
          setAway(!isAtEnd.current);
        }}>
        <div class="scroll-content">{children}</div>
      </div>
      {isAway && <div class="scroll-to-latest"><Button icon="down" onClick={scrollToEnd}>Latest</Button></div>}
    </div>
  );
}
