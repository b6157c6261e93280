/** The session list with search. */

import { useMemo, useRef, useState } from "preact/hooks";
import { type Problem, toProblem } from "../../api/http";
import type { Session } from "../../api/types";
import { Icon } from "../../components/icon";
import { RelativeTime } from "../../components/time";
import { Button, EmptyState, ErrorNotice, IconButton, Loading } from "../../components/ui";
import { formatNumber, sessionTitle } from "../../components/format";
import { approvalInbox, loadMoreSessions, loadSessions, currentUser, searchOlderSessions, sessions } from "../../state/app_state";
import { navigate, routeUrl } from "../../state/route";
import { sessionMatches } from "../../state/session_pages";
import { useStore } from "../../state/store";

const STATUS_LABELS: Record<string, string> = { running: "running", waiting: "waiting for approval", closed: "closed", idle: "" };

/** The list of sessions and their states. `onOpenBeside` opens a session in another pane. */
export function SessionList({ openIds, onOpen, onOpenBeside }: {
  openIds: string[]; onOpen: (id: string) => void; onOpenBeside?: (id: string) => void;
}) {
  const list = useStore(sessions);
  const [searchText, setSearchText] = useState("");
  const matchingSessions = useMemo(() => list.sessions.filter((session) => sessionMatches(session, searchText)), [list.sessions, searchText]);
  return (
    <aside class="session-list" aria-label="Sessions">
      <header>
        <h2>Chat</h2>
        <a class="button primary" href={routeUrl("chat", "new")}><Icon name="plus" size={16} /><span>New</span></a>
      </header>
      <label class="search">
        <Icon name="search" size={16} /><span class="sr-only">Search sessions</span>
        <input type="search" placeholder="Search" value={searchText} onInput={(event) => setSearchText(event.currentTarget.value)} />
      </label>
      {!list.loaded && <Loading subject="sessions" lines={5} />}
      {list.error && !list.sessions.length && <ErrorNotice problem={list.error} onRetry={() => void loadSessions()} />}
      {list.loaded && !list.error && !matchingSessions.length && (
        <EmptyState icon="chat" title={searchText ? "No matches" : "No sessions yet"}>
          {!searchText ? "Send a message to start a session." : list.next && `Only the newest ${formatNumber(list.sessions.length)} sessions were searched.`}
        </EmptyState>
      )}
      <ul>
        {matchingSessions.map((session) => (
          <SessionRow key={session.session_id} session={session} isOpen={openIds.includes(session.session_id)} onOpen={onOpen} onOpenBeside={onOpenBeside} />
        ))}
      </ul>
      {list.next && <OlderSessions searchText={searchText.trim()} />}
    </aside>
  );
}

/** Loads older sessions on request. The search covers the loaded sessions only. */
function OlderSessions({ searchText }: { searchText: string }) {
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const latestSearch = useRef(searchText);
  latestSearch.current = searchText;
  const loadOlder = async () => {
    setBusy(true);
    setProblem(null);
    try {
      if (searchText) await searchOlderSessions((session) => sessionMatches(session, searchText), () => latestSearch.current === searchText);
      else await loadMoreSessions();
    } catch (error) {
      setProblem(toProblem(error));
    }
    setBusy(false);
  };
  return (
    <div class="load-more">
      {problem && <p class="error-text" role="alert">{problem.message}</p>}
      <Button tone="quiet" busy={busy} onClick={() => void loadOlder()}>{searchText ? "Search older sessions" : "Load older sessions"}</Button>
    </div>
  );
}

function SessionRow({ session, isOpen, onOpen, onOpenBeside }: {
  session: Session; isOpen: boolean; onOpen: (id: string) => void; onOpenBeside?: (id: string) => void;
}) {
  const user = useStore(currentUser);
  // The server reports a session with a pending elicitation as running.
  const hasPendingApproval = useStore(approvalInbox, (inbox) => inbox.approvals.some((approval) => approval.session_id === session.session_id));
  const status = hasPendingApproval && session.status === "running" ? "waiting" : session.status;
  const ownerSuffix = user && session.user_id !== user.user_id ? ` · ${session.user_id}` : "";
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
          <RelativeTime timestamp={session.updated_at} />{ownerSuffix}
        </span>
      </a>
      {onOpenBeside && !isOpen && <IconButton icon="columns" label={`Open ${sessionTitle(session)} side by side`} onClick={() => onOpenBeside(session.session_id)} />}
    </li>
  );
}
