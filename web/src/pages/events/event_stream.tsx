/** The live list of events with filters. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Frame } from "../../api/types";
import { Icon } from "../../components/icon";
import { Button, EmptyState, Loading } from "../../components/ui";
import { VirtualList } from "../../components/virtual_list";
import { EscapedText, escapeUnsafe } from "../../components/escaped_text";
import { formatTimeOfDay, formatNumber, shortId, sessionTitle } from "../../components/format";
import { type Filter, eventSummary, EVENT_GROUPS, EVENT_TONES } from "../../state/event_filter";
import { eventLog, currentUser, sessions } from "../../state/app_state";
import { navigate, routeUrl, route } from "../../state/route";
import { useStore } from "../../state/store";
import { EventDetail } from "./event_detail";
import { useFilteredEvents } from "./use_filtered_events";

const ROW_HEIGHT = 30;

const isSame = (a: Frame, b: Frame) => a.session_id === b.session_id && a.seq === b.seq;

/** Shows the filtered event list and the details of the selected event. */
export function EventStream() {
  const { query } = useStore(route);
  const filter: Filter = {
    session: query.session ?? "", kind: query.kind ?? "", tool: query.tool ?? "", agent: query.agent ?? "", words: query.words ?? "",
  };
  const updateFilter = (change: Partial<Filter>) => navigate(routeUrl("events", "", { ...filter, ...change }), true);
  const [paused, setPaused] = useState(false);
  const [selected, setSelected] = useState<Frame | null>(null);
  const { rows, heldBack, version } = useFilteredEvents(eventLog, filter, paused);
  const loading = useStore(eventLog.loading);
  useEffect(() => {
    if (filter.session) void eventLog.loadAll(filter.session).catch(() => undefined);
  }, [filter.session]);
  useLinkedEvent(query.session, query.seq, setSelected);
  const isFiltered = Object.values(filter).some(Boolean);
  return (
    <>
      <Filters filter={filter} updateFilter={updateFilter} />
      <div class={`event-panes${selected ? " with-detail" : ""}`}>
        <div class="event-list">
          {rows.length ? (
            <VirtualList label="Events" rows={rows} rowHeight={ROW_HEIGHT} version={version} follow={!paused} isSame={isSame}
              selected={selected} onSelect={setSelected} renderRow={(frame) => <EventRow frame={frame} />} />
          ) : loading ? <Loading subject="events" lines={8} /> : (
            <EmptyState icon="events" title={isFiltered ? "No matches" : "No events yet"}>
              {isFiltered ? <button type="button" class="text-button" onClick={() => navigate(routeUrl("events"), true)}>Clear filters</button>
                : "Events appear here when a session receives a message."}
            </EmptyState>
          )}
          <footer class="event-footer">
            <Button tone="quiet" icon={paused ? "play" : "pause"} onClick={() => setPaused(!paused)} aria-pressed={paused}>
              {paused ? (heldBack ? `Resume, ${formatNumber(heldBack)} new` : "Resume") : "Pause"}
            </Button>
            <span class="hint numbers" role="status">{formatNumber(rows.length)} {isFiltered && <>of {formatNumber(eventLog.frames.length)} </>}events
              {eventLog.dropped > 0 && <>, {formatNumber(eventLog.dropped)} older dropped</>}</span>
          </footer>
        </div>
        {selected && <EventDetail frame={selected} onSelect={setSelected} onClose={() => setSelected(null)} />}
      </div>
    </>
  );
}

/** Calls `onFound` with the event that the URL names, once it is loaded. */
function useLinkedEvent(session: string | undefined, seq: string | undefined, onFound: (frame: Frame) => void) {
  const version = useStore(eventLog.version);
  const openedLink = useRef("");
  useEffect(() => {
    const linkKey = `${session} ${seq}`;
    if (!session || !seq || openedLink.current === linkKey) return;
    const frame = eventLog.frames.find((candidate) => candidate.session_id === session && candidate.seq === Number(seq));
    if (!frame) return;
    openedLink.current = linkKey;
    onFound(frame);
  }, [session, seq, version]);
}

function Filters({ filter, updateFilter }: { filter: Filter; updateFilter: (change: Partial<Filter>) => void }) {
  const list = useStore(sessions, (sessionList) => sessionList.sessions);
  const agents = useStore(currentUser)?.agents ?? [];
  const version = useStore(eventLog.version);
  // Updates the lists of names only with every twentieth version.
  const tools = useMemo(() => [...new Set(eventLog.frames.map((frame) => frame.body.tool).filter((tool) => typeof tool === "string"))].sort(), [Math.floor(version / 20)]);
  const types = useMemo(() => [...new Set(eventLog.frames.map((frame) => frame.type))].sort(), [Math.floor(version / 20)]);
  const isListed = list.some((session) => session.session_id === filter.session);
  return (
    <div class="filters" role="search" aria-label="Filter events">
      <label class="search"><Icon name="search" size={16} /><span class="sr-only">Search events</span>
        <input type="search" placeholder="Search" value={filter.words} onInput={(event) => updateFilter({ words: event.currentTarget.value })} /></label>
      <select aria-label="Session" value={filter.session} onChange={(event) => updateFilter({ session: event.currentTarget.value })}>
        <option value="">All sessions</option>
        {filter.session && !isListed && <option value={filter.session}>Session {shortId(filter.session)}</option>}
        {list.map((session) => <option key={session.session_id} value={session.session_id}>{sessionTitle(session)} · {shortId(session.session_id)}</option>)}
      </select>
      <select aria-label="Type" value={filter.kind} onChange={(event) => updateFilter({ kind: event.currentTarget.value })}>
        <option value="">All types</option>
        <optgroup label="Groups">{Object.entries(EVENT_GROUPS).map(([name, group]) => <option key={name} value={name}>{group.label}</option>)}</optgroup>
        <optgroup label="Event types">
          {filter.kind && !EVENT_GROUPS[filter.kind] && !types.includes(filter.kind) && <option value={filter.kind}>{filter.kind}</option>}
          {types.map((type) => <option key={type} value={type}>{type}</option>)}
        </optgroup>
      </select>
      <select aria-label="Tool" value={filter.tool} onChange={(event) => updateFilter({ tool: event.currentTarget.value })}>
        <option value="">All tools</option>
        {filter.tool && !tools.includes(filter.tool) && <option value={filter.tool}>{escapeUnsafe(filter.tool)}</option>}
        {tools.map((tool) => <option key={tool} value={tool}>{escapeUnsafe(tool)}</option>)}
      </select>
      {agents.length > 1 && (
        <select aria-label="Agent" value={filter.agent} onChange={(event) => updateFilter({ agent: event.currentTarget.value })}>
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
      <span class={`event-type ${EVENT_TONES[frame.type] ?? ""}`}>{frame.type}</span>
      <span class="event-summary"><EscapedText text={eventSummary(frame)} /></span>
    </>
  );
}
