/**
 * A long list of rows of one height: only what can be seen is there. One row is chosen, and the arrow
 * keys move that choice. It keeps to its end while one looks at its end.
 */

import type { ComponentChildren } from "preact";
import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";

/** Rows beyond the edges, so that quick scrolling shows no gaps. */
const OVERSCAN_ROWS = 12;
/** The tallest box that browsers lay out well, in pixels. */
const HEIGHT_MAX = 8_000_000;

export function VirtualList<T>({ label, rows, rowHeight, row, chosen, onChoose, isSame, follow = true, version }: {
  label: string; rows: T[]; rowHeight: number; row: (item: T) => ComponentChildren; chosen: T | null;
  onChoose: (item: T) => void; isSame: (one: T, other: T) => boolean; follow?: boolean;
  /** Changes when `rows` did, which may grow in place. */
  version: unknown;
}) {
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  const atEnd = useRef(true);
  const id = useId();
  const height = Math.min(rows.length * rowHeight, HEIGHT_MAX);
  useLayoutEffect(() => {
    const element = box.current!;
    const measure = () => setView({ top: element.scrollTop, height: element.clientHeight });
    measure();
    const watch = new ResizeObserver(measure);
    watch.observe(element);
    return () => watch.disconnect();
  }, []);
  useEffect(() => {
    const element = box.current!;
    if (follow && atEnd.current) element.scrollTop = element.scrollHeight;
  }, [version, rows.length, follow]);

  const first = Math.max(0, Math.floor(view.top / rowHeight) - OVERSCAN_ROWS);
  const last = Math.min(rows.length, Math.ceil((view.top + view.height) / rowHeight) + OVERSCAN_ROWS);
  const at = chosen === null ? -1 : rows.findIndex((one) => isSame(one, chosen));

  // Chosen by a key or from elsewhere, as from a link to it: it is brought into view.
  const key = at < 0 ? null : chosen;
  useEffect(() => {
    const element = box.current!;
    if (at < 0) return;
    const [top, bottom] = [at * rowHeight, (at + 1) * rowHeight];
    const { scrollTop, clientHeight } = element;
    if (top >= scrollTop && bottom <= scrollTop + clientHeight) return;
    const isFar = bottom < scrollTop - clientHeight || top > scrollTop + 2 * clientHeight;
    element.scrollTop = isFar ? top - clientHeight / 2 : top < scrollTop ? top : bottom - clientHeight;
  }, [key]);

  const move = (event: KeyboardEvent) => {
    const page = Math.max(1, Math.floor(view.height / rowHeight) - 1);
    const steps: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    const step = steps[event.key];
    if (step === undefined || !rows.length) return;
    event.preventDefault();
    const from = at < 0 ? Math.min(last, rows.length) - 1 : at;
    const to = Math.max(0, Math.min(rows.length - 1, from + step));
    onChoose(rows[to]!);
  };

  return (
    <div class="virtual" ref={box} role="listbox" tabIndex={0} aria-label={label} onKeyDown={move}
      aria-activedescendant={at >= first && at < last ? `${id}-${at}` : undefined}
      onScroll={(event) => {
        const { scrollTop, scrollHeight, clientHeight } = event.currentTarget;
        atEnd.current = scrollHeight - scrollTop - clientHeight < rowHeight * 1.5;
        setView({ top: scrollTop, height: clientHeight });
      }}>
      <div class="virtual-all" role="presentation" ref={(element) => { if (element) element.style.height = `${height}px`; }}>
        <div class="virtual-seen" role="presentation" ref={(element) => { if (element) element.style.transform = `translateY(${first * rowHeight}px)`; }}>
          {rows.slice(first, last).map((one, offset) => (
            <div key={first + offset} id={`${id}-${first + offset}`} class="virtual-row" role="option" aria-selected={first + offset === at}
              aria-posinset={first + offset + 1} aria-setsize={rows.length} onClick={() => onChoose(one)}>
              {row(one)}
            </div>
          ))}
        </div>
      </div>
    </div>
  );
}
