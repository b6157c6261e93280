// A client of the gateway. It validates every message that it sends or receives against the
// schemas.

import WebSocket from "ws";
import { ClientMessage, parseServerMessage, type ServerMessage } from "./schema.js";

type MessageOf<T extends ServerMessage["type"]> = Extract<ServerMessage, { type: T }>;

/** The time limit for the next frame. */
const FRAME_TIMEOUT_MS = 60_000;

/** The types of all frames received on any connection. */
export const receivedTypes = new Set<string>();

/** A connection to the gateway. */
export class Gateway {
  private readonly received: ServerMessage[] = [];
  private notify: () => void = () => {};
  private failure: Error | undefined;

  private constructor(private readonly socket: WebSocket) {
    socket.on("message", (data) => {
      try {
        const frame = parseServerMessage(JSON.parse(data.toString()));
        receivedTypes.add(frame.type);
        this.received.push(frame);
      } catch (error) {
        this.failure = error as Error;
      }
      this.notify();
    });
    socket.on("close", () => {
      this.failure ??= new Error("the server closed the connection");
      this.notify();
    });
  }

  static async open(url: string, token: string): Promise<Gateway> {
    const socket = new WebSocket(url, { headers: { authorization: `Bearer ${token}` } });
    const gateway = new Gateway(socket);
    await new Promise<void>((resolve, reject) => {
      socket.once("open", resolve);
      socket.once("error", reject);
    });
    return gateway;
  }

  /** Sends a message that matches the schemas. */
  send(message: ClientMessage): void {
    this.socket.send(JSON.stringify(ClientMessage.parse(message)));
  }

  /** Sends a text without validation. */
  sendRaw(text: string): void {
    this.socket.send(text);
  }

  /** Returns the next frame. Fails after the time limit, or if the connection was closed. */
  async next(): Promise<ServerMessage> {
    const deadline = Date.now() + FRAME_TIMEOUT_MS;
    for (;;) {
      const frame = this.received.shift();
      if (frame) return frame;
      if (this.failure) throw this.failure;
      if (Date.now() > deadline) throw new Error("no frame within the time limit");
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, FRAME_TIMEOUT_MS);
        this.notify = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
  }

  /** Returns the frames up to and including the first of a type. */
  async receiveUntil<T extends ServerMessage["type"]>(
    type: T,
  ): Promise<{ all: ServerMessage[]; last: MessageOf<T> }> {
    const all: ServerMessage[] = [];
    for (;;) {
      const frame = await this.next();
      all.push(frame);
      if (frame.type === type) return { all, last: frame as MessageOf<T> };
    }
  }

  close(): void {
    this.socket.close();
  }
}

/** Returns the frames of one type. */
export function framesOfType<T extends ServerMessage["type"]>(frames: ServerMessage[], type: T): MessageOf<T>[] {
  return frames.filter((frame): frame is MessageOf<T> => frame.type === type);
}
