/** Throttles a value that changes often. */

import { useEffect, useRef, useState } from "preact/hooks";

/** Returns the value as it was at most `intervalMs` milliseconds ago. */
export function useThrottled<T>(value: T, intervalMs: number): T {
  const [throttled, setThrottled] = useState(value);
  const latest = useRef(value);
  const timer = useRef(0);
  latest.current = value;
  useEffect(() => {
    if (timer.current || Object.is(value, throttled)) return;
    timer.current = window.setTimeout(() => {
      timer.current = 0;
      setThrottled(latest.current);
    }, intervalMs);
  }, [value, throttled]);
  useEffect(() => () => clearTimeout(timer.current), []);
  return throttled;
}
