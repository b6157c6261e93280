import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { followList } from "../src/api/list_stream";

class FakeEventSource {
  static readonly CLOSED = 2;
  static instances: FakeEventSource[] = [];
  readyState = 1;
  onopen = () => {};
  onmessage = (_: { data: string }) => {};
  onerror = () => {};

  constructor(readonly path: string) {
    FakeEventSource.instances.push(this);
  }

  close(): void {
    this.readyState = FakeEventSource.CLOSED;
  }

  static get openInstances(): FakeEventSource[] {
    return FakeEventSource.instances.filter((source) => source.readyState !== FakeEventSource.CLOSED);
  }
}

describe("followList", () => {
  const createDocument = () => Object.assign(new EventTarget(), { visibilityState: "visible" });
  let fakeDocument = createDocument();
  const setVisibility = (state: string) => {
    fakeDocument.visibilityState = state;
    fakeDocument.dispatchEvent(new Event("visibilitychange"));
  };

  beforeEach(() => {
    vi.useFakeTimers();
    FakeEventSource.instances = [];
    fakeDocument = createDocument();
    vi.stubGlobal("document", fakeDocument);
    vi.stubGlobal("window", globalThis);
    vi.stubGlobal("EventSource", FakeEventSource);
  });
  afterEach(() => {
    vi.useRealTimers();
    vi.unstubAllGlobals();
  });

  const recordingListener = () => {
    const calls: unknown[] = [];
    return { calls, onReset: () => calls.push("reset"), onChange: (change: unknown) => calls.push(change), onLost: () => calls.push("lost") };
  };

  it("w3 reports a reset and then the changes", () => {
    const listener = recordingListener();
    followList("/agent/approvals", listener);
    const [source] = FakeEventSource.openInstances;
    source!.onopen();
    source!.onmessage({ data: '{"type":"approvals","changed":[1]}' });
    source!.onmessage({ data: '{"gone":["a"]}' });
    expect(listener.calls).toEqual(["reset", { changed: [1], gone: [] }, { changed: [], gone: ["a"] }]);
  });

  it("w7 closes the connection while the page is hidden", () => {
    const unfollow = followList("/agent/approvals", recordingListener());
    setVisibility("hidden");
    expect(FakeEventSource.openInstances).toHaveLength(0);
    setVisibility("visible");
    setVisibility("visible");
    expect(FakeEventSource.openInstances).toHaveLength(1);
    unfollow();
    setVisibility("visible");
    expect(FakeEventSource.openInstances).toHaveLength(0);
  });

  it("w7 reopens the stream after an error response, after which browsers do not reconnect", () => {
    const listener = recordingListener();
    followList("/agent/approvals", listener);
    // A lost connection: the browser reconnects by itself.
    FakeEventSource.openInstances[0]!.onerror();
    vi.advanceTimersByTime(60_000);
    expect(FakeEventSource.instances).toHaveLength(1);
    const [source] = FakeEventSource.openInstances;
    source!.readyState = FakeEventSource.CLOSED;
    source!.onerror();
    vi.advanceTimersByTime(60_000);
    expect([listener.calls, FakeEventSource.instances.length, FakeEventSource.openInstances.length]).toEqual([["lost", "lost"], 2, 1]);
  });
});
