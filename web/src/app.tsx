/** The house: the way between rooms, the connection's state, and the room one is in. */

import type { ComponentType } from "preact";
import { useEffect } from "preact/hooks";
import { ErrorNotice, IconButton } from "./components/ui";
import { Icon, type IconName } from "./components/icon";
import { Announcer } from "./components/announcer";
import { OfflineBanner, ConnectionState } from "./components/connection";
import { SignIn } from "./components/sign_in";
import { useApprovalAnnouncements } from "./approvals/approval_announcements";
import { theme, toggleTheme } from "./state/theme";
import { failure, approvalInbox, me, connection, start } from "./state/app_state";
import { routeUrl, route } from "./state/route";
import { useStore } from "./state/store";
import { ActorsPage } from "./pages/actors/page";
import { ApprovalsPage } from "./pages/approvals/page";
import { AuditPage } from "./pages/audit/page";
import { ChatPage } from "./pages/chat/page";
import { ContextPage } from "./pages/context/page";
import { EventsPage } from "./pages/events/page";
import { ToolsPage } from "./pages/tools/page";
import { UsagePage } from "./pages/usage/page";

interface Page {
  name: string;
  label: string;
  icon: IconName;
  admin: boolean;
  View: ComponentType;
}

const PAGES: Page[] = [
  { name: "chat", label: "Chat", icon: "chat", admin: false, View: ChatPage },
  { name: "approvals", label: "Approvals", icon: "inbox", admin: false, View: ApprovalsPage },
  { name: "events", label: "Events", icon: "events", admin: false, View: EventsPage },
  { name: "actors", label: "Actors", icon: "actors", admin: true, View: ActorsPage },
  { name: "tools", label: "Tools", icon: "tools", admin: false, View: ToolsPage },
  { name: "usage", label: "Usage", icon: "usage", admin: false, View: UsagePage },
  { name: "context", label: "Context", icon: "layers", admin: false, View: ContextPage },
  { name: "audit", label: "Audit", icon: "audit", admin: true, View: AuditPage },
];

export function App() {
  const who = useStore(me);
  const problem = useStore(failure);
  const { state } = useStore(connection);
  if (problem?.isSignedOut || state === "signed_out") return <SignIn />;
  if (problem) return <main class="alone"><ErrorNotice problem={problem} retry={() => void start()} /></main>;
  if (!who) return <main class="alone" aria-busy="true"><span class="sr-only">Loading</span></main>;
  return <AppShell />;
}

function AppShell() {
  const { page: name } = useStore(route);
  const who = useStore(me)!;
  const rooms = PAGES.filter((room) => !room.admin || who.role === "admin");
  const room = rooms.find((one) => one.name === name) ?? rooms[0]!;
  useApprovalAnnouncements();
  useEffect(() => {
    document.title = `${room.label} · Greenroom`;
  }, [room]);
  return (
    <div class="house">
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("main")?.focus(); }}>Skip to the content</a>
      <Navigation rooms={rooms} current={room.name} />
      <OfflineBanner />
      <Announcer />
      <main id="main" tabIndex={-1} class={`room ${room.name}-room`}><room.View /></main>
    </div>
  );
}

function Navigation({ rooms, current }: { rooms: Page[]; current: string }) {
  const waiting = useStore(approvalInbox, (found) => found.approvals.length);
  const who = useStore(me)!;
  const shade = useStore(theme);
  return (
    <nav class="ways" aria-label="Rooms">
      <a class="brand" href={routeUrl("chat")} aria-label="Greenroom"><span class="brand-mark" aria-hidden="true" /><span>Greenroom</span></a>
      <ul>
        {rooms.map((room) => (
          <li key={room.name}>
            <a href={routeUrl(room.name)} aria-current={room.name === current ? "page" : undefined}>
              <Icon name={room.icon} />
              <span>{room.label}</span>
              {room.name === "approvals" && waiting > 0 && <b class="count" aria-label={`${waiting} waiting`}>{waiting}</b>}
            </a>
          </li>
        ))}
      </ul>
      <div class="ways-end">
        <ConnectionState />
        <div class="who">
          <span title={`Greenroom ${who.version}`}>{who.user_id} <small>{who.role}</small></span>
          <IconButton icon={shade === "dark" ? "sun" : "moon"} label={shade === "dark" ? "Light colours" : "Dark colours"} onClick={toggleTheme} />
        </div>
      </div>
    </nav>
  );
}
