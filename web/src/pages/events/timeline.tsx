/** One run in lanes over time: the model, each tool, and the people who were waited for. */

import { useEffect, useMemo } from "preact/hooks";
import { EmptyState, Loading } from "../../components/ui";
import { truncate, shortId, sessionTitle } from "../../components/format";
import { eventLog, sessions } from "../../state/app_state";
import { navigate, routeUrl, route } from "../../state/route";
import { buildRuns } from "../../state/run_spans";
import { useStore } from "../../state/store";
import { Lanes } from "./lanes";

export function Timeline() {
  const { query } = useStore(route);
  const list = useStore(sessions, (found) => found.sessions);
  const session = query.session || list[0]?.session_id || "";
  const version = useStore(eventLog.version);
  const loading = useStore(eventLog.loading);
  useEffect(() => {
    if (session) void eventLog.readAll(session).catch(() => undefined);
  }, [session]);
  const runs = useMemo(() => buildRuns(eventLog.frames.filter((frame) => frame.session_id === session)), [session, version]);
  const run = runs.find((one) => one.run_id === query.run) ?? runs.at(-1);
  const choose = (change: { session?: string; run?: string }) => navigate(routeUrl("events", "timeline", { session, run: run?.run_id, ...change }), true);
  return (
    <>
      <div class="filters">
        <select aria-label="Session" value={session} onChange={(event) => choose({ session: event.currentTarget.value, run: undefined })}>
          {!list.some((one) => one.session_id === session) && session && <option value={session}>Session {shortId(session)}</option>}
          {list.map((one) => <option key={one.session_id} value={one.session_id}>{sessionTitle(one)} · {shortId(one.session_id)}</option>)}
        </select>
        <select aria-label="Run" value={run?.run_id ?? ""} onChange={(event) => choose({ run: event.currentTarget.value })}>
          {runs.map((one, at) => <option key={one.run_id} value={one.run_id}>{at + 1}. {truncate(one.title, 60)}</option>)}
        </select>
      </div>
      {run ? <Lanes key={run.run_id} run={run} session={session} />
        : loading ? <Loading what="the run" /> : <EmptyState icon="clock" title="No run to show">Choose a session in which something was asked.</EmptyState>}
    </>
  );
}
