/** Builds the numbered frames of a session for tests. */

import type { Frame, JsonObject } from "../src/api/types";

/** A session that a test builds event by event. */
export class SessionBuilder {
  private seq = 0;
  readonly frames: Frame[] = [];

  constructor(readonly id = "s-1", private at = Date.UTC(2026, 0, 1)) {}

  /** Adds the next event. `run: null` adds an event without a run. */
  emit(type: string, body: JsonObject = {}, options: { run?: string | null; step?: number; afterMs?: number } = {}): Frame {
    this.seq += 1;
    this.at += options.afterMs ?? 100;
    const frame: Frame = {
      type, session_id: this.id, run_id: options.run === undefined ? "r-1" : options.run, step: options.step ?? null, agent: "default",
      seq: this.seq, cursor: String(this.seq), at: new Date(this.at).toISOString(), body,
    };
    this.frames.push(frame);
    return frame;
  }

  /** Adds a text delta of the message that the last event opened. */
  emitDelta(message_id: string, text: string, offset: number): Frame {
    const frame: Frame = {
      type: "text", session_id: this.id, run_id: "r-1", step: 1, agent: "default", seq: this.seq, cursor: `${this.seq}.${offset}`,
      at: new Date(this.at).toISOString(), body: { message_id, text },
    };
    this.frames.push(frame);
    return frame;
  }

  /** Adds the events up to the first step of a run. */
  startRun(message = "hello"): this {
    this.emit("session_created", { agent: "default", owner: "ada", settings: {}, title: "A title" }, { run: null });
    this.emit("message_accepted", { message_id: "m-1", text: message });
    this.emit("run_started", { message_id: "m-1" });
    this.emit("thinking", { iteration: 1, model: "rehearsal" }, { step: 1 });
    return this;
  }

  /** Adds a proposed call. */
  proposeCall(call_id = "c-1", tool = "look"): this {
    this.emit("tool_call_started", { call_id, tool, arguments: { n: 1 }, risk: "read_only", digest: "d" }, { step: 1 });
    return this;
  }
}

/** The usage of one step, with an unknown cost. */
export const USAGE = { input_tokens: 10, output_tokens: 5, cached_tokens: 0, cost_usd: null };
