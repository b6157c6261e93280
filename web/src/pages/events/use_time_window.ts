/** The part of a run that is looked at: zoomed and moved by buttons, wheel, drag and keys. */

import type { RefObject } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

/** The shortest stretch that can be looked at, in milliseconds. */
export const STRETCH_MIN = 5;
/** Pixels that a pointer moves before it is a drag. */
const DRAG_MIN = 3;

export interface TimeWindow {
  from: number;
  to: number;
  /** Pixels of the box, of the names at its left, and of what is beside them. */
  width: number;
  labels: number;
  chartWidth: number;
  isWhole: boolean;
  x: (at: number) => number;
  zoom: (by: number, around?: number) => void;
  reset: () => void;
  handlers: {
    onKeyDown: (event: KeyboardEvent) => void;
    onPointerDown: (event: PointerEvent) => void;
    onPointerMove: (event: PointerEvent) => void;
    onPointerUp: () => void;
    onPointerCancel: () => void;
  };
}

export function useTimeWindow(box: RefObject<HTMLDivElement | null>, start: number, end: number): TimeWindow {
  const [shown, setShown] = useState<[number, number] | null>(null);
  const [width, setWidth] = useState(800);
  const drag = useRef<{ x: number; from: number; to: number } | null>(null);
  const [from, to] = shown ?? [start, end];
  const labels = width < 560 ? 96 : 168;
  const inside = Math.max(100, width - labels);
  const zoom = (by: number, around = (from + to) / 2) => {
    const stretch = Math.min(Math.max((to - from) * by, STRETCH_MIN), (end - start) * 1.2);
    const first = around - ((around - from) / (to - from)) * stretch;
    setShown([first, first + stretch]);
  };
  const move = (by: number) => setShown([from + by, to + by]);
  const whole = () => setShown(null);
  useEffect(() => {
    const element = box.current!;
    const watch = new ResizeObserver(() => setWidth(element.clientWidth));
    watch.observe(element);
    return () => watch.disconnect();
  }, []);
  useEffect(() => {
    const element = box.current!;
    const wheel = (event: WheelEvent) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const pixels = event.clientX - element.getBoundingClientRect().left - labels;
      zoom(event.deltaY > 0 ? 1.25 : 0.8, from + (pixels / inside) * (to - from));
    };
    element.addEventListener("wheel", wheel, { passive: false });
    return () => element.removeEventListener("wheel", wheel);
  });
  const step = (to - from) * 0.2;
  const keys: Record<string, () => void> = {
    ArrowLeft: () => move(-step), ArrowRight: () => move(step), "+": () => zoom(0.7), "=": () => zoom(0.7), "-": () => zoom(1.4), "0": whole,
  };
  const letGo = () => {
    drag.current = null;
  };
  return {
    from, to, width, labels, chartWidth: inside, isWhole: shown === null, zoom, reset: whole,
    x: (at) => labels + ((at - from) / (to - from)) * inside,
    handlers: {
      onKeyDown(event) {
        const act = keys[event.key];
        if (!act) return;
        event.preventDefault();
        act();
      },
      onPointerDown(event) {
        drag.current = { x: event.clientX, from, to };
      },
      onPointerMove(event) {
        const begun = drag.current;
        if (!begun || Math.abs(event.clientX - begun.x) < DRAG_MIN) return;
        (event.currentTarget as Element).setPointerCapture(event.pointerId);
        const by = ((begun.x - event.clientX) / inside) * (begun.to - begun.from);
        setShown([begun.from + by, begun.to + by]);
      },
      onPointerUp: letGo,
      onPointerCancel: letGo,
    },
  };
}
