/** The events page: the live event list and the timeline of a run. */

import { routeUrl, route } from "../../state/route";
import { useStore } from "../../state/store";
import { EventStream } from "./event_stream";
import { TimelineView } from "./timeline";

/** The page with the event list and the timeline. */
export function EventsPage() {
  const { part, query } = useStore(route);
  const isTimeline = part === "timeline";
  const renderTab = (name: string, label: string) => (
    <a href={routeUrl("events", name, { session: query.session })} aria-current={(name === "timeline") === isTimeline ? "page" : undefined}>{label}</a>
  );
  return (
    <div class="events">
      <header class="page-head">
        <h1>Events</h1>
        <nav class="tabs" aria-label="Views">{renderTab("", "Stream")}{renderTab("timeline", "Timeline")}</nav>
      </header>
      {isTimeline ? <TimelineView /> : <EventStream />}
    </div>
  );
}
