/**
 * The one WebSocket of the page: the sessions that are open, and for administrators everybody's
 * events. It reconnects by itself and resumes each session at its cursor; nothing is heard twice.
 */

import { fromNested } from "./frames";
import { Problem } from "./http";
import type { Frame, JsonObject } from "./types";

export type SocketState = "connecting" | "open" | "lost" | "offline" | "signed_out";

export interface SessionListener {
  /** The place to resume from, `""` for the beginning. */
  cursor(): string;
  onFrame(frame: Frame): void;
}

const DELAY_MS = { first: 300, max: 10_000 };
/** Without a sign of life for so long, the connection counts as lost; the server pings each 15 s,
 * which a page can't see, so a request of our own is sent. */
const PROBE_MS = 20_000;

export class EventSocket {
  private socket: WebSocket | null = null;
  private readonly sessions = new Map<string, SessionListener>();
  private globalListener: ((frame: Frame) => void) | null = null;
  private delay = DELAY_MS.first;
  private retryTimer = 0;
  private probeTimer = 0;
  private nextId = 1;
  private readonly pendingRequests = new Map<number, { done: (resolveRequest: JsonObject) => void; failed: (problem: Problem) => void }>();
  private stopped = false;
  /** When the next attempt is made, for people. */
  retryAt: number | null = null;

  constructor(
    private readonly changed: (state: SocketState, reconnected: boolean) => void,
    private readonly isSignedIn: () => Promise<boolean>,
  ) {}

  start(): void {
    this.stopped = false;
    this.connect();
    addEventListener("online", this.reconnectNow);
    document.addEventListener("visibilitychange", this.reconnectNow);
  }

  /** Whoever is here is nobody that the server knows: nothing is heard or tried until it starts anew. */
  stop(): void {
    this.stopped = true;
    clearTimeout(this.retryTimer);
    this.detachSocket()?.close();
    this.changed("signed_out", false);
  }

  /** Follows a session from its listener's cursor on. */
  subscribe(session_id: string, listener: SessionListener): () => void {
    this.sessions.set(session_id, listener);
    this.send({ type: "subscribe", session_id, after: listener.cursor() || undefined });
    return () => {
      if (this.sessions.get(session_id) !== listener) return;
      this.sessions.delete(session_id);
      this.send({ type: "unsubscribe", session_id });
    };
  }

  /** Hears the committed events of all sessions from now on. */
  watch(hear: (frame: Frame) => void): void {
    this.globalListener = hear;
    this.send({ type: "watch" });
  }

  /** Carries something out; what the server says of it. What is asked while it connects waits for that. */
  async request(frame: Record<string, unknown>): Promise<JsonObject> {
    const { socket } = this;
    if (socket?.readyState === WebSocket.CONNECTING) {
      await new Promise((done) => {
        socket.addEventListener("open", done, { once: true });
        socket.addEventListener("close", done, { once: true });
      });
    }
    return new Promise((done, failed) => {
      const id = this.send(frame);
      if (id === null) failed(new Problem(0, "unreachable", "The server can’t be reached just now."));
      else this.pendingRequests.set(id, { done, failed });
    });
  }

  /** Tries now rather than later. */
  readonly reconnectNow = (): void => {
    if (this.stopped || this.socket || document.visibilityState === "hidden") return;
    clearTimeout(this.retryTimer);
    this.delay = DELAY_MS.first;
    this.connect();
  };

  private connect(): void {
    this.changed(navigator.onLine ? "connecting" : "offline", false);
    const socket = new WebSocket(`${location.origin.replace(/^http/, "ws")}/agent/stream`);
    this.socket = socket;
    this.retryAt = null;
    socket.onopen = () => {
      this.delay = DELAY_MS.first;
      if (this.globalListener) this.send({ type: "watch" });
      for (const [session_id, listener] of this.sessions) {
        this.send({ type: "subscribe", session_id, after: listener.cursor() || undefined });
      }
      this.changed("open", true);
      this.restartProbe();
    };
    socket.onmessage = (message) => this.handleMessage(String(message.data));
    socket.onclose = () => this.handleClose(socket);
  }

  private handleClose(socket: WebSocket): void {
    if (this.socket !== socket) return;
    this.detachSocket();
    // Spread out, so that a server that comes back is not met by everybody at once.
    const wait = this.delay * (0.5 + Math.random() / 2);
    this.delay = Math.min(this.delay * 2, DELAY_MS.max);
    this.retryAt = Date.now() + wait;
    this.changed(navigator.onLine ? "lost" : "offline", false);
    this.retryTimer = window.setTimeout(() => this.connect(), wait);
    void this.isSignedIn().then((yes) => {
      if (yes) return;
      clearTimeout(this.retryTimer);
      this.stopped = true;
      this.changed("signed_out", false);
    });
  }

  /** From now on nothing is heard over the socket, nor answered. */
  private detachSocket(): WebSocket | null {
    const { socket } = this;
    this.socket = null;
    clearTimeout(this.probeTimer);
    for (const { failed } of this.pendingRequests.values()) {
      failed(new Problem(0, "unreachable", "The connection was lost before the server answered."));
    }
    this.pendingRequests.clear();
    return socket;
  }

  private handleMessage(text: string): void {
    this.restartProbe();
    const message = JSON.parse(text) as JsonObject;
    const type = String(message.type);
    // The dialect's own `error` has an envelope and no status.
    if (type === "ack" || (type === "error" && typeof message.status === "number")) return this.answer(type, message);
    const frame = fromNested(message);
    if (type === "server_draining" || type === "stream_broken") {
      // Its streams end; everything is asked for anew, from where it was.
      this.socket?.close();
      return;
    }
    this.sessions.get(frame.session_id)?.onFrame(frame);
    if (frame.type !== "text") this.globalListener?.(frame);
  }

  private answer(type: string, message: JsonObject): void {
    const asked = this.pendingRequests.get(Number(message.id));
    this.pendingRequests.delete(Number(message.id));
    if (type === "ack") asked?.done(message);
    else asked?.failed(new Problem(Number(message.status), String(message.code), String(message.detail), message));
  }

  private restartProbe(): void {
    clearTimeout(this.probeTimer);
    this.probeTimer = window.setTimeout(() => {
      // Anything is answered, nonsense too.
      this.send({ type: "alive?" });
      this.probeTimer = window.setTimeout(() => this.socket?.close(), PROBE_MS / 2);
    }, PROBE_MS);
  }

  private send(frame: Record<string, unknown>): number | null {
    if (this.socket?.readyState !== WebSocket.OPEN) return null;
    const id = this.nextId++;
    this.socket.send(JSON.stringify({ id, ...frame }));
    return id;
  }
}
