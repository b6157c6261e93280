import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { followList } from "../src/api/list_stream";

class Source {
  static readonly CLOSED = 2;
  static all: Source[] = [];
  readyState = 1;
  onopen = () => {};
  onmessage = (_: { data: string }) => {};
  onerror = () => {};

  constructor(readonly path: string) {
    Source.all.push(this);
  }

  close(): void {
    this.readyState = Source.CLOSED;
  }

  static get open(): Source[] {
    return Source.all.filter((source) => source.readyState !== Source.CLOSED);
  }
}

describe("a list that is kept up to date", () => {
  const fresh = () => Object.assign(new EventTarget(), { visibilityState: "visible" });
  let page = fresh();
  const look = (state: string) => {
    page.visibilityState = state;
    page.dispatchEvent(new Event("visibilitychange"));
  };

  beforeEach(() => {
    vi.useFakeTimers();
    Source.all = [];
    page = fresh();
    vi.stubGlobal("document", page);
    vi.stubGlobal("window", globalThis);
    vi.stubGlobal("EventSource", Source);
  });
  afterEach(() => {
    vi.useRealTimers();
    vi.unstubAllGlobals();
  });

  const hearing = () => {
    const heard: unknown[] = [];
    return { heard, onReset: () => heard.push("begins"), onChange: (change: unknown) => heard.push(change), onLost: () => heard.push("lost") };
  };

  it("w3 is told whole, and then its changes", () => {
    const who = hearing();
    followList("/agent/approvals", who);
    const [source] = Source.open;
    source!.onopen();
    source!.onmessage({ data: '{"type":"approvals","changed":[1]}' });
    source!.onmessage({ data: '{"gone":["a"]}' });
    expect(who.heard).toEqual(["begins", { changed: [1], gone: [] }, { changed: [], gone: ["a"] }]);
  });

  it("w7 holds no connection while nobody can see it", () => {
    const leave = followList("/agent/approvals", hearing());
    look("hidden");
    expect(Source.open).toHaveLength(0);
    look("visible");
    look("visible");
    expect(Source.open).toHaveLength(1);
    leave();
    look("visible");
    expect(Source.open).toHaveLength(0);
  });

  it("w7 is asked for again after a refusal, which browsers give up at", () => {
    const who = hearing();
    followList("/agent/approvals", who);
    // Away for a moment: the browser asks again by itself.
    Source.open[0]!.onerror();
    vi.advanceTimersByTime(60_000);
    expect(Source.all).toHaveLength(1);
    const [source] = Source.open;
    source!.readyState = Source.CLOSED;
    source!.onerror();
    vi.advanceTimersByTime(60_000);
    expect([who.heard, Source.all.length, Source.open.length]).toEqual([["lost", "lost"], 2, 1]);
  });
});
