// A client of the gateway. It validates every message that it sends or receives against the
// schemas.

import { Connection, framesOfType as selectFrames, type FrameOf } from "./connection.js";
import { ClientMessage, parseServerMessage, type ServerMessage } from "./schema.js";

export { receivedTypes } from "./connection.js";

/** A connection to the gateway. */
export class Gateway extends Connection<ServerMessage> {
  static open(url: string, token: string): Promise<Gateway> {
    return new Gateway(url, token, parseServerMessage).opened();
  }

  /** Sends a message that matches the schemas. */
  send(message: ClientMessage): void {
    this.socket.send(JSON.stringify(ClientMessage.parse(message)));
  }

  /** Sends a text without validation. */
  sendRaw(text: string): void {
    this.socket.send(text);
  }
}

/** Returns the frames of one type. */
export function framesOfType<T extends ServerMessage["type"]>(frames: ServerMessage[], type: T): FrameOf<ServerMessage, T>[] {
  return selectFrames(frames, type);
}
