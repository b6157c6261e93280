/**
 * The shared state of the page and its updates: the signed-in user, the connection, the session list,
 * the open sessions, the pending approvals and the event log.
 */

import { followList } from "../api/list_stream";
import { client, type NewMessage } from "../api/client";
import { onSignedOut, Problem, toProblem } from "../api/http";
import { EventSocket, type SocketState } from "../api/event_socket";
import type { Frame, CurrentUser, Approval, Session } from "../api/types";
import { announce, runEndBetween } from "./announcements";
import { EMPTY_VIEW, type SessionView, applyFrames, viewForFork, keepContiguous } from "./session_view";
import { EventLog } from "./event_log";
import { mergeNewestPage } from "./session_pages";
import { Store } from "./store";

/** The state of the connection to the server. */
export interface Connection {
  state: SocketState;
  /** True if the connection was open at least once. */
  wasOpen: boolean;
}

/** The signed-in user. Null until the page has started. */
export const currentUser = new Store<CurrentUser | null>(null);
/** The state of the event socket. */
export const connection = new Store<Connection>({ state: "connecting", wasOpen: false });
/** The error that prevents the page from starting or continuing; 401 if the user is signed out. */
export const startError = new Store<Problem | null>(null);

/** The session list as far as it was loaded, newest first. */
export interface SessionList {
  sessions: Session[];
  next: string | null;
  loaded: boolean;
  error: Problem | null;
}

/** The session list. */
export const sessions = new Store<SessionList>({ sessions: [], next: null, loaded: false, error: null });

/** The pending approvals that the user may answer. */
export interface ApprovalInbox {
  approvals: Approval[];
  loaded: boolean;
  error: Problem | null;
}

/** The pending approvals of all sessions. */
export const approvalInbox = new Store<ApprovalInbox>({ approvals: [], loaded: false, error: null });

/** The events of all sessions that the user may see. */
export const eventLog = new EventLog();

const socket = new EventSocket(
  (state, justOpened) => {
    connection.update((before) => ({ state, wasOpen: before.wasOpen || justOpened }));
    if (justOpened) void refresh();
  },
  async () => {
    try {
      await client.getMe();
      return true;
    } catch (error) {
      return !toProblem(error).isSignedOut;
    }
  },
);

/** Sends a message. Idempotent: a repeated `message_id` starts no second run. */
export const sendMessage = (message: NewMessage) => socket.request({ type: "send", ...message });

/** Returns the time of the next connection attempt, in milliseconds since the epoch. */
export const nextReconnectAt = () => socket.retryAt;
/** Connects immediately. */
export const reconnect = () => socket.reconnectNow();

/** The delay between two attempts to start while the server is unreachable. */
const START_RETRY_DELAY_MS = 2_000;

/** Loads the user and connects. Sets `startError` if the user is not signed in. */
export async function startApp(): Promise<void> {
  try {
    const user = await client.getMe();
    if (currentUser.get()) return;
    currentUser.set(user);
  } catch (error) {
    startError.set(toProblem(error));
    if (toProblem(error).isOffline) setTimeout(() => void startApp(), START_RETRY_DELAY_MS);
    return;
  }
  startError.set(null);
  socket.start();
  if (currentUser.get()?.role === "admin") socket.watchAllSessions(handleGlobalFrame);
  followApprovals();
}

// A 401 on any request ends the session of the page, so the socket is closed too.
onSignedOut((problem) => {
  startError.set(problem);
  if (currentUser.get()) socket.stop();
});

/**
 * Signs in with a token or an API key. The page keeps its state if it is the same user as before.
 */
export async function signIn(token: string): Promise<void> {
  await client.signIn(token);
  const before = currentUser.get();
  if (!before) return startApp();
  const user = await client.getMe();
  // The loaded state belongs to another user.
  if (user.user_id !== before.user_id || user.role !== before.role) return location.reload();
  startError.set(null);
  socket.start();
}

/** Follows the list of pending approvals that the user may answer. */
function followApprovals(): void {
  const pending = new Map<string, Approval>();
  const publish = () => approvalInbox.set({ approvals: [...pending.values()], loaded: true, error: null });
  followList<Approval>("/agent/approvals", {
    onReset: () => pending.clear(),
    onChange({ changed, gone }) {
      for (const approval of changed) pending.set(approval.approval_id, approval);
      for (const id of gone) pending.delete(id);
      publish();
    },
    // Loads the list once, so that an error is shown if the stream was never open.
    onLost: () => void loadApprovals(),
  });
}

