/** Converts frames of both transports (event pages and WebSocket) to one form. Pure. */

import type { Frame, JsonObject } from "./types";

const ENVELOPE = new Set([
  "type", "seq", "session_id", "run_id", "step", "agent_id", "agent_type", "at", "cursor",
]);

const textOrNull = (value: unknown) => (typeof value === "string" ? value : null);
const numberOrNull = (value: unknown) => (typeof value === "number" ? value : null);

/** Converts an event of an event page, whose envelope fields are next to its body fields. */
export function fromFlat(event: JsonObject): Frame {
  const body: JsonObject = {};
  for (const [name, value] of Object.entries(event)) if (!ENVELOPE.has(name)) body[name] = value;
  const seq = numberOrNull(event.seq);
  return {
    type: String(event.type),
    session_id: String(event.session_id),
    run_id: textOrNull(event.run_id),
    step: numberOrNull(event.step),
    agent: String(event.agent_type ?? ""),
    seq,
    cursor: seq === null ? null : String(seq),
    at: String(event.at),
    body,
  };
}

/** Converts a WebSocket frame, whose body is in `payload`. */
export function fromWebSocketFrame(frame: JsonObject): Frame {
  const payload = (frame.payload ?? {}) as JsonObject;
  const { run_id, agent_type, agent_id: _, ...body } = payload;
  return {
    type: String(frame.type),
    session_id: String(frame.session_id),
    run_id: textOrNull(run_id),
    step: numberOrNull(frame.step_index),
    agent: String(agent_type ?? ""),
    seq: numberOrNull(frame.seq),
    cursor: textOrNull(frame.cursor),
    at: String(frame.timestamp),
    body,
  };
}

/** Formats a frame as an event of the server's native dialect, for display. */
export function toFlat(frame: Frame): JsonObject {
  const { type, seq, session_id, run_id, step, agent, at } = frame;
  return { type, seq, session_id, run_id, step, agent_type: agent, at, ...frame.body };
}
