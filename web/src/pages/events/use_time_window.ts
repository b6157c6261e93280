/** The visible time window of a timeline: zoomed and moved by buttons, wheel, drag and keys. */

import type { RefObject } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

/** The shortest visible duration. */
export const MIN_DURATION_MS = 5;
/** The distance that the pointer moves before a drag starts. */
const DRAG_THRESHOLD_PX = 3;

/** The visible time window. Times are in milliseconds since the epoch. */
export interface TimeWindow {
  from: number;
  to: number;
  /** The widths of the whole chart, of the lane labels and of the remaining area, in pixels. */
  width: number;
  labelWidth: number;
  chartWidth: number;
  isWhole: boolean;
  x: (time: number) => number;
  zoom: (factor: number, center?: number) => void;
  reset: () => void;
  handlers: {
    onKeyDown: (event: KeyboardEvent) => void;
    onPointerDown: (event: PointerEvent) => void;
    onPointerMove: (event: PointerEvent) => void;
    onPointerUp: () => void;
    onPointerCancel: () => void;
  };
}

/** Returns the time window of a timeline from `start` to `end` in `container`. */
export function useTimeWindow(container: RefObject<HTMLDivElement | null>, start: number, end: number): TimeWindow {
  const [shown, setShown] = useState<[number, number] | null>(null);
  const [width, setWidth] = useState(800);
  const drag = useRef<{ x: number; from: number; to: number } | null>(null);
  const [from, to] = shown ?? [start, end];
  const labelWidth = width < 560 ? 96 : 168;
  const chartWidth = Math.max(100, width - labelWidth);
  const zoom = (factor: number, center = (from + to) / 2) => {
    const duration = Math.min(Math.max((to - from) * factor, MIN_DURATION_MS), (end - start) * 1.2);
    const first = center - ((center - from) / (to - from)) * duration;
    setShown([first, first + duration]);
  };
  const move = (offset: number) => setShown([from + offset, to + offset]);
  const showAll = () => setShown(null);
  useEffect(() => {
    const element = container.current!;
    const resizeObserver = new ResizeObserver(() => setWidth(element.clientWidth));
    resizeObserver.observe(element);
    return () => resizeObserver.disconnect();
  }, []);
  useEffect(() => {
    const element = container.current!;
    const handleWheel = (event: WheelEvent) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const offsetPixels = event.clientX - element.getBoundingClientRect().left - labelWidth;
      zoom(event.deltaY > 0 ? 1.25 : 0.8, from + (offsetPixels / chartWidth) * (to - from));
    };
    element.addEventListener("wheel", handleWheel, { passive: false });
    return () => element.removeEventListener("wheel", handleWheel);
  });
  const panStep = (to - from) * 0.2;
  const keys: Record<string, () => void> = {
    ArrowLeft: () => move(-panStep), ArrowRight: () => move(panStep), "+": () => zoom(0.7), "=": () => zoom(0.7), "-": () => zoom(1.4), "0": showAll,
  };
  const endDrag = () => {
    drag.current = null;
  };
  return {
    from, to, width, labelWidth, chartWidth, isWhole: shown === null, zoom, reset: showAll,
    x: (time) => labelWidth + ((time - from) / (to - from)) * chartWidth,
    handlers: {
      onKeyDown(event) {
        const action = keys[event.key];
        if (!action) return;
        event.preventDefault();
        action();
      },
      onPointerDown(event) {
        drag.current = { x: event.clientX, from, to };
      },
      onPointerMove(event) {
        const dragStart = drag.current;
        if (!dragStart || Math.abs(event.clientX - dragStart.x) < DRAG_THRESHOLD_PX) return;
        (event.currentTarget as Element).setPointerCapture(event.pointerId);
        const offset = ((dragStart.x - event.clientX) / chartWidth) * (dragStart.to - dragStart.from);
        setShown([dragStart.from + offset, dragStart.to + offset]);
      },
      onPointerUp: endDrag,
      onPointerCancel: endDrag,
    },
  };
}
