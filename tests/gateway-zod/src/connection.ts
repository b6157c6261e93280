// A connection to the gateway that validates each received frame. Knows no schema; the clients
// supply theirs.

import WebSocket from "ws";

/** The time limit for the next frame. */
const FRAME_TIMEOUT_MS = 60_000;

/** The types of all frames received on any connection. */
export const receivedTypes = new Set<string>();

/** The frame of one type. */
export type FrameOf<Frame extends { type: string }, T extends Frame["type"]> = Extract<Frame, { type: T }>;

/** A connection to the gateway. `parse` throws for a frame that violates the client's schemas. */
export class Connection<Frame extends { type: string }> {
  private readonly received: Frame[] = [];
  private notify: () => void = () => {};
  private failure: Error | undefined;
  protected readonly socket: WebSocket;

  constructor(url: string, token: string, parse: (value: unknown) => Frame) {
    this.socket = new WebSocket(url, { headers: { authorization: `Bearer ${token}` } });
    this.socket.on("message", (data) => {
      try {
        const frame = parse(JSON.parse(data.toString()));
        receivedTypes.add(frame.type);
        this.received.push(frame);
      } catch (error) {
        this.failure ??= new Error(`${(error as Error).message}\nin ${data.toString()}`);
      }
      this.notify();
    });
    this.socket.on("close", () => {
      this.failure ??= new Error("the server closed the connection");
      this.notify();
    });
  }

  /** Resolves when the connection is open. */
  async opened(): Promise<this> {
    await new Promise<void>((resolve, reject) => {
      this.socket.once("open", resolve);
      this.socket.once("error", reject);
    });
    return this;
  }

  /** Returns the next frame. Fails after the time limit, or if the connection was closed. */
  async next(): Promise<Frame> {
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
  async receiveUntil<T extends Frame["type"]>(type: T): Promise<{ all: Frame[]; last: FrameOf<Frame, T> }> {
    const all: Frame[] = [];
    for (;;) {
      const frame = await this.next();
      all.push(frame);
      if (frame.type === type) return { all, last: frame as FrameOf<Frame, T> };
    }
  }

  close(): void {
    this.socket.close();
  }
}

/** Returns the frames of one type. */
export function framesOfType<Frame extends { type: string }, T extends Frame["type"]>(
  frames: Frame[],
  type: T,
): FrameOf<Frame, T>[] {
  return frames.filter((frame): frame is FrameOf<Frame, T> => frame.type === type);
}
