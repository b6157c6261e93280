/** The audit page: the rows of the audit log, newest first. */

import { useEffect, useState } from "preact/hooks";
import { client } from "../../api/client";
import { type Problem, toProblem } from "../../api/http";
import type { AuditRow } from "../../api/types";
import { JsonView } from "../../components/json";
import { RelativeTime } from "../../components/time";
import { Badge, Button, EmptyState, ErrorNotice, IconButton, Loading } from "../../components/ui";
import { useOnReconnect } from "../../components/use_load";
import { EscapedText } from "../../components/escaped_text";
import { formatDateTime, shortId } from "../../components/format";
import { navigate, routeUrl, route } from "../../state/route";
import { useStore } from "../../state/store";

const PAGE_SIZE = 100;

/** The actions that the audit log records. */
const ACTIONS = [
  "approval_requested", "approval_decided", "approval_answered", "approval_escalated", "approval_expired", "approval_cancelled",
  "authorization_denied", "tool_call_allowed", "budget_raised", "grant_added", "grant_revoked", "run_cancelled", "queued_message_changed", "queued_message_withdrawn",
  "session_created", "session_forked", "session_settings_changed", "session_closed", "session_purged",
  "user_settings_changed", "ceilings_changed", "key_created", "key_revoked", "actor_stopped", "actor_restarted",
];

interface LoadedRows {
  rows: AuditRow[];
  /** The number of the last row, if there are older rows. */
  next: number | null;
}

/** The page with the audit log. */
export function AuditPage() {
  const { query } = useStore(route);
  const [selected, setSelected] = useState<AuditRow | null>(null);
  const [loaded, setLoaded] = useState<LoadedRows | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [busy, setBusy] = useState(false);
  const filter = { user: query.user, action: query.action, session_id: query.session };
  const load = async (before?: number) => {
    setBusy(true);
    setProblem(null);
    try {
      const { rows, next } = await client.listAuditRows({ ...filter, before, limit: PAGE_SIZE });
      setLoaded((current) => ({ rows: [...(before && current ? current.rows : []), ...rows], next }));
    } catch (error) {
      setProblem(toProblem(error));
    } finally {
      setBusy(false);
    }
  };
  useEffect(() => void load(), [query.user, query.action, query.session]);
  useOnReconnect(() => problem?.isOffline && void load());
  const updateFilter = (change: Record<string, string>) => navigate(routeUrl("audit", "", { ...query, ...change }), true);
  const isFiltered = Object.values(filter).some(Boolean);
  return (
    <div class="page">
      <header class="page-head">
        <h1>Audit</h1>
        <select aria-label="Action" value={query.action ?? ""} onChange={(event) => updateFilter({ action: event.currentTarget.value })}>
          <option value="">All actions</option>
          {query.action && !ACTIONS.includes(query.action) && <option value={query.action}>{query.action.replace(/_/g, " ")}</option>}
          {ACTIONS.map((action) => <option key={action} value={action}>{action.replace(/_/g, " ")}</option>)}
        </select>
        <input type="search" aria-label="User" placeholder="User" value={query.user ?? ""} onChange={(event) => updateFilter({ user: event.currentTarget.value.trim() })} />
        <input type="search" aria-label="Session" placeholder="Session id" value={query.session ?? ""} onChange={(event) => updateFilter({ session: event.currentTarget.value.trim() })} />
        <Button tone="quiet" icon="retry" busy={busy} onClick={() => void load()}>Refresh</Button>
        <a class="button quiet" href="/admin/audit?format=jsonl" download="audit.jsonl">Export</a>
      </header>
      <div class={`event-panes${selected ? " with-detail" : ""}`}>
        <div class="page-body" tabIndex={0} role="region" aria-label="Audit log">
          {problem && <ErrorNotice problem={problem} onRetry={() => void load()} />}
          {!loaded && !problem && <Loading subject="the audit log" lines={10} />}
          {loaded && !loaded.rows.length && !problem && <EmptyState icon="audit" title={isFiltered ? "No matches" : "No audit rows yet"}>{isFiltered && <a href={routeUrl("audit")}>Clear filters</a>}</EmptyState>}
          {loaded && loaded.rows.length > 0 && (
            <div class="table-frame">
              <AuditTable rows={loaded.rows} selected={selected} onSelect={setSelected} updateFilter={updateFilter} />
              <div class="pager">{loaded.next && <Button busy={busy} onClick={() => void load(loaded.next!)}>Load older rows</Button>}</div>
            </div>
          )}
        </div>
        {selected && <AuditDetail row={selected} onClose={() => setSelected(null)} />}
      </div>
    </div>
  );
}

function AuditTable({ rows, selected, onSelect, updateFilter }: {
  rows: AuditRow[]; selected: AuditRow | null; onSelect: (row: AuditRow) => void; updateFilter: (change: Record<string, string>) => void;
}) {
  return (
    <table class="table audit">
      <thead><tr><th class="right">No.</th><th>Time</th><th>Action</th><th>Outcome</th><th>User</th><th>Details</th></tr></thead>
      <tbody>
        {rows.map((row) => (
          <tr key={row.n} class={selected?.n === row.n ? "selected" : ""}>
            <td class="right numbers"><button type="button" class="text-button" aria-label={`Row ${row.n}`} onClick={() => onSelect(row)}>{row.n}</button></td>
            <td><RelativeTime timestamp={row.at} /></td>
            <td>{row.action.replace(/_/g, " ")}</td>
            <td><Badge tone={outcomeTone(row.outcome)}>{row.outcome.replace(/_/g, " ")}</Badge></td>
            <td>{row.user ? <button type="button" class="text-button plain" title={`Show only rows of ${row.user}`} onClick={() => updateFilter({ user: row.user! })}>{row.user}</button> : <span class="hint">system</span>}{row.surface && <small class="hint"> {row.surface}</small>}</td>
            <td>{row.tool && <code><EscapedText text={row.tool} /></code>} {row.session_id && <button type="button" class="text-button plain hint" title="Show only rows of this session" onClick={() => updateFilter({ session: row.session_id! })}>session {shortId(row.session_id)}</button>}{row.reason && <div class="hint ellipsis" title={row.reason}>{row.reason}</div>}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function AuditDetail({ row, onClose }: { row: AuditRow; onClose: () => void }) {
  return (
    <section class="event-detail" aria-label="Audit row details">
      <header><div><h2>Row {row.n}</h2><p class="hint">{formatDateTime(Date.parse(row.at))}</p></div><IconButton icon="close" label="Close details" onClick={onClose} /></header>
      {row.session_id && <p><a href={routeUrl("chat", row.session_id)}>Session</a> · <a href={routeUrl("events", "", { session: row.session_id })}>Events</a></p>}
      <JsonView value={row as unknown as Record<string, never>} label="row" open={3} />
      <p class="hint">The hash of a row includes the hash of the previous row. To detect changed or missing rows, run <code>greenroom audit verify</code>.</p>
    </section>
  );
}

function outcomeTone(outcome: string): "good" | "warn" | "bad" | "plain" {
  if (/denied|reject|refused|failed|revoked/.test(outcome)) return "bad";
  if (/allow|approved|done|accept/.test(outcome)) return "good";
  if (/ask|wait|expired|cancel/.test(outcome)) return "warn";
  return "plain";
}
