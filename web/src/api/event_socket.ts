/**
 * The WebSocket of the page. It carries the frames of the open sessions and, for administrators, the
 * events of all sessions. It reconnects automatically and resumes each session at its cursor, so no
 * event is delivered twice.
 */

import { fromWebSocketFrame } from "./frames";
import { Problem } from "./http";
import { parseJson, stringifyJson } from "./json";
import type { Frame, JsonObject } from "./types";

/** The state of the connection. */
export type SocketState = "connecting" | "open" | "lost" | "offline" | "signed_out";

/** Receives the frames of one session. */
export interface SessionListener {
  /** The cursor to resume from; `""` for the beginning of the session. */
  cursor(): string;
  onFrame(frame: Frame): void;
}

const RECONNECT_DELAY_MS = { first: 300, max: 10_000 };
/** The idle time after which a probe request is sent. The server pings every 15 s, but a page cannot
 * observe WebSocket pings. */
const PROBE_MS = 20_000;

/** A WebSocket connection that reconnects until it is stopped. */
export class EventSocket {
  private socket: WebSocket | null = null;
  private readonly sessions = new Map<string, SessionListener>();
  private globalListener: ((frame: Frame) => void) | null = null;
  private delay = RECONNECT_DELAY_MS.first;
  private retryTimer = 0;
  private probeTimer = 0;
  private nextId = 1;
  private readonly pendingRequests = new Map<number, { resolve: (reply: JsonObject) => void; reject: (problem: Problem) => void }>();
  private stopped = false;
  /** The time of the next connection attempt, in milliseconds since the epoch. */
  retryAt: number | null = null;

  constructor(
    private readonly onStateChange: (state: SocketState, justOpened: boolean) => void,
    private readonly checkSignedIn: () => Promise<boolean>,
  ) {}

  /** Connects, and reconnects after each loss of the connection. */
  start(): void {
    this.stopped = false;
    this.connect();
    addEventListener("online", this.reconnectNow);
    document.addEventListener("visibilitychange", this.reconnectNow);
  }

  /**
   * Closes the connection because the user is signed out. It stays closed until `start` is called.
   */
  stop(): void {
    this.stopped = true;
    clearTimeout(this.retryTimer);
    this.detachSocket()?.close();
    this.onStateChange("signed_out", false);
  }

  /** Subscribes to a session from the listener's cursor. Returns a function that unsubscribes. */
  subscribe(session_id: string, listener: SessionListener): () => void {
    this.sessions.set(session_id, listener);
    this.send({ type: "subscribe", session_id, after: listener.cursor() || undefined });
    return () => {
      if (this.sessions.get(session_id) !== listener) return;
      this.sessions.delete(session_id);
      this.send({ type: "unsubscribe", session_id });
    };
  }

  /** Subscribes to the committed events of all sessions. Administrators only. */
  watchAllSessions(onFrame: (frame: Frame) => void): void {
    this.globalListener = onFrame;
    this.send({ type: "watch" });
  }

  /**
   * Sends a request and returns the server's acknowledgement. Waits while the socket is connecting.
   */
  async request(frame: Record<string, unknown>): Promise<JsonObject> {
    const { socket } = this;
    if (socket?.readyState === WebSocket.CONNECTING) {
      await new Promise((resolve) => {
        socket.addEventListener("open", resolve, { once: true });
        socket.addEventListener("close", resolve, { once: true });
      });
    }
    return new Promise((resolve, reject) => {
      const id = this.send(frame);
      if (id === null) reject(new Problem(0, "unreachable", "The server is unreachable."));
      else this.pendingRequests.set(id, { resolve, reject });
    });
  }

  /** Connects immediately instead of at `retryAt`. */
  readonly reconnectNow = (): void => {
    if (this.stopped || this.socket || document.visibilityState === "hidden") return;
    clearTimeout(this.retryTimer);
    this.delay = RECONNECT_DELAY_MS.first;
    this.connect();
  };

  private connect(): void {
    this.onStateChange(navigator.onLine ? "connecting" : "offline", false);
    const socket = new WebSocket(`${location.origin.replace(/^http/, "ws")}/agent/stream`);
    this.socket = socket;
    this.retryAt = null;
    socket.onopen = () => {
      this.delay = RECONNECT_DELAY_MS.first;
      if (this.globalListener) this.send({ type: "watch" });
      for (const [session_id, listener] of this.sessions) {
        this.send({ type: "subscribe", session_id, after: listener.cursor() || undefined });
      }
      this.onStateChange("open", true);
      this.restartProbe();
    };
    socket.onmessage = (message) => this.handleMessage(String(message.data));
    socket.onclose = () => this.handleClose(socket);
  }

  private handleClose(socket: WebSocket): void {
    if (this.socket !== socket) return;
    this.detachSocket();
    // Random jitter spreads the reconnects of many pages to a restarted server.
    const delay = this.delay * (0.5 + Math.random() / 2);
    this.delay = Math.min(this.delay * 2, RECONNECT_DELAY_MS.max);
    this.retryAt = Date.now() + delay;
    this.onStateChange(navigator.onLine ? "lost" : "offline", false);
    this.retryTimer = window.setTimeout(() => this.connect(), delay);
    void this.checkSignedIn().then((signedIn) => {
      if (signedIn) return;
      clearTimeout(this.retryTimer);
      this.stopped = true;
      this.onStateChange("signed_out", false);
    });
  }

  /**
   * Detaches the current socket, so that its messages are ignored, and fails the pending requests.
   */
  private detachSocket(): WebSocket | null {
    const { socket } = this;
    this.socket = null;
    clearTimeout(this.probeTimer);
    for (const { reject } of this.pendingRequests.values()) {
      reject(new Problem(0, "unreachable", "The connection was lost before the server responded."));
    }
    this.pendingRequests.clear();
    return socket;
  }

  private handleMessage(text: string): void {
    this.restartProbe();
    const message = parseJson(text) as JsonObject;
    const type = String(message.type);
    // An `error` frame of the dialect has an envelope and no status.
    if (type === "ack" || (type === "error" && typeof message.status === "number")) return this.handleReply(type, message);
    const frame = fromWebSocketFrame(message);
    if (type === "server_draining" || type === "stream_broken") {
      // The server ends the streams. Reconnecting resumes each session at its cursor.
      this.socket?.close();
      return;
    }
    this.sessions.get(frame.session_id)?.onFrame(frame);
    if (frame.type !== "text") this.globalListener?.(frame);
  }

  private handleReply(type: string, message: JsonObject): void {
    const pending = this.pendingRequests.get(Number(message.id));
    this.pendingRequests.delete(Number(message.id));
    if (type === "ack") pending?.resolve(message);
    else pending?.reject(new Problem(Number(message.status), String(message.code), String(message.detail), message));
  }

  private restartProbe(): void {
    clearTimeout(this.probeTimer);
    this.probeTimer = window.setTimeout(() => {
      // The server replies to every message, including one of unknown type.
      this.send({ type: "alive?" });
      this.probeTimer = window.setTimeout(() => this.socket?.close(), PROBE_MS / 2);
    }, PROBE_MS);
  }

  private send(frame: Record<string, unknown>): number | null {
    if (this.socket?.readyState !== WebSocket.OPEN) return null;
    const id = this.nextId++;
    this.socket.send(stringifyJson({ id, ...frame }));
    return id;
  }
}
