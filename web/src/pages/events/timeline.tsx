/** The timeline of a run: the model, each tool and the approvals in lanes over time. */

import { useEffect, useMemo } from "preact/hooks";
import { EmptyState, Loading } from "../../components/ui";
import { truncate, shortId, sessionTitle } from "../../components/format";
import { eventLog, sessions } from "../../state/app_state";
import { navigate, routeUrl, route } from "../../state/route";
import { buildRuns } from "../../state/run_spans";
import { useStore } from "../../state/store";
import { RunTimeline } from "./lanes";

/** Selects a session and a run, and shows its timeline. */
export function TimelineView() {
  const { query } = useStore(route);
  const list = useStore(sessions, (sessionList) => sessionList.sessions);
  const sessionId = query.session || list[0]?.session_id || "";
  const version = useStore(eventLog.version);
  const loading = useStore(eventLog.loading);
  useEffect(() => {
    if (sessionId) void eventLog.loadAll(sessionId).catch(() => undefined);
  }, [sessionId]);
  const runs = useMemo(() => buildRuns(eventLog.frames.filter((frame) => frame.session_id === sessionId)), [sessionId, version]);
  const run = runs.find((candidate) => candidate.run_id === query.run) ?? runs.at(-1);
  const select = (change: { session?: string; run?: string }) => navigate(routeUrl("events", "timeline", { session: sessionId, run: run?.run_id, ...change }), true);
  return (
    <>
      <div class="filters">
        <select aria-label="Session" value={sessionId} onChange={(event) => select({ session: event.currentTarget.value, run: undefined })}>
          {!list.some((session) => session.session_id === sessionId) && sessionId && <option value={sessionId}>Session {shortId(sessionId)}</option>}
          {list.map((session) => <option key={session.session_id} value={session.session_id}>{sessionTitle(session)} · {shortId(session.session_id)}</option>)}
        </select>
        <select aria-label="Run" value={run?.run_id ?? ""} onChange={(event) => select({ run: event.currentTarget.value })}>
          {runs.map((candidate, index) => <option key={candidate.run_id} value={candidate.run_id}>{index + 1}. {truncate(candidate.title, 60)}</option>)}
        </select>
      </div>
      {run ? <RunTimeline key={run.run_id} run={run} sessionId={sessionId} />
        : loading ? <Loading subject="the run" /> : <EmptyState icon="clock" title="No runs yet">Select a session with at least one run.</EmptyState>}
    </>
  );
}
