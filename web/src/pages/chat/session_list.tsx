/** The sessions there are, and what each is doing. */

import { useMemo, useRef, useState } from "preact/hooks";
import { type Problem, toProblem } from "../../api/http";
import type { Session } from "../../api/types";
import { Icon } from "../../components/icon";
import { RelativeTime } from "../../components/time";
import { Button, EmptyState, ErrorNotice, IconButton, Loading } from "../../components/ui";
import { formatNumber, sessionTitle } from "../../components/format";
import { approvalInbox, loadMoreSessions, loadSessions, me, searchOlderSessions, sessions } from "../../state/app_state";
import { navigate, routeUrl } from "../../state/route";
import { matches } from "../../state/session_pages";
import { useStore } from "../../state/store";

const STATUS_LABELS: Record<string, string> = { running: "working", waiting: "waits for a person", closed: "closed", idle: "" };

export function SessionList({ current, onOpen, onBeside }: {
  current: string[]; onOpen: (id: string) => void; onBeside?: (id: string) => void;
}) {
  const list = useStore(sessions);
  const [search, setSearch] = useState("");
  const found = useMemo(() => list.sessions.filter((session) => matches(session, search)), [list.sessions, search]);
  return (
    <aside class="session-list" aria-label="Conversations">
      <header>
        <h2>Chat</h2>
        <a class="button primary" href={routeUrl("chat", "new")}><Icon name="plus" size={16} /><span>New</span></a>
      </header>
      <label class="search">
        <Icon name="search" size={16} /><span class="sr-only">Search conversations</span>
        <input type="search" placeholder="Search" value={search} onInput={(event) => setSearch(event.currentTarget.value)} />
      </label>
      {!list.loaded && <Loading what="conversations" lines={5} />}
      {list.error && !list.sessions.length && <ErrorNotice problem={list.error} retry={() => void loadSessions()} />}
      {list.loaded && !list.error && !found.length && (
        <EmptyState icon="chat" title={search ? "Nothing matches" : "No conversations yet"}>
          {!search ? "Begin one: the first message makes it." : list.next && `These were the newest ${formatNumber(list.sessions.length)}.`}
        </EmptyState>
      )}
      <ul>
        {found.map((session) => (
          <SessionRow key={session.session_id} session={session} isOpen={current.includes(session.session_id)} onOpen={onOpen} onBeside={onBeside} />
        ))}
      </ul>
      {list.next && <OlderSessions search={search.trim()} />}
    </aside>
  );
}

/** What is searched is what was read: the older ones are read when somebody asks for them. */
function OlderSessions({ search }: { search: string }) {
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const latest = useRef(search);
  latest.current = search;
  const read = async () => {
    setBusy(true);
    setProblem(null);
    try {
      if (search) await searchOlderSessions((session) => matches(session, search), () => latest.current === search);
      else await loadMoreSessions();
    } catch (error) {
      setProblem(toProblem(error));
    }
    setBusy(false);
  };
  return (
    <div class="more">
      {problem && <p class="wrong" role="alert">{problem.message}</p>}
      <Button tone="quiet" busy={busy} onClick={() => void read()}>{search ? "Search in older ones" : "Older ones"}</Button>
    </div>
  );
}

function SessionRow({ session, isOpen, onOpen, onBeside }: {
  session: Session; isOpen: boolean; onOpen: (id: string) => void; onBeside?: (id: string) => void;
}) {
  const who = useStore(me);
  // One that waits for what a tool asks is at work, as the server counts.
  const asked = useStore(approvalInbox, (found) => found.approvals.some((question) => question.session_id === session.session_id));
  const status = asked && session.status === "running" ? "waiting" : session.status;
  const foreign = who && session.user_id !== who.user_id ? ` · ${session.user_id}` : "";
  return (
    <li class={`session-row ${status}`}>
      <a href={routeUrl("chat", session.session_id)} aria-current={isOpen ? "true" : undefined}
        onClick={(event) => {
          if (event.ctrlKey || event.metaKey) return;
          event.preventDefault();
          if (!isOpen) onOpen(session.session_id);
          else navigate(routeUrl("chat", session.session_id));
        }}>
        <span class="session-title" dir="auto">{sessionTitle(session)}</span>
        <span class="session-facts">
          <span class={`status-dot ${status}`} aria-hidden="true" />
          {STATUS_LABELS[status] && <span class="session-state">{STATUS_LABELS[status]}</span>}
          <RelativeTime at={session.updated_at} />{foreign}
        </span>
      </a>
      {onBeside && !isOpen && <IconButton icon="columns" label={`Open ${sessionTitle(session)} beside the others`} onClick={() => onBeside(session.session_id)} />}
    </li>
  );
}
