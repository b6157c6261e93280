import { afterEach, expect, it, vi } from "vitest";
import { EventSocket } from "../src/api/event_socket";

/** A socket that opens and closes when it is told to. */
class Socket extends EventTarget {
  static readonly CONNECTING = 0;
  static readonly OPEN = 1;
  static last: Socket;
  readyState = 0;
  sent: string[] = [];
  onopen: (() => void) | null = null;
  onclose: (() => void) | null = null;

  constructor() {
    super();
    Socket.last = this;
  }

  send(text: string) {
    this.sent.push(text);
  }

  become(what: "open" | "close") {
    this.readyState = what === "open" ? Socket.OPEN : 3;
    this[`on${what}`]?.();
    this.dispatchEvent(new Event(what));
  }
}

function started(): EventSocket {
  vi.useFakeTimers();
  vi.stubGlobal("WebSocket", Socket);
  vi.stubGlobal("location", { origin: "http://house.test" });
  vi.stubGlobal("navigator", { onLine: true });
  vi.stubGlobal("document", { visibilityState: "visible", addEventListener() {} });
  vi.stubGlobal("addEventListener", () => undefined);
  vi.stubGlobal("window", globalThis);
  const line = new EventSocket(() => undefined, () => Promise.resolve(true));
  line.start();
  return line;
}

afterEach(() => {
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

it("w1 what is asked while the line connects is sent when it is open", async () => {
  const line = started();
  const answer = line.request({ type: "send" });
  expect(Socket.last.sent).toEqual([]);
  Socket.last.become("open");
  await vi.waitFor(() => expect(Socket.last.sent).toEqual([JSON.stringify({ id: 1, type: "send" })]));
  (Socket.last as unknown as { onmessage: (message: { data: string }) => void }).onmessage({ data: JSON.stringify({ type: "ack", id: 1 }) });
  expect(await answer).toEqual({ type: "ack", id: 1 });
});

it("w7 and fails where it does not open", async () => {
  const answer = started().request({ type: "send" });
  Socket.last.become("close");
  await expect(answer).rejects.toThrow("can’t be reached");
});

it("w7 hears nothing more once it is stopped", () => {
  const line = started();
  const first = Socket.last;
  Object.assign(first, { close: () => first.become("close") });
  first.become("open");
  line.stop();
  vi.runAllTimers();
  expect(Socket.last).toBe(first);
  expect(first.readyState).toBe(3);
});
