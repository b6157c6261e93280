/** Loads data for a component, optionally at an interval, and again after a reconnect. */

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { type Problem, toProblem } from "../api/http";
import { connection } from "../state/app_state";

/** The state of a load. */
export interface LoadState<T> {
  value: T | null;
  problem: Problem | null;
  reload: () => void;
}

/**
 * Loads a value, again when `dependencies` change, and every `intervalMs` while the page is visible. The
 * previous value stays during a reload.
 */
export function useLoad<T>(load: (signal: AbortSignal) => Promise<T>, dependencies: unknown[], intervalMs?: number): LoadState<T> {
  const [state, setState] = useState<{ value: T | null; problem: Problem | null }>({ value: null, problem: null });
  const latest = useRef(load);
  latest.current = load;
  const reloadRef = useRef<() => void>(() => undefined);
  const wasOffline = useRef(false);
  useEffect(() => {
    const controller = new AbortController();
    let timer = 0;
    const scheduleNext = () => {
      clearTimeout(timer);
      timer = window.setTimeout(() => (document.visibilityState === "visible" ? void runLoad() : scheduleNext()), intervalMs);
    };
    const runLoad = async () => {
      try {
        const value = await latest.current(controller.signal);
        if (!controller.signal.aborted) setState({ value, problem: null });
        wasOffline.current = false;
      } catch (error) {
        const problem = toProblem(error);
        if (!controller.signal.aborted) setState((before) => ({ ...before, problem }));
        wasOffline.current = problem.isOffline;
      }
      if (intervalMs && !controller.signal.aborted) scheduleNext();
    };
    setState((before) => ({ ...before, problem: null }));
    reloadRef.current = () => void runLoad();
    void runLoad();
    return () => {
      controller.abort();
      clearTimeout(timer);
    };
  }, dependencies);
  useOnReconnect(() => wasOffline.current && reloadRef.current());
  const reload = useCallback(() => reloadRef.current(), []);
  return { ...state, reload };
}

/** Calls `onReconnect` each time the connection is open again. */
export function useOnReconnect(onReconnect: () => void): void {
  const latest = useRef(onReconnect);
  latest.current = onReconnect;
  useEffect(() => {
    let { state } = connection.get();
    return connection.listen(() => {
      const previousState = state;
      ({ state } = connection.get());
      if (state === "open" && previousState !== "open") latest.current();
    });
  }, []);
}
