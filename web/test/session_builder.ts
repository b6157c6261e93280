/** Frames for tests: what a session says, numbered by itself. */

import type { Frame, JsonObject } from "../src/api/types";

export class Session {
  private seq = 0;
  readonly frames: Frame[] = [];

  constructor(readonly id = "s-1", private at = Date.UTC(2026, 0, 1)) {}

  say(type: string, body: JsonObject = {}, more: { run?: string | null; step?: number; after?: number } = {}): Frame {
    this.seq += 1;
    this.at += more.after ?? 100;
    const frame: Frame = {
      type, session_id: this.id, run_id: more.run === undefined ? "r-1" : more.run, step: more.step ?? null, agent: "default",
      seq: this.seq, cursor: String(this.seq), at: new Date(this.at).toISOString(), body,
    };
    this.frames.push(frame);
    return frame;
  }

  /** Text on its way, inside the message that the last event opened. */
  text(message_id: string, text: string, offset: number): Frame {
    const frame: Frame = {
      type: "text", session_id: this.id, run_id: "r-1", step: 1, agent: "default", seq: this.seq, cursor: `${this.seq}.${offset}`,
      at: new Date(this.at).toISOString(), body: { message_id, text },
    };
    this.frames.push(frame);
    return frame;
  }

  begin(message = "hello"): this {
    this.say("session_created", { agent: "default", owner: "ada", settings: {}, title: "A title" }, { run: null });
    this.say("message_accepted", { message_id: "m-1", text: message });
    this.say("run_started", { message_id: "m-1" });
    this.say("thinking", { iteration: 1, model: "rehearsal" }, { step: 1 });
    return this;
  }

  call(call_id = "c-1", tool = "look"): this {
    this.say("tool_call_started", { call_id, tool, arguments: { n: 1 }, risk: "read_only", digest: "d" }, { step: 1 });
    return this;
  }
}

export const USAGE = { input_tokens: 10, output_tokens: 5, cached_tokens: 0, cost_usd: null };
