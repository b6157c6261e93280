/** What happens, as it happens; and one run as a timeline. */

import { routeUrl, route } from "../../state/route";
import { useStore } from "../../state/store";
import { Stream } from "./event_stream";
import { Timeline } from "./timeline";

export function EventsPage() {
  const { part, query } = useStore(route);
  const isTimeline = part === "timeline";
  const tab = (name: string, label: string) => (
    <a href={routeUrl("events", name, { session: query.session })} aria-current={(name === "timeline") === isTimeline ? "page" : undefined}>{label}</a>
  );
  return (
    <div class="events">
      <header class="room-head">
        <h1>Events</h1>
        <nav class="tabs" aria-label="Views">{tab("", "Stream")}{tab("timeline", "Timeline")}</nav>
      </header>
      {isTimeline ? <Timeline /> : <Stream />}
    </div>
  );
}
