// A client's end of the gateway: everything it says and hears is held against the schemas.

import WebSocket from "ws";
import { ClientMessage, parse, type ServerMessage } from "./schema.js";

type Of<T extends ServerMessage["type"]> = Extract<ServerMessage, { type: T }>;

/** Nothing here takes so long unless it is broken. */
const PATIENCE_MS = 60_000;

/** The types of all frames that were heard, on any connection. */
export const heardTypes = new Set<string>();

export class Gateway {
  private readonly waiting: ServerMessage[] = [];
  private wake: () => void = () => {};
  private broken: Error | undefined;

  private constructor(private readonly socket: WebSocket) {
    socket.on("message", (data) => {
      try {
        const frame = parse(JSON.parse(data.toString()));
        heardTypes.add(frame.type);
        this.waiting.push(frame);
      } catch (error) {
        this.broken = error as Error;
      }
      this.wake();
    });
    socket.on("close", () => {
      this.broken ??= new Error("the server closed the connection");
      this.wake();
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

  say(message: ClientMessage): void {
    this.socket.send(JSON.stringify(ClientMessage.parse(message)));
  }

  /** Says what is no message of the protocol. */
  sayNonsense(text: string): void {
    this.socket.send(text);
  }

  async next(): Promise<ServerMessage> {
    const until = Date.now() + PATIENCE_MS;
    for (;;) {
      const frame = this.waiting.shift();
      if (frame) return frame;
      if (this.broken) throw this.broken;
      if (Date.now() > until) throw new Error("the server says nothing");
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, PATIENCE_MS);
        this.wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
  }

  /** Frames up to the first of that type, with it. */
  async until<T extends ServerMessage["type"]>(
    type: T,
  ): Promise<{ all: ServerMessage[]; last: Of<T> }> {
    const all: ServerMessage[] = [];
    for (;;) {
      const frame = await this.next();
      all.push(frame);
      if (frame.type === type) return { all, last: frame as Of<T> };
    }
  }

  close(): void {
    this.socket.close();
  }
}

export function only<T extends ServerMessage["type"]>(frames: ServerMessage[], type: T): Of<T>[] {
  return frames.filter((frame): frame is Of<T> => frame.type === type);
}
