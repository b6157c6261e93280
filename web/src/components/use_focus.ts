/** The focus of something that goes, handed on to what one would look at next. */

import type { RefObject } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

/** Narrow pages are touched, and a keyboard that comes up by itself is in the way. */
const KEYBOARD_FOCUS_MIN_WIDTH_PX = 760;

/**
 * `box` is there while `isThere`. When it goes and has the focus, the next of its kind in the same pane
 * or page gets it; where none is left, the field where people write; else the page.
 */
export function useFocusHandover(container: RefObject<HTMLElement | null>, siblingSelector: string, isPresent: boolean): void {
  const restoreFocus = useRef<(() => void) | null>(null);
  // While it is drawn anew, what is about to go is still there.
  if (!isPresent && container.current) restoreFocus.current = findFocusTarget(container.current, siblingSelector);
  useLayoutEffect(() => {
    restoreFocus.current?.();
    restoreFocus.current = null;
  });
  useLayoutEffect(() => () => {
    if (container.current) findFocusTarget(container.current, siblingSelector)?.();
  }, []);
}

function findFocusTarget(container: HTMLElement, siblingSelector: string): (() => void) | null {
  if (!container.contains(document.activeElement)) return null;
  const scope = container.closest(".pane") ?? document.getElementById("main");
  const siblings = [...(scope?.querySelectorAll<HTMLElement>(siblingSelector) ?? [])].filter((sibling) => sibling !== container);
  const following = siblings.find((sibling) => container.compareDocumentPosition(sibling) & Node.DOCUMENT_POSITION_FOLLOWING) ?? siblings[siblings.length - 1];
  const composerField = innerWidth >= KEYBOARD_FOCUS_MIN_WIDTH_PX ? scope?.querySelector<HTMLElement>(".composer textarea") : null;
  const target = following ?? composerField ?? scope?.querySelector<HTMLElement>("[tabindex='0']");
  return () => target?.focus();
}

/** Gives the focus to what in `box` fits `selector` where it was lost because `shown` is another one now. */
export function useRestoreFocus(container: RefObject<HTMLElement | null>, selector: string, content: unknown): void {
  const previousContent = useRef(content);
  useLayoutEffect(() => {
    if (previousContent.current !== content && document.activeElement === document.body) container.current?.querySelector<HTMLElement>(selector)?.focus();
    previousContent.current = content;
  });
}
