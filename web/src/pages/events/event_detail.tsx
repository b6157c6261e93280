/** The details of an event: its fields, its cause and its effects. */

import { useMemo } from "preact/hooks";
import { toFlat } from "../../api/frames";
import type { Frame } from "../../api/types";
import { Icon } from "../../components/icon";
import { JsonView } from "../../components/json";
import { IconButton } from "../../components/ui";
import { useThrottled } from "../../components/use_throttled";
import { EscapedText } from "../../components/escaped_text";
import { formatDateTime } from "../../components/format";
import { traceCauses } from "../../state/causality";
import { eventSummary, EVENT_TONES } from "../../state/event_filter";
import { eventLog } from "../../state/app_state";
import { routeUrl } from "../../state/route";
import { useStore } from "../../state/store";

/** The minimum interval between two computations of the causal links. */
const LINKS_UPDATE_INTERVAL_MS = 500;

/** Shows an event with links to its cause and effects. */
export function EventDetail({ frame, onSelect, onClose }: { frame: Frame; onSelect: (frame: Frame) => void; onClose: () => void }) {
  const version = useThrottled(useStore(eventLog.version), LINKS_UPDATE_INTERVAL_MS);
  const { links, bySeq } = useMemo(() => {
    // Causes and effects are in the same run, or are events without a run.
    const relatedFrames = eventLog.frames.filter((other) => other.session_id === frame.session_id && (other.run_id === frame.run_id || other.run_id === null));
    relatedFrames.sort((a, b) => (a.seq ?? 0) - (b.seq ?? 0));
    return { links: traceCauses(relatedFrames), bySeq: new Map(relatedFrames.map((related) => [related.seq, related])) };
  }, [frame.session_id, frame.run_id, version]);
  const cause = bySeq.get(links.cause.get(frame.seq ?? -1) ?? -1);
  const effects = (links.effects.get(frame.seq ?? -1) ?? []).map((seq) => bySeq.get(seq)).filter((effect) => effect !== undefined);
  return (
    <section class="event-detail" aria-label="Event details">
      <header>
        <div>
          <h2><span class={`event-type ${EVENT_TONES[frame.type] ?? ""}`}>{frame.type}</span></h2>
          <p class="hint">{formatDateTime(Date.parse(frame.at))} · seq {frame.seq} · <a href={routeUrl("chat", frame.session_id)}>session</a> · <a href={routeUrl("events", "timeline", { session: frame.session_id, run: frame.run_id ?? undefined })}>timeline</a></p>
        </div>
        <IconButton icon="close" label="Close details" onClick={onClose} />
      </header>
      <div class="event-links">
        <h3>Cause</h3>
        {cause ? <EventLink frame={cause} onSelect={onSelect} /> : <p class="hint">{frame.seq === 1 || frame.type === "message_queued" || frame.type === "message_accepted" ? "User request." : "Unknown."}</p>}
        <h3>{effects.length === 1 ? "Effect" : "Effects"}</h3>
        {effects.length ? <ul>{effects.map((effect) => <li key={effect.seq}><EventLink frame={effect} onSelect={onSelect} /></li>)}</ul> : <p class="hint">None.</p>}
      </div>
      <h3>Event</h3>
      <JsonView value={toFlat(frame)} label="event" open={3} />
    </section>
  );
}

function EventLink({ frame, onSelect }: { frame: Frame; onSelect: (frame: Frame) => void }) {
  return (
    <button type="button" class="event-link" onClick={() => onSelect(frame)}>
      <span class="numbers">{frame.seq}</span><span class={`event-type ${EVENT_TONES[frame.type] ?? ""}`}>{frame.type}</span>
      <span class="event-summary"><EscapedText text={eventSummary(frame)} /></span><Icon name="chevron" size={14} />
    </button>
  );
}
