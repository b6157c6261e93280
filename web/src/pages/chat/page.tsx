/** Conversations, several side by side. */

import { useEffect } from "preact/hooks";
import { EmptyState, IconButton } from "../../components/ui";
import { navigate, routeUrl, parse, route } from "../../state/route";
import { useStore } from "../../state/store";
import { NewPane } from "./new_session_pane";
import { SessionPane } from "./session_pane";
import { SessionList } from "./session_list";

/** Conversations side by side. */
const PANES_MAX = 4;

export function ChatPage() {
  const { part } = useStore(route);
  const ids = part.split(",").filter(Boolean);
  const show = (next: string[]) => navigate(routeUrl("chat", next.join(",")));
  const close = (id: string) => show(ids.filter((one) => one !== id));
  useEffect(() => {
    // Whoever has gone elsewhere meanwhile stays there.
    const { page: room, part: now } = parse(location.hash);
    if (!ids.length && innerWidth >= 760 && room === "chat" && !now) navigate(routeUrl("chat", "new"), true);
  }, [ids.length]);
  return (
    <div class={`chat${ids.length ? " has-panes" : ""}`}>
      <h1 class="sr-only">Chat</h1>
      <SessionList current={ids}
        onOpen={(id) => show([id])}
        onBeside={ids.length < PANES_MAX ? (id) => show([...ids.filter((one) => one !== "new"), id]) : undefined} />
      <div class="panes" data-count={ids.length}>
        {!ids.length && <EmptyState icon="chat" title="Nothing is open">Choose a conversation, or begin a new one.</EmptyState>}
        {ids.slice(0, PANES_MAX).map((id) => id === "new"
          ? <NewPane key={id} onCreated={(session_id) => show(ids.map((one) => (one === "new" ? session_id : one)))} tools={<Back />} />
          : <SessionPane key={id} session_id={id} onClose={ids.length > 1 ? () => close(id) : undefined} onOpen={(other) => show([...ids, other].slice(-PANES_MAX))} back={<Back />} />)}
      </div>
    </div>
  );
}

/** Back to the list, where there is room for one of both only. */
function Back() {
  return <span class="back"><IconButton icon="list" label="All conversations" onClick={() => navigate(routeUrl("chat"))} /></span>;
}
