/** The live stream of events, filtered; each can be opened. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Frame } from "../../api/types";
import { Icon } from "../../components/icon";
import { Button, EmptyState, Loading } from "../../components/ui";
import { VirtualList } from "../../components/virtual_list";
import { EscapedText, escapeUnsafe } from "../../components/escaped_text";
import { formatTimeOfDay, formatNumber, shortId, sessionTitle } from "../../components/format";
import { type Filter, eventSummary, EVENT_GROUPS, TONE } from "../../state/event_filter";
import { eventLog, me, sessions } from "../../state/app_state";
import { navigate, routeUrl, route } from "../../state/route";
import { useStore } from "../../state/store";
import { EventDetail } from "./event_detail";
import { useFiltered } from "./use_filtered_events";

const ROW_HEIGHT = 30;

const isSame = (one: Frame, other: Frame) => one.session_id === other.session_id && one.seq === other.seq;

export function Stream() {
  const { query } = useStore(route);
  const filter: Filter = {
    session: query.session ?? "", kind: query.kind ?? "", tool: query.tool ?? "", agent: query.agent ?? "", words: query.words ?? "",
  };
  const put = (change: Partial<Filter>) => navigate(routeUrl("events", "", { ...filter, ...change }), true);
  const [paused, setPaused] = useState(false);
  const [chosen, setChosen] = useState<Frame | null>(null);
  const { rows, heldBack: held, version } = useFiltered(eventLog, filter, paused);
  const loading = useStore(eventLog.loading);
  useEffect(() => {
    if (filter.session) void eventLog.readAll(filter.session).catch(() => undefined);
  }, [filter.session]);
  useLinkedEvent(query.session, query.seq, setChosen);
  const isFiltered = Object.values(filter).some(Boolean);
  return (
    <>
      <Filters filter={filter} put={put} />
      <div class={`event-panes${chosen ? " with-detail" : ""}`}>
        <div class="event-list">
          {rows.length ? (
            <VirtualList label="Events" rows={rows} rowHeight={ROW_HEIGHT} version={version} follow={!paused} isSame={isSame}
              chosen={chosen} onChoose={setChosen} row={(frame) => <EventRow frame={frame} />} />
          ) : loading ? <Loading what="events" lines={8} /> : (
            <EmptyState icon="events" title={isFiltered ? "Nothing matches" : "Nothing has happened yet"}>
              {isFiltered ? <button type="button" class="text-button" onClick={() => navigate(routeUrl("events"), true)}>Show everything</button>
                : "Events appear here as soon as somebody talks with an agent."}
            </EmptyState>
          )}
          <footer class="event-foot">
            <Button tone="quiet" icon={paused ? "play" : "pause"} onClick={() => setPaused(!paused)} aria-pressed={paused}>
              {paused ? (held ? `Go on, ${formatNumber(held)} new` : "Go on") : "Pause"}
            </Button>
            <span class="hint numbers" role="status">{formatNumber(rows.length)} {isFiltered && <>of {formatNumber(eventLog.frames.length)} </>}events
              {eventLog.dropped > 0 && <>, {formatNumber(eventLog.dropped)} older ones left the page</>}</span>
          </footer>
        </div>
        {chosen && <EventDetail frame={chosen} onChoose={setChosen} onClose={() => setChosen(null)} />}
      </div>
    </>
  );
}

/** Opens the event that the address names, once it is there. */
function useLinkedEvent(session: string | undefined, seq: string | undefined, open: (frame: Frame) => void) {
  const version = useStore(eventLog.version);
  const opened = useRef("");
  useEffect(() => {
    const wanted = `${session} ${seq}`;
    if (!session || !seq || opened.current === wanted) return;
    const frame = eventLog.frames.find((one) => one.session_id === session && one.seq === Number(seq));
    if (!frame) return;
    opened.current = wanted;
    open(frame);
  }, [session, seq, version]);
}

function Filters({ filter, put }: { filter: Filter; put: (change: Partial<Filter>) => void }) {
  const list = useStore(sessions, (found) => found.sessions);
  const agents = useStore(me)?.agents ?? [];
  const version = useStore(eventLog.version);
  // Often enough for a list of names.
  const tools = useMemo(() => [...new Set(eventLog.frames.map((frame) => frame.body.tool).filter((tool) => typeof tool === "string"))].sort(), [Math.floor(version / 20)]);
  const types = useMemo(() => [...new Set(eventLog.frames.map((frame) => frame.type))].sort(), [Math.floor(version / 20)]);
  const known = list.some((session) => session.session_id === filter.session);
  return (
    <div class="filters" role="search" aria-label="Filter events">
      <label class="search"><Icon name="search" size={16} /><span class="sr-only">Search events</span>
        <input type="search" placeholder="Search" value={filter.words} onInput={(event) => put({ words: event.currentTarget.value })} /></label>
      <select aria-label="Session" value={filter.session} onChange={(event) => put({ session: event.currentTarget.value })}>
        <option value="">All sessions</option>
        {filter.session && !known && <option value={filter.session}>Session {shortId(filter.session)}</option>}
        {list.map((session) => <option key={session.session_id} value={session.session_id}>{sessionTitle(session)} · {shortId(session.session_id)}</option>)}
      </select>
      <select aria-label="Type" value={filter.kind} onChange={(event) => put({ kind: event.currentTarget.value })}>
        <option value="">All types</option>
        <optgroup label="About">{Object.entries(EVENT_GROUPS).map(([name, group]) => <option key={name} value={name}>{group.label}</option>)}</optgroup>
        <optgroup label="One type">
          {filter.kind && !EVENT_GROUPS[filter.kind] && !types.includes(filter.kind) && <option value={filter.kind}>{filter.kind}</option>}
          {types.map((type) => <option key={type} value={type}>{type}</option>)}
        </optgroup>
      </select>
      <select aria-label="Tool" value={filter.tool} onChange={(event) => put({ tool: event.currentTarget.value })}>
        <option value="">All tools</option>
        {filter.tool && !tools.includes(filter.tool) && <option value={filter.tool}>{escapeUnsafe(filter.tool)}</option>}
        {tools.map((tool) => <option key={tool} value={tool}>{escapeUnsafe(tool)}</option>)}
      </select>
      {agents.length > 1 && (
        <select aria-label="Agent" value={filter.agent} onChange={(event) => put({ agent: event.currentTarget.value })}>
          <option value="">All agents</option>
          {agents.map((agent) => <option key={agent.name} value={agent.name}>{agent.name}</option>)}
        </select>
      )}
    </div>
  );
}

function EventRow({ frame }: { frame: Frame }) {
  return (
    <>
      <span class="event-at numbers">{formatTimeOfDay(Date.parse(frame.at))}</span>
      <span class="event-session" title={frame.session_id}>{shortId(frame.session_id)}</span>
      <span class="event-seq numbers">{frame.seq}</span>
      <span class={`event-type ${TONE[frame.type] ?? ""}`}>{frame.type}</span>
      <span class="event-gist"><EscapedText text={eventSummary(frame)} /></span>
    </>
  );
}
