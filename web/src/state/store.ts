/** State that components look at: a value, replaced as a whole, and who wants to know. */

import { useEffect, useRef, useState } from "preact/hooks";

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

  update(change: (value: T) => T): void {
    this.set(change(this.value));
  }

  listen(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}

/** The part of the store that a component needs; it renders again when that part is another. */
export function useStore<T, S = T>(store: Store<T>, select: (value: T) => S = (value) => value as unknown as S): S {
  const [, render] = useState(0);
  const selected = select(store.get());
  const now = useRef({ select, selected });
  now.current = { select, selected };
  useEffect(() => {
    const look = () => {
      const next = now.current.select(store.get());
      if (!Object.is(next, now.current.selected)) render((n) => n + 1);
    };
    // It may have changed between the first look and now.
    look();
    return store.listen(look);
  }, [store]);
  return selected;
}
