import { afterEach, expect, it, vi } from "vitest";
import { EventSocket } from "../src/api/event_socket";

/** A fake socket that a test opens and closes. */
class FakeSocket extends EventTarget {
  static readonly CONNECTING = 0;
  static readonly OPEN = 1;
  static latest: FakeSocket;
  readyState = 0;
  sent: string[] = [];
  onopen: (() => void) | null = null;
  onclose: (() => void) | null = null;

  constructor() {
    super();
    FakeSocket.latest = this;
  }

  send(text: string) {
    this.sent.push(text);
  }

  changeState(event: "open" | "close") {
    this.readyState = event === "open" ? FakeSocket.OPEN : 3;
    this[`on${event}`]?.();
    this.dispatchEvent(new Event(event));
  }
}

function startSocket(): EventSocket {
  vi.useFakeTimers();
  vi.stubGlobal("WebSocket", FakeSocket);
  vi.stubGlobal("location", { origin: "http://greenroom.test" });
  vi.stubGlobal("navigator", { onLine: true });
  vi.stubGlobal("document", { visibilityState: "visible", addEventListener() {} });
  vi.stubGlobal("addEventListener", () => undefined);
  vi.stubGlobal("window", globalThis);
  const eventSocket = new EventSocket(() => undefined, () => Promise.resolve(true));
  eventSocket.start();
  return eventSocket;
}

afterEach(() => {
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

it("w1 sends a request made while connecting once the socket is open", async () => {
  const eventSocket = startSocket();
  const reply = eventSocket.request({ type: "send" });
  expect(FakeSocket.latest.sent).toEqual([]);
  FakeSocket.latest.changeState("open");
  await vi.waitFor(() => expect(FakeSocket.latest.sent).toEqual([JSON.stringify({ id: 1, type: "send" })]));
  (FakeSocket.latest as unknown as { onmessage: (message: { data: string }) => void }).onmessage({ data: JSON.stringify({ type: "ack", id: 1 }) });
  expect(await reply).toEqual({ type: "ack", id: 1 });
});

it("w7 fails the request if the socket does not open", async () => {
  const reply = startSocket().request({ type: "send" });
  FakeSocket.latest.changeState("close");
  await expect(reply).rejects.toThrow("is unreachable");
});

it("w7 does not reconnect after stop", () => {
  const eventSocket = startSocket();
  const first = FakeSocket.latest;
  Object.assign(first, { close: () => first.changeState("close") });
  first.changeState("open");
  eventSocket.stop();
  vi.runAllTimers();
  expect(FakeSocket.latest).toBe(first);
  expect(first.readyState).toBe(3);
});
