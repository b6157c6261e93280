/**
 * What the page knows, and how it stays true: who is signed in, the connection, the sessions, the
 * conversations that are open, the questions that wait, and the events of everybody.
 */

import { followList } from "../api/list_stream";
import { client, type NewMessage } from "../api/client";
import { onSignedOut, Problem, toProblem } from "../api/http";
import { EventSocket, type SocketState } from "../api/event_socket";
import type { Frame, Me, Approval, Session } from "../api/types";
import { announce, endBetween } from "./announcements";
import { EMPTY_VIEW, type SessionView, fold, forkedView, keepContiguous } from "./session_view";
import { EventLog } from "./event_log";
import { mergeNewestPage } from "./session_pages";
import { Store } from "./store";

export interface Connection {
  state: SocketState;
  /** It was open once. */
  wasOpen: boolean;
}

export const me = new Store<Me | null>(null);
export const connection = new Store<Connection>({ state: "connecting", wasOpen: false });
export const failure = new Store<Problem | null>(null);

export interface SessionList {
  sessions: Session[];
  next: string | null;
  loaded: boolean;
  error: Problem | null;
}

export const sessions = new Store<SessionList>({ sessions: [], next: null, loaded: false, error: null });

export interface ApprovalInbox {
  approvals: Approval[];
  loaded: boolean;
  error: Problem | null;
}

export const approvalInbox = new Store<ApprovalInbox>({ approvals: [], loaded: false, error: null });

export const eventLog = new EventLog();

const socket = new EventSocket(
  (state, reconnected) => {
    connection.update((before) => ({ state, wasOpen: before.wasOpen || reconnected }));
    if (reconnected) void refresh();
  },
  async () => {
    try {
      await client.me();
      return true;
    } catch (error) {
      return !toProblem(error).isSignedOut;
    }
  },
);

/** Sends a message; sending the same again starts nothing. */
export const sendMessage = (message: NewMessage) => socket.request({ type: "send", ...message });

export const retryAt = () => socket.retryAt;
export const reconnect = () => socket.reconnectNow();

/** Between two attempts to begin while the server is away. */
const START_AGAIN_MS = 2_000;

/** Begins. Whoever is not signed in is told so instead. */
export async function start(): Promise<void> {
  try {
    const who = await client.me();
    if (me.get()) return;
    me.set(who);
  } catch (error) {
    failure.set(toProblem(error));
    if (toProblem(error).isOffline) setTimeout(() => void start(), START_AGAIN_MS);
    return;
  }
  failure.set(null);
  socket.start();
  if (me.get()?.role === "admin") socket.watch(handleGlobalFrame);
  followApprovals();
}

// Whatever was asked: the page is no longer theirs, and its connection neither.
onSignedOut((problem) => {
  failure.set(problem);
  if (me.get()) socket.stop();
});

/** Signs in with a token or a key. Whoever was here before goes on where they were. */
export async function signIn(token: string): Promise<void> {
  await client.signIn(token);
  const before = me.get();
  if (!before) return start();
  const who = await client.me();
  // What the page knows is somebody else's.
  if (who.user_id !== before.user_id || who.role !== before.role) return location.reload();
  failure.set(null);
  socket.start();
}

/** The questions that wait, as the server tells of them: whoever may answer hears of each. */
function followApprovals(): void {
  const waiting = new Map<string, Approval>();
  const show = () => approvalInbox.set({ approvals: [...waiting.values()], loaded: true, error: null });
  followList<Approval>("/agent/approvals", {
    onReset: () => waiting.clear(),
    onChange({ changed, gone }) {
      for (const question of changed) waiting.set(question.approval_id, question);
      for (const id of gone) waiting.delete(id);
      show();
    },
    // What was heard stays; who has heard nothing is told why.
    onLost: () => void loadApprovals(),
  });
}

/** Sessions that somebody without everybody's events follows beside those that are open. */
const FOLLOWED_MAX = 60;
const followed = new Map<string, () => void>();
let following = false;

