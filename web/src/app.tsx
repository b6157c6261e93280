/** The house: the way between rooms, the connection's state, and the room one is in. */

import type { ComponentType } from "preact";
import { useEffect } from "preact/hooks";
import { Failed, IconButton } from "./parts/ui";
import { Icon, type IconName } from "./parts/icon";
import { Announcer } from "./parts/announcer";
import { Away, ConnectionState } from "./parts/connection";
import { SignedOut } from "./parts/signed_out";
import { useHeardQuestions } from "./questions/heard";
import { theme, toggleTheme } from "./state/theme";
import { failure, inbox, me, connection, start } from "./state/live";
import { link, route } from "./state/route";
import { useStore } from "./state/store";
import { ActorsRoom } from "./rooms/actors/room";
import { ApprovalsRoom } from "./rooms/approvals/room";
import { AuditRoom } from "./rooms/audit/room";
import { ChatRoom } from "./rooms/chat/room";
import { ContextRoom } from "./rooms/context/room";
import { EventsRoom } from "./rooms/events/room";
import { ToolsRoom } from "./rooms/tools/room";
import { UsageRoom } from "./rooms/usage/room";

interface Room {
  name: string;
  label: string;
  icon: IconName;
  admin: boolean;
  View: ComponentType;
}

const ROOMS: Room[] = [
  { name: "chat", label: "Chat", icon: "chat", admin: false, View: ChatRoom },
  { name: "approvals", label: "Approvals", icon: "inbox", admin: false, View: ApprovalsRoom },
  { name: "events", label: "Events", icon: "events", admin: false, View: EventsRoom },
  { name: "actors", label: "Actors", icon: "actors", admin: true, View: ActorsRoom },
  { name: "tools", label: "Tools", icon: "tools", admin: false, View: ToolsRoom },
  { name: "usage", label: "Usage", icon: "usage", admin: false, View: UsageRoom },
  { name: "context", label: "Context", icon: "layers", admin: false, View: ContextRoom },
  { name: "audit", label: "Audit", icon: "audit", admin: true, View: AuditRoom },
];

export function App() {
  const who = useStore(me);
  const problem = useStore(failure);
  const { state } = useStore(connection);
  if (problem?.isSignedOut || state === "signed_out") return <SignedOut />;
  if (problem) return <main class="alone"><Failed problem={problem} retry={() => void start()} /></main>;
  if (!who) return <main class="alone" aria-busy="true"><span class="sr-only">Loading</span></main>;
  return <House />;
}

function House() {
  const { room: name } = useStore(route);
  const who = useStore(me)!;
  const rooms = ROOMS.filter((room) => !room.admin || who.role === "admin");
  const room = rooms.find((one) => one.name === name) ?? rooms[0]!;
  useHeardQuestions();
  useEffect(() => {
    document.title = `${room.label} · Greenroom`;
  }, [room]);
  return (
    <div class="house">
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("main")?.focus(); }}>Skip to the content</a>
      <Ways rooms={rooms} current={room.name} />
      <Away />
      <Announcer />
      <main id="main" tabIndex={-1} class={`room ${room.name}-room`}><room.View /></main>
    </div>
  );
}

function Ways({ rooms, current }: { rooms: Room[]; current: string }) {
  const waiting = useStore(inbox, (found) => found.questions.length);
  const who = useStore(me)!;
  const shade = useStore(theme);
  return (
    <nav class="ways" aria-label="Rooms">
      <a class="brand" href={link("chat")} aria-label="Greenroom"><span class="brand-mark" aria-hidden="true" /><span>Greenroom</span></a>
      <ul>
        {rooms.map((room) => (
          <li key={room.name}>
            <a href={link(room.name)} aria-current={room.name === current ? "page" : undefined}>
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