/** The number of own sessions, besides the open ones, whose events a non-administrator follows. */
const FOLLOWED_SESSIONS_MAX = 60;
const followed = new Map<string, () => void>();
let following = false;

/**
 * Subscribes a non-administrator, who cannot watch all sessions, to each of their newest sessions.
 */
function followOwnSessions(list: Session[]): void {
  if (currentUser.get()?.role === "admin") return;
  const followIds = new Set(list.filter((session) => session.status !== "closed").slice(0, FOLLOWED_SESSIONS_MAX).map((session) => session.session_id));
  for (const [session_id, unsubscribe] of followed) {
    if (followIds.has(session_id) && !openSessions.has(session_id)) continue;
    if (!openSessions.has(session_id)) unsubscribe();
    followed.delete(session_id);
  }
  for (const session_id of followIds) {
    if (followed.has(session_id) || openSessions.has(session_id)) continue;
    const cursor = () => String(eventLog.head(session_id) || "");
    followed.set(session_id, socket.subscribe(session_id, { cursor, onFrame: (frame) => frame.type !== "text" && handleGlobalFrame(frame) }));
  }
}

async function refresh(): Promise<void> {
  await loadSessions();
  await eventLog.catchUp(sessions.get().sessions);
  following = true;
  followOwnSessions(sessions.get().sessions);
}

/** The number of sessions in one page of older sessions. */
const OLDER_PAGE_SIZE = 200;

/** Reloads the newest page of the session list. */
export async function loadSessions(): Promise<void> {
  try {
    const newest = await client.listSessions();
    const { sessions: newestSessions } = newest;
    sessions.update((before) => ({ ...mergeNewestPage(before, newest), loaded: true, error: null }));
    if (following) followOwnSessions(newestSessions);
  } catch (error) {
    sessions.update((before) => ({ ...before, loaded: true, error: toProblem(error) }));
  }
}

/** Loads the next page of older sessions. */
export async function loadMoreSessions(): Promise<void> {
  const before = sessions.get().next;
  if (!before) return;
  const page = await client.listSessions(before, OLDER_PAGE_SIZE);
  sessions.update((list) => (list.next === before ? { ...list, sessions: [...list.sessions, ...page.sessions], next: page.next } : list));
}

/** Loads older sessions until one matches, no more exist, or `shouldContinue` returns false. */
export async function searchOlderSessions(matches: (session: Session) => boolean, shouldContinue: () => boolean): Promise<void> {
  const loadedCount = sessions.get().sessions.length;
  do await loadMoreSessions();
  while (shouldContinue() && sessions.get().next && !sessions.get().sessions.slice(loadedCount).some(matches));
}

/** Loads the pending approvals once. */
export async function loadApprovals(): Promise<void> {
  try {
    const { approvals } = await client.listApprovals({ state: "pending", limit: 200 });
    approvalInbox.set({ approvals, loaded: true, error: null });
  } catch (error) {
    approvalInbox.update((before) => ({ ...before, loaded: true, error: toProblem(error) }));
  }
}

/** Returns a function that runs `action` after a delay, once for all calls in that time. */
function coalesce(action: () => void, delayMs: number): () => void {
  let timer = 0;
  return () => {
    if (timer) return;
    timer = window.setTimeout(() => {
      timer = 0;
      action();
    }, delayMs);
  };
}

const reloadSessionsSoon = coalesce(() => void loadSessions(), 400);

const SESSION_LIST_EVENTS = new Set([
  "session_created", "session_forked", "session_closed", "session_settings_changed", "run_started", "done", "error",
  "waiting_for_approval", "approval_decided", "approval_expired", "approval_cancelled", "approval_escalated",
]);

/** Records an event of any session and reloads the session list if the event changes it. */
function handleGlobalFrame(frame: Frame): void {
  eventLog.add([frame]);
  const isRecent = Date.now() - Date.parse(frame.at) < 60_000;
  if (isRecent && SESSION_LIST_EVENTS.has(frame.type)) reloadSessionsSoon();
}

/** The maximum age of a run end that is announced. */
const ANNOUNCE_MAX_AGE_MS = 15_000;

