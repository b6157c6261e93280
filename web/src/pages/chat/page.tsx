/** The chat page: the session list and up to four sessions side by side. */

import { useEffect } from "preact/hooks";
import { EmptyState, IconButton } from "../../components/ui";
import { navigate, routeUrl, parseRoute, route } from "../../state/route";
import { useStore } from "../../state/store";
import { NewSessionPane } from "./new_session_pane";
import { SessionPane } from "./session_pane";
import { SessionList } from "./session_list";

/** The maximum number of panes. */
const PANES_MAX = 4;

/** The page with the session list and the open sessions. */
export function ChatPage() {
  const { part } = useStore(route);
  const ids = part.split(",").filter(Boolean);
  const openPanes = (next: string[]) => navigate(routeUrl("chat", next.join(",")));
  const closePane = (id: string) => openPanes(ids.filter((openId) => openId !== id));
  useEffect(() => {
    // Reads the URL again, because the user may have left the page in the meantime.
    const { page, part: currentPart } = parseRoute(location.hash);
    if (!ids.length && innerWidth >= 760 && page === "chat" && !currentPart) navigate(routeUrl("chat", "new"), true);
  }, [ids.length]);
  return (
    <div class={`chat${ids.length ? " has-panes" : ""}`}>
      <h1 class="sr-only">Chat</h1>
      <SessionList openIds={ids}
        onOpen={(id) => openPanes([id])}
        onOpenBeside={ids.length < PANES_MAX ? (id) => openPanes([...ids.filter((openId) => openId !== "new"), id]) : undefined} />
      <div class="panes" data-count={ids.length}>
        {!ids.length && <EmptyState icon="chat" title="No session open">Select a session or start a new one.</EmptyState>}
        {ids.slice(0, PANES_MAX).map((id) => id === "new"
          ? <NewSessionPane key={id} onCreated={(session_id) => openPanes(ids.map((openId) => (openId === "new" ? session_id : openId)))} leading={<BackButton />} />
          : <SessionPane key={id} session_id={id} onClose={ids.length > 1 ? () => closePane(id) : undefined} onOpen={(otherId) => openPanes([...ids, otherId].slice(-PANES_MAX))} leading={<BackButton />} />)}
      </div>
    </div>
  );
}

/** Returns to the session list on narrow pages, which show either the list or the panes. */
function BackButton() {
  return <span class="back-button"><IconButton icon="list" label="All sessions" onClick={() => navigate(routeUrl("chat"))} /></span>;
}
