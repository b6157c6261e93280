/** The events that somebody wants to see, kept up to date without looking at all of them each time. */

import { useRef } from "preact/hooks";
import type { Frame } from "../../api/types";
import type { EventLog } from "../../state/event_log";
import { type Filter, matcher, toolIn } from "../../state/event_filter";
import { useStore } from "../../state/store";

interface FilterState {
  key: string;
  generation: number;
  /** So many of the log were looked at. */
  upTo: number;
  rows: Frame[];
  tools: Map<string, string>;
}

export interface FilteredEvents {
  rows: Frame[];
  /** Heard while paused. */
  heldBack: number;
  version: number;
}

export function useFiltered(log: EventLog, filter: Filter, paused: boolean): FilteredEvents {
  const version = useStore(log.version);
  const found = useRef<FilterState>({ key: "", generation: -1, upTo: 0, rows: [], tools: new Map() });
  const key = JSON.stringify(filter);
  let state = found.current;
  const again = state.key !== key || (state.generation !== log.generation && !paused);
  if (again) state = found.current = { key, generation: log.generation, upTo: 0, rows: [], tools: state.tools };
  const held = log.frames.length - state.upTo;
  if (paused && !again) return { rows: state.rows, heldBack: Math.max(0, held), version: state.upTo };
  const wanted = matcher(filter, (frame) => toolOf(frame, state.tools));
  for (; state.upTo < log.frames.length; state.upTo++) {
    const frame = log.frames[state.upTo]!;
    if (wanted(frame)) state.rows.push(frame);
  }
  return { rows: state.rows, heldBack: 0, version };
}

/** The tool of an event, by its call where it does not say. */
function toolOf(frame: Frame, tools: Map<string, string>): string {
  const call = typeof frame.body.call_id === "string" ? frame.body.call_id : "";
  const tool = toolIn(frame);
  if (call && tool) tools.set(call, tool);
  return tool || (tools.get(call) ?? "");
}
