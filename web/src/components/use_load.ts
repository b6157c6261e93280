/** Something that is asked for; perhaps again each so often, and when the server is back. */

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { type Problem, toProblem } from "../api/http";
import { connection } from "../state/app_state";

export interface LoadState<T> {
  value: T | null;
  problem: Problem | null;
  reload: () => void;
}

/** `every` milliseconds while the page can be seen; what was loaded stays while it is asked again. */
export function useLoad<T>(load: (signal: AbortSignal) => Promise<T>, about: unknown[], every?: number): LoadState<T> {
  const [state, setState] = useState<{ value: T | null; problem: Problem | null }>({ value: null, problem: null });
  const latest = useRef(load);
  latest.current = load;
  const again = useRef<() => void>(() => undefined);
  const away = useRef(false);
  useEffect(() => {
    const control = new AbortController();
    let timer = 0;
    const later = () => {
      clearTimeout(timer);
      timer = window.setTimeout(() => (document.visibilityState === "visible" ? void ask() : later()), every);
    };
    const ask = async () => {
      try {
        const value = await latest.current(control.signal);
        if (!control.signal.aborted) setState({ value, problem: null });
        away.current = false;
      } catch (error) {
        const problem = toProblem(error);
        if (!control.signal.aborted) setState((before) => ({ ...before, problem }));
        away.current = problem.isOffline;
      }
      if (every && !control.signal.aborted) later();
    };
    setState((before) => ({ ...before, problem: null }));
    again.current = () => void ask();
    void ask();
    return () => {
      control.abort();
      clearTimeout(timer);
    };
  }, about);
  useOnReconnect(() => away.current && again.current());
  const reload = useCallback(() => again.current(), []);
  return { ...state, reload };
}

/** Does it each time the connection is there again. */
export function useOnReconnect(act: () => void): void {
  const latest = useRef(act);
  latest.current = act;
  useEffect(() => {
    let { state } = connection.get();
    return connection.listen(() => {
      const before = state;
      ({ state } = connection.get());
      if (state === "open" && before !== "open") latest.current();
    });
  }, []);
}