/** A session that is open in at least one pane. */
export class OpenSession {
  readonly view = new Store<SessionView>(EMPTY_VIEW);
  /** The state of the initial load: loading, ready or failed. */
  readonly ready = new Store<"loading" | "ready" | Problem>("loading");
  /** True once the session was purged. */
  readonly isPurged = new Store(false);
  private pendingFrames: Frame[] = [];
  private flushScheduled = false;
  private unsubscribe: (() => void) | null = null;
  private paneCount = 0;

  constructor(readonly session_id: string) {}

  /**
   * Registers a pane; the first one loads the session. Returns a function that releases the pane.
   */
  retain(): () => void {
    this.paneCount += 1;
    if (this.paneCount === 1) void this.load();
    return () => {
      this.paneCount -= 1;
      // A pane that moves is unmounted and mounted again, so the release is delayed.
      setTimeout(() => {
        if (this.paneCount) return;
        this.unsubscribe?.();
        this.unsubscribe = null;
        openSessions.delete(this.session_id);
        followOwnSessions(sessions.get().sessions);
      }, 1_000);
    };
  }

  /** Loads the history page by page, then subscribes to the session. */
  async load(): Promise<void> {
    this.ready.set("loading");
    try {
      const view = await loadHistory(this.session_id, this.view.get(), Infinity);
      if (!this.paneCount) return;
      const before = this.view.get();
      this.view.set(view);
      this.announceRunEnd(before);
      this.ready.set("ready");
      this.unsubscribe ??= socket.subscribe(this.session_id, {
        cursor: () => this.resumeCursor(),
        onFrame: (frame) => this.handleFrame(frame),
      });
    } catch (error) {
      this.ready.set(toProblem(error));
    }
  }

  private resumeCursor(): string {
    this.flush();
    return this.view.get().cursor;
  }

  private handleFrame(frame: Frame): void {
    if (frame.type === "session_purged") {
      this.isPurged.set(true);
      sessions.update((list) => ({ ...list, sessions: list.sessions.filter((session) => session.session_id !== this.session_id) }));
      return;
    }
    this.pendingFrames.push(frame);
    if (currentUser.get()?.role !== "admin" && frame.type !== "text") handleGlobalFrame(frame);
    if (this.flushScheduled) return;
    this.flushScheduled = true;
    // Frames that arrive between two paints are applied at once. A hidden page has no paints.
    const flush = () => this.flushScheduled && this.flush();
    if (document.visibilityState === "visible") requestAnimationFrame(flush);
    setTimeout(flush, 50);
  }

  private flush(): void {
    this.flushScheduled = false;
    if (!this.pendingFrames.length) return;
    const frames = this.pendingFrames;
    this.pendingFrames = [];
    const before = this.view.get();
    this.view.update((view) => applyFrames(view, keepContiguous(view, frames)));
    this.announceRunEnd(before);
  }

  /** Announces the end of a run, also of a run that ended before the history was loaded. */
  private announceRunEnd(before: SessionView): void {
    const after = this.view.get();
    const end = runEndBetween(before, after);
    if (end && Date.now() - Date.parse(end.at) < ANNOUNCE_MAX_AGE_MS) announce(openSessions.size > 1 && after.title ? `${after.title}: ${end.text}` : end.text);
  }
}

const HISTORY_PAGE_SIZE = 500;
/** The number of fork sources that are followed. */
const FORK_DEPTH_MAX = 8;

async function loadHistory(id: string, initialView: SessionView, lastSeq: number, depth = 0): Promise<SessionView> {
  let view = initialView;
  for (;;) {
    const { frames } = await client.listEvents(id, view.seq, HISTORY_PAGE_SIZE);
    const first = frames[0];
    if (view.seq === 0 && first?.type === "session_forked" && depth < FORK_DEPTH_MAX) {
      const { from: source, at_seq } = first.body;
      // The source may have been purged or belong to another user.
      const before = await loadHistory(String(source), EMPTY_VIEW, Number(at_seq), depth + 1).catch(() => EMPTY_VIEW);
      view = viewForFork(before);
    }
    view = applyFrames(view, frames.filter((frame) => (frame.seq ?? 0) <= lastSeq));
    if (frames.length < HISTORY_PAGE_SIZE || view.seq >= lastSeq) return view;
  }
}

const openSessions = new Map<string, OpenSession>();

/** Returns the shared state of an open session; creates it if needed. */
export function openSession(session_id: string): OpenSession {
  let session = openSessions.get(session_id);
  if (!session) openSessions.set(session_id, (session = new OpenSession(session_id)));
  return session;
}
