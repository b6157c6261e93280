/** One event: what it says, what led to it, and what it led to. */

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
import { eventSummary, TONE } from "../../state/event_filter";
import { eventLog } from "../../state/app_state";
import { routeUrl } from "../../state/route";
import { useStore } from "../../state/store";

/** Between two looks at what led to what, of which there may be much. */
const UPDATE_INTERVAL_MS = 500;

export function EventDetail({ frame, onChoose, onClose }: { frame: Frame; onChoose: (frame: Frame) => void; onClose: () => void }) {
  const version = useThrottled(useStore(eventLog.version), UPDATE_INTERVAL_MS);
  const { links, bySeq } = useMemo(() => {
    // Causes and effects stay within a run, but for what belongs to none.
    const own = eventLog.frames.filter((one) => one.session_id === frame.session_id && (one.run_id === frame.run_id || one.run_id === null));
    own.sort((one, other) => (one.seq ?? 0) - (other.seq ?? 0));
    return { links: traceCauses(own), bySeq: new Map(own.map((one) => [one.seq, one])) };
  }, [frame.session_id, frame.run_id, version]);
  const cause = bySeq.get(links.cause.get(frame.seq ?? -1) ?? -1);
  const effects = (links.effects.get(frame.seq ?? -1) ?? []).map((seq) => bySeq.get(seq)).filter((one) => one !== undefined);
  return (
    <section class="event-detail" aria-label="The event">
      <header>
        <div>
          <h2><span class={`event-type ${TONE[frame.type] ?? ""}`}>{frame.type}</span></h2>
          <p class="hint">{formatDateTime(Date.parse(frame.at))} · no. {frame.seq} · <a href={routeUrl("chat", frame.session_id)}>conversation</a> · <a href={routeUrl("events", "timeline", { session: frame.session_id, run: frame.run_id ?? undefined })}>timeline</a></p>
        </div>
        <IconButton icon="close" label="Close the event" onClick={onClose} />
      </header>
      <div class="event-links">
        <h3>Cause</h3>
        {cause ? <EventLink frame={cause} onChoose={onChoose} /> : <p class="hint">{frame.seq === 1 || frame.type === "message_queued" || frame.type === "message_accepted" ? "Somebody asked for it." : "None is known."}</p>}
        <h3>{effects.length === 1 ? "Effect" : "Effects"}</h3>
        {effects.length ? <ul>{effects.map((one) => <li key={one.seq}><EventLink frame={one} onChoose={onChoose} /></li>)}</ul> : <p class="hint">None yet.</p>}
      </div>
      <h3>As it was sent</h3>
      <JsonView value={toFlat(frame)} label="event" open={3} />
    </section>
  );
}

function EventLink({ frame, onChoose }: { frame: Frame; onChoose: (frame: Frame) => void }) {
  return (
    <button type="button" class="event-link" onClick={() => onChoose(frame)}>
      <span class="numbers">{frame.seq}</span><span class={`event-type ${TONE[frame.type] ?? ""}`}>{frame.type}</span>
      <span class="event-gist"><EscapedText text={eventSummary(frame)} /></span><Icon name="chevron" size={14} />
    </button>
  );
}
