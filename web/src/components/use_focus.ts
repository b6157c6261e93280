/** The focus of something that goes, handed on to what one would look at next. */

import type { RefObject } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

/** Narrow pages are touched, and a keyboard that comes up by itself is in the way. */
const TYPED_ON_PX = 760;

/**
 * `box` is there while `isThere`. When it goes and has the focus, the next of its kind in the same pane
 * or page gets it; where none is left, the field where people write; else the page.
 */
export function useFocusHandover(box: RefObject<HTMLElement | null>, kind: string, isThere: boolean): void {
  const next = useRef<(() => void) | null>(null);
  // While it is drawn anew, what is about to go is still there.
  if (!isThere && box.current) next.current = findFocusTarget(box.current, kind);
  useLayoutEffect(() => {
    next.current?.();
    next.current = null;
  });
  useLayoutEffect(() => () => {
    if (box.current) findFocusTarget(box.current, kind)?.();
  }, []);
}

function findFocusTarget(box: HTMLElement, kind: string): (() => void) | null {
  if (!box.contains(document.activeElement)) return null;
  const home = box.closest(".pane") ?? document.getElementById("main");
  const others = [...(home?.querySelectorAll<HTMLElement>(kind) ?? [])].filter((one) => one !== box);
  const after = others.find((one) => box.compareDocumentPosition(one) & Node.DOCUMENT_POSITION_FOLLOWING) ?? others[others.length - 1];
  const field = innerWidth >= TYPED_ON_PX ? home?.querySelector<HTMLElement>(".composer textarea") : null;
  const found = after ?? field ?? home?.querySelector<HTMLElement>("[tabindex='0']");
  return () => found?.focus();
}

/** Gives the focus to what in `box` fits `selector` where it was lost because `shown` is another one now. */
export function useRestoreFocus(box: RefObject<HTMLElement | null>, selector: string, shown: unknown): void {
  const before = useRef(shown);
  useLayoutEffect(() => {
    if (before.current !== shown && document.activeElement === document.body) box.current?.querySelector<HTMLElement>(selector)?.focus();
    before.current = shown;
  });
}
