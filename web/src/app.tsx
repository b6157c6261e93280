/** The application shell: navigation, connection status and the current page. */

import type { ComponentType } from "preact";
import { useEffect } from "preact/hooks";
import { ErrorNotice, IconButton } from "./components/ui";
import { Icon, type IconName } from "./components/icon";
import { Announcer } from "./components/announcer";
import { OfflineBanner, ConnectionStatus } from "./components/connection";
import { SignIn } from "./components/sign_in";
import { useApprovalAnnouncements } from "./approvals/approval_announcements";
import { theme, toggleTheme } from "./state/theme";
import { startError, approvalInbox, currentUser, connection, startApp } from "./state/app_state";
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

/** The root component: the sign-in page, a startup error or the application shell. */
export function App() {
  const user = useStore(currentUser);
  const error = useStore(startError);
  const { state } = useStore(connection);
  if (error?.isSignedOut || state === "signed_out") return <SignIn />;
  if (error) return <main class="standalone"><ErrorNotice problem={error} onRetry={() => void startApp()} /></main>;
  if (!user) return <main class="standalone" aria-busy="true"><span class="sr-only">Loading</span></main>;
  return <AppShell />;
}

function AppShell() {
  const { page: pageName } = useStore(route);
  const user = useStore(currentUser)!;
  const pages = PAGES.filter((page) => !page.admin || user.role === "admin");
  const currentPage = pages.find((page) => page.name === pageName) ?? pages[0]!;
  useApprovalAnnouncements();
  useEffect(() => {
    document.title = `${currentPage.label} · Greenroom`;
  }, [currentPage]);
  return (
    <div class="app-shell">
      <a class="skip-link" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("main")?.focus(); }}>Skip to content</a>
      <Navigation pages={pages} currentName={currentPage.name} />
      <OfflineBanner />
      <Announcer />
      <main id="main" tabIndex={-1} class={`app-main ${currentPage.name}-page`}><currentPage.View /></main>
    </div>
  );
}

function Navigation({ pages, currentName }: { pages: Page[]; currentName: string }) {
  const pendingCount = useStore(approvalInbox, (inbox) => inbox.approvals.length);
  const user = useStore(currentUser)!;
  const currentTheme = useStore(theme);
  return (
    <nav class="sidebar" aria-label="Pages">
      <a class="brand" href={routeUrl("chat")} aria-label="Greenroom"><span class="brand-mark" aria-hidden="true" /><span>Greenroom</span></a>
      <ul>
        {pages.map((page) => (
          <li key={page.name}>
            <a href={routeUrl(page.name)} aria-current={page.name === currentName ? "page" : undefined}>
              <Icon name={page.icon} />
              <span>{page.label}</span>
              {page.name === "approvals" && pendingCount > 0 && <b class="count" aria-label={`${pendingCount} waiting`}>{pendingCount}</b>}
            </a>
          </li>
        ))}
      </ul>
      <div class="sidebar-footer">
        <ConnectionStatus />
        <div class="account">
          <span title={`Greenroom ${user.version}`}>{user.user_id} <small>{user.role}</small></span>
          <IconButton icon={currentTheme === "dark" ? "sun" : "moon"} label={currentTheme === "dark" ? "Light theme" : "Dark theme"} onClick={toggleTheme} />
        </div>
      </div>
    </nav>
  );
}
