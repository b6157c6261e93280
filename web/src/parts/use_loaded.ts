/** Something that is asked for, and perhaps again each so often. */

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { type Problem, problemOf } from "../api/http";

export interface Loaded<T> {
  value: T | null;
  problem: Problem | null;
  reload: () => void;
}

/** `every` milliseconds while the page can be seen; what was loaded stays while it is asked again. */
export function useLoaded<T>(load: (signal: AbortSignal) => Promise<T>, about: unknown[], every?: number): Loaded<T> {
  const [state, setState] = useState<{ value: T | null; problem: Problem | null }>({ value: null, problem: null });
  const latest = useRef(load);
  latest.current = load;
  const again = useRef<() => void>(() => undefined);
  useEffect(() => {
    const control = new AbortController();
    let timer = 0;
    const ask = async () => {
      clearTimeout(timer);
      try {
        const value = await latest.current(control.signal);
        if (!control.signal.aborted) setState({ value, problem: null });
      } catch (error) {
        if (!control.signal.aborted) setState((before) => ({ ...before, problem: problemOf(error) }));
      }
      if (every && !control.signal.aborted) timer = window.setTimeout(() => (document.visibilityState === "visible" ? void ask() : later()), every);
    };
    const later = () => {
      timer = window.setTimeout(() => (document.visibilityState === "visible" ? void ask() : later()), every);
    };
    setState((before) => ({ ...before, problem: null }));
    again.current = () => void ask();
    void ask();
    return () => {
      control.abort();
      clearTimeout(timer);
    };
  }, about);
  const reload = useCallback(() => again.current(), []);
  return { ...state, reload };
}
