/** The filtered event list, updated incrementally. */

import { useRef } from "preact/hooks";
import type { Frame } from "../../api/types";
import type { EventLog } from "../../state/event_log";
import { type Filter, eventMatcher, toolOfEvent } from "../../state/event_filter";
import { useStore } from "../../state/store";

interface FilterState {
  key: string;
  generation: number;
  /** The number of events of the log that were filtered so far. */
  scannedCount: number;
  rows: Frame[];
  tools: Map<string, string>;
}

/** The result of a filter. */
export interface FilteredEvents {
  rows: Frame[];
  /** The number of events received while paused. */
  heldBack: number;
  version: number;
}

/**
 * Returns the events of the log that match the filter. While paused, the result does not change.
 */
export function useFilteredEvents(log: EventLog, filter: Filter, paused: boolean): FilteredEvents {
  const version = useStore(log.version);
  const stateRef = useRef<FilterState>({ key: "", generation: -1, scannedCount: 0, rows: [], tools: new Map() });
  const key = JSON.stringify(filter);
  let state = stateRef.current;
  const isStale = state.key !== key || (state.generation !== log.generation && !paused);
  if (isStale) state = stateRef.current = { key, generation: log.generation, scannedCount: 0, rows: [], tools: state.tools };
  const heldBackCount = log.frames.length - state.scannedCount;
  if (paused && !isStale) return { rows: state.rows, heldBack: Math.max(0, heldBackCount), version: state.scannedCount };
  const matches = eventMatcher(filter, (frame) => resolveTool(frame, state.tools));
  for (; state.scannedCount < log.frames.length; state.scannedCount++) {
    const frame = log.frames[state.scannedCount]!;
    if (matches(frame)) state.rows.push(frame);
  }
  return { rows: state.rows, heldBack: 0, version };
}

/**
 * Returns the tool of an event. For an event that names only its call, this is the tool of the
 * call.
 */
function resolveTool(frame: Frame, tools: Map<string, string>): string {
  const call = typeof frame.body.call_id === "string" ? frame.body.call_id : "";
  const tool = toolOfEvent(frame);
  if (call && tool) tools.set(call, tool);
  return tool || (tools.get(call) ?? "");
}