/** Whoever is no administrator hears of their own sessions one by one. */
function followOwnSessions(list: Session[]): void {
  if (me.get()?.role === "admin") return;
  const wanted = new Set(list.filter((one) => one.status !== "closed").slice(0, FOLLOWED_MAX).map((one) => one.session_id));
  for (const [session_id, leave] of followed) {
    if (wanted.has(session_id) && !openSessions.has(session_id)) continue;
    if (!openSessions.has(session_id)) leave();
    followed.delete(session_id);
  }
  for (const session_id of wanted) {
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

/** Older ones at once. */
const OLDER_PAGE = 200;

export async function loadSessions(): Promise<void> {
  try {
    const newest = await client.sessions();
    const { sessions: found } = newest;
    sessions.update((before) => ({ ...mergeNewestPage(before, newest), loaded: true, error: null }));
    if (following) followOwnSessions(found);
  } catch (error) {
    sessions.update((before) => ({ ...before, loaded: true, error: toProblem(error) }));
  }
}

export async function loadMoreSessions(): Promise<void> {
  const before = sessions.get().next;
  if (!before) return;
  const page = await client.sessions(before, OLDER_PAGE);
  sessions.update((list) => (list.next === before ? { ...list, sessions: [...list.sessions, ...page.sessions], next: page.next } : list));
}

/** Reads on until one is among the older ones that fits, or there are none; `goes` says whether that is wanted still. */
export async function searchOlderSessions(fits: (session: Session) => boolean, goes: () => boolean): Promise<void> {
  const seen = sessions.get().sessions.length;
  do await loadMoreSessions();
  while (goes() && sessions.get().next && !sessions.get().sessions.slice(seen).some(fits));
}

export async function loadApprovals(): Promise<void> {
  try {
    const { approvals } = await client.approvals({ state: "pending", limit: 200 });
    approvalInbox.set({ approvals: approvals, loaded: true, error: null });
  } catch (error) {
    approvalInbox.update((before) => ({ ...before, loaded: true, error: toProblem(error) }));
  }
}

/** Does `work` soon, and once for all who ask meanwhile. */
function coalesce(work: () => void, delay: number): () => void {
  let timer = 0;
  return () => {
    if (timer) return;
    timer = window.setTimeout(() => {
      timer = 0;
      work();
    }, delay);
  };
}

const sessionsSoon = coalesce(() => void loadSessions(), 400);

const SESSION_LIST_EVENTS = new Set([
  "session_created", "session_forked", "session_closed", "session_settings_changed", "run_started", "done", "error",
  "waiting_for_approval", "approval_decided", "approval_expired", "approval_cancelled", "approval_escalated",
]);

/** Looks at what any session said for what it means beyond that session. */
function handleGlobalFrame(frame: Frame): void {
  eventLog.add([frame]);
  const fresh = Date.now() - Date.parse(frame.at) < 60_000;
  if (fresh && SESSION_LIST_EVENTS.has(frame.type)) sessionsSoon();
}

/** What ended longer ago is no news. */
const NEWS_MS = 15_000;

/** A session that is open on the page. */
export class OpenSession {
  readonly conversation = new Store<SessionView>(EMPTY_VIEW);
  /** Until what was said before has been heard. */
  readonly ready = new Store<"loading" | "ready" | Problem>("loading");
  /** It was deleted. */
  readonly isPurged = new Store(false);
  private waiting: Frame[] = [];
  private scheduled = false;
  private unsubscribe: (() => void) | null = null;
  private users = 0;

  constructor(readonly session_id: string) {}

  retain(): () => void {
    this.users += 1;
    if (this.users === 1) void this.load();
    return () => {
      this.users -= 1;
      // Moving a pane about leaves and enters at once.
      setTimeout(() => {
        if (this.users) return;
        this.unsubscribe?.();
        this.unsubscribe = null;
        openSessions.delete(this.session_id);
        followOwnSessions(sessions.get().sessions);
      }, 1_000);
    };
  }

  /** Reads what there is page by page, then listens. */
  async load(): Promise<void> {
    this.ready.set("loading");
    try {
      const state = await history(this.session_id, this.conversation.get(), Infinity);
      if (!this.users) return;
      const before = this.conversation.get();
      this.conversation.set(state);
      this.announceEnd(before);
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
    return this.conversation.get().cursor;
  }

  private handleFrame(frame: Frame): void {
    if (frame.type === "session_purged") {
      this.isPurged.set(true);
      sessions.update((list) => ({ ...list, sessions: list.sessions.filter((one) => one.session_id !== this.session_id) }));
      return;
    }
    this.waiting.push(frame);
    if (me.get()?.role !== "admin" && frame.type !== "text") handleGlobalFrame(frame);
    if (this.scheduled) return;
    this.scheduled = true;
    // What comes between two pictures is shown in one; a hidden page has no pictures.
    const flush = () => this.scheduled && this.flush();
    if (document.visibilityState === "visible") requestAnimationFrame(flush);
    setTimeout(flush, 50);
  }

  private flush(): void {
    this.scheduled = false;
    if (!this.waiting.length) return;
    const frames = this.waiting;
    this.waiting = [];
    const before = this.conversation.get();
    this.conversation.update((state) => fold(state, keepContiguous(state, frames)));
    this.announceEnd(before);
  }

  /** A short run may have ended before its conversation was read. */
  private announceEnd(before: SessionView): void {
    const after = this.conversation.get();
    const end = endBetween(before, after);
    if (end && Date.now() - Date.parse(end.at) < NEWS_MS) announce(openSessions.size > 1 && after.title ? `${after.title}: ${end.text}` : end.text);
  }
}

const HISTORY_PAGE = 500;
/** How far back forks of forks are followed. */
const FORKS_MAX = 8;

async function history(id: string, from: SessionView, until: number, depth = 0): Promise<SessionView> {
  let state = from;
  for (;;) {
    const { frames } = await client.events(id, state.seq, HISTORY_PAGE);
    const first = frames[0];
    if (state.seq === 0 && first?.type === "session_forked" && depth < FORKS_MAX) {
      const { from: source, at_seq } = first.body;
      // The source may be gone, or somebody else's.
      const before = await history(String(source), EMPTY_VIEW, Number(at_seq), depth + 1).catch(() => EMPTY_VIEW);
      state = forkedView(before);
    }
    state = fold(state, frames.filter((frame) => (frame.seq ?? 0) <= until));
    if (frames.length < HISTORY_PAGE || state.seq >= until) return state;
  }
}

const openSessions = new Map<string, OpenSession>();

export function openSession(session_id: string): OpenSession {
  let found = openSessions.get(session_id);
  if (!found) openSessions.set(session_id, (found = new OpenSession(session_id)));
  return found;
}
