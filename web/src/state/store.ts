/** Observable state: a value that is replaced as a whole, with listeners. */

import { useEffect, useRef, useState } from "preact/hooks";

/** A value with change listeners. */
export class Store<T> {
  private readonly listeners = new Set<() => void>();

  constructor(private value: T) {}

  get(): T {
    return this.value;
  }

  set(value: T): void {
    if (Object.is(value, this.value)) return;
    this.value = value;
    for (const listener of [...this.listeners]) listener();
  }

  /** Replaces the value by the result of `change`. */
  update(change: (value: T) => T): void {
    this.set(change(this.value));
  }

  /** Calls `listener` after each change. Returns a function that removes the listener. */
  listen(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}

/**
 * Returns the selected part of the store's value and re-renders the component when that part
 * changes.
 */
export function useStore<T, S = T>(store: Store<T>, select: (value: T) => S = (value) => value as unknown as S): S {
  const [, render] = useState(0);
  const selected = select(store.get());
  const latest = useRef({ select, selected });
  latest.current = { select, selected };
  useEffect(() => {
    const checkForChange = () => {
      const next = latest.current.select(store.get());
      if (!Object.is(next, latest.current.selected)) render((n) => n + 1);
    };
    // The value may have changed between the render and this effect.
    checkForChange();
    return store.listen(checkForChange);
  }, [store]);
  return selected;
}
