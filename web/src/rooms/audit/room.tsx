/** Who decided what: the rows of the audit log, newest first. */

import { useState } from "preact/hooks";
import { client } from "../../api/client";
import type { AuditRow } from "../../api/types";
import { Json } from "../../parts/json";
import { Ago } from "../../parts/time";
import { Badge, Button, Empty, Failed, IconButton, Loading } from "../../parts/ui";
import { exact, short } from "../../parts/words";
import { useLoaded } from "../../parts/use_loaded";
import { go, link, route } from "../../state/route";
import { useStore } from "../../state/store";

const PAGE = 100;
const FILTERED = 500;

export function AuditRoom() {
  const { query } = useStore(route);
  const [chosen, setChosen] = useState<AuditRow | null>(null);
  const put = (change: Record<string, string | undefined>) => go(link("audit", "", { ...query, ...change }), true);
  const before = query.before ? Number(query.before) : undefined;
  const after = query.after ? Number(query.after) : undefined;
  const isFiltered = Boolean(query.user || query.action || query.session);
  const { value, problem, reload } = useLoaded(async () => {
    const filter = { user: query.user, action: query.action, session_id: query.session };
    // The server counts from the oldest row: with a filter it gives what it has, else the window before.
    if (isFiltered) return client.audit({ ...filter, after, limit: FILTERED });
    const end = before ?? (await client.lastAuditRow()) + 1;
    return client.audit({ after: Math.max(0, end - 1 - PAGE), before: end, limit: PAGE });
  }, [query.user, query.action, query.session, before, after]);
  const rows = value ? [...value.rows].sort((one, other) => other.n - one.n) : [];
  return (
    <div class="page">
      <header class="room-head">
        <h1>Audit</h1>
        <input type="search" aria-label="User" placeholder="User" value={query.user ?? ""} onChange={(event) => put({ user: event.currentTarget.value, before: undefined, after: undefined })} />
        <input type="search" aria-label="Action" placeholder="Action" value={query.action ?? ""} onChange={(event) => put({ action: event.currentTarget.value, before: undefined, after: undefined })} />
        <input type="search" aria-label="Session" placeholder="Session id" value={query.session ?? ""} onChange={(event) => put({ session: event.currentTarget.value, before: undefined, after: undefined })} />
        <a class="button quiet" href="/admin/audit?format=jsonl" download="audit.jsonl">Export</a>
      </header>
      <div class={`event-panes${chosen ? " with-detail" : ""}`}>
        <div class="page-body" tabIndex={0} role="region" aria-label="Audit log">
          {problem && <Failed problem={problem} retry={reload} />}
          {!value && !problem && <Loading what="the audit log" lines={10} />}
          {value && !rows.length && <Empty icon="audit" title="No rows" >{Object.keys(query).length > 0 && <a href={link("audit")}>Show all</a>}</Empty>}
          {rows.length > 0 && (
            <div class="table-frame">
              <table class="table">
                <thead><tr><th class="right">No.</th><th>When</th><th>What</th><th>Outcome</th><th>Who</th><th>About</th></tr></thead>
                <tbody>
                  {rows.map((row) => (
                    <tr key={row.n} class={chosen?.n === row.n ? "chosen" : ""}>
                      <td class="right numbers"><button type="button" class="text-button" onClick={() => setChosen(row)}>{row.n}</button></td>
                      <td><Ago at={row.at} /></td>
                      <td>{row.action.replace(/_/g, " ")}</td>
                      <td><Badge tone={toneOf(row.outcome)}>{row.outcome.replace(/_/g, " ")}</Badge></td>
                      <td>{row.user ?? <span class="hint">the rules</span>}{row.surface && <small class="hint"> {row.surface}</small>}</td>
                      <td>{row.tool ? <code>{row.tool}</code> : row.session_id && <span class="hint">session {short(row.session_id)}</span>}{row.reason && <div class="hint clip">{row.reason}</div>}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
              <div class="pager">
                {before !== undefined && <Button tone="quiet" onClick={() => put({ before: undefined, after: undefined })}>Newest</Button>}
                {!isFiltered && rows.at(-1)!.n > 1 && <Button tone="quiet" onClick={() => put({ before: String(rows.at(-1)!.n) })}>Older rows</Button>}
                {isFiltered && value?.next && <Button tone="quiet" onClick={() => put({ after: String(value.next) })}>Newer rows</Button>}
              </div>
            </div>
          )}
        </div>
        {chosen && (
          <section class="event-detail" aria-label="The row">
            <header><div><h2>Row {chosen.n}</h2><p class="hint">{exact(Date.parse(chosen.at))}</p></div><IconButton icon="close" label="Close the row" onClick={() => setChosen(null)} /></header>
            {chosen.session_id && <p><a href={link("chat", chosen.session_id)}>Conversation</a> · <a href={link("events", "", { session: chosen.session_id })}>Events</a></p>}
            <Json value={chosen as unknown as Record<string, never>} label="row" open={3} />
            <p class="hint">Its hash covers the row before it, so a changed or missing row shows: <code>greenroom audit verify</code>.</p>
          </section>
        )}
      </div>
    </div>
  );
}

function toneOf(outcome: string): "good" | "warn" | "bad" | "plain" {
  if (/denied|reject|refused|failed|revoked/.test(outcome)) return "bad";
  if (/allow|approved|done|accept/.test(outcome)) return "good";
  if (/ask|wait|expired|cancel/.test(outcome)) return "warn";
  return "plain";
}
