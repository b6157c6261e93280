/**
 * A long list of rows of equal height. Only the visible rows are in the document. The arrow keys move
 * the selection. The list follows its end while it is scrolled to the end.
 */

import type { ComponentChildren } from "preact";
import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";

/** The number of rows rendered beyond each edge, so that fast scrolling shows no gaps. */
const OVERSCAN_ROWS = 12;
/** The maximum height of the content in pixels, a limit of browsers. */
const HEIGHT_MAX = 8_000_000;

/** A virtual list with a single selection. */
export function VirtualList<T>({ label, rows, rowHeight, renderRow, selected, onSelect, isSame, follow = true, version }: {
  label: string; rows: T[]; rowHeight: number; renderRow: (item: T) => ComponentChildren; selected: T | null;
  onSelect: (item: T) => void; isSame: (a: T, b: T) => boolean; follow?: boolean;
  /** Changes with `rows`, which may be changed in place. */
  version: unknown;
}) {
  const container = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  const isAtEnd = useRef(true);
  const id = useId();
  const height = Math.min(rows.length * rowHeight, HEIGHT_MAX);
  useLayoutEffect(() => {
    const element = container.current!;
    const measure = () => setView({ top: element.scrollTop, height: element.clientHeight });
    measure();
    const resizeObserver = new ResizeObserver(measure);
    resizeObserver.observe(element);
    return () => resizeObserver.disconnect();
  }, []);
  useEffect(() => {
    const element = container.current!;
    if (follow && isAtEnd.current) element.scrollTop = element.scrollHeight;
  }, [version, rows.length, follow]);

  const first = Math.max(0, Math.floor(view.top / rowHeight) - OVERSCAN_ROWS);
  const last = Math.min(rows.length, Math.ceil((view.top + view.height) / rowHeight) + OVERSCAN_ROWS);
  const selectedIndex = selected === null ? -1 : rows.findIndex((item) => isSame(item, selected));

  // Scrolls to the row that was selected by a key or from outside, for example by a link.
  const selectionKey = selectedIndex < 0 ? null : selected;
  useEffect(() => {
    const element = container.current!;
    if (selectedIndex < 0) return;
    const [top, bottom] = [selectedIndex * rowHeight, (selectedIndex + 1) * rowHeight];
    const { scrollTop, clientHeight } = element;
    if (top >= scrollTop && bottom <= scrollTop + clientHeight) return;
    const isFar = bottom < scrollTop - clientHeight || top > scrollTop + 2 * clientHeight;
    element.scrollTop = isFar ? top - clientHeight / 2 : top < scrollTop ? top : bottom - clientHeight;
  }, [selectionKey]);

  const handleKey = (event: KeyboardEvent) => {
    const pageSize = Math.max(1, Math.floor(view.height / rowHeight) - 1);
    const steps: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: pageSize, PageUp: -pageSize, Home: -Infinity, End: Infinity };
    const step = steps[event.key];
    if (step === undefined || !rows.length) return;
    event.preventDefault();
    const startIndex = selectedIndex < 0 ? Math.min(last, rows.length) - 1 : selectedIndex;
    const targetIndex = Math.max(0, Math.min(rows.length - 1, startIndex + step));
    onSelect(rows[targetIndex]!);
  };

  return (
    <div class="virtual" ref={container} role="listbox" tabIndex={0} aria-label={label} onKeyDown={handleKey}
      aria-activedescendant={selectedIndex >= first && selectedIndex < last ? `${id}-${selectedIndex}` : undefined}
      onScroll={(event) => {
        const { scrollTop, scrollHeight, clientHeight } = event.currentTarget;
        isAtEnd.current = scrollHeight - scrollTop - clientHeight < rowHeight * 1.5;
        setView({ top: scrollTop, height: clientHeight });
      }}>
      <div class="virtual-content" role="presentation" ref={(element) => { if (element) element.style.height = `${height}px`; }}>
        <div class="virtual-window" role="presentation" ref={(element) => { if (element) element.style.transform = `translateY(${first * rowHeight}px)`; }}>
          {rows.slice(first, last).map((item, offset) => (
            <div key={first + offset} id={`${id}-${first + offset}`} class="virtual-row" role="option" aria-selected={first + offset === selectedIndex}
              aria-posinset={first + offset + 1} aria-setsize={rows.length} onClick={() => onSelect(item)}>
              {renderRow(item)}
            </div>
          ))}
        </div>
      </div>
    </div>
  );
}
