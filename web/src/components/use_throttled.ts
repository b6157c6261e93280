/** A value that changes often, seen now and then. */

import { useEffect, useRef, useState } from "preact/hooks";

/** The value as it was at most `every` milliseconds ago. */
export function useThrottled<T>(value: T, every: number): T {
  const [seen, setSeen] = useState(value);
  const latest = useRef(value);
  const timer = useRef(0);
  latest.current = value;
  useEffect(() => {
    if (timer.current || Object.is(value, seen)) return;
    timer.current = window.setTimeout(() => {
      timer.current = 0;
      setSeen(latest.current);
    }, every);
  }, [value, seen]);
  useEffect(() => () => clearTimeout(timer.current), []);
  return seen;
}
