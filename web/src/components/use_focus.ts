/** Keyboard focus when the focused element disappears. */

import type { RefObject } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

/**
 * The minimum page width for a focus on the composer. On phones it would open the on-screen
 * keyboard.
 */
const KEYBOARD_FOCUS_MIN_WIDTH_PX = 760;

/**
 * Moves the focus when `container` is about to be removed (`isPresent` is false) and contains the focus:
 * to the next element that matches `siblingSelector` in the same pane or page, or else to the composer,
 * or else to the page.
 */
export function useFocusHandover(container: RefObject<HTMLElement | null>, siblingSelector: string, isPresent: boolean): void {
  const restoreFocus = useRef<(() => void) | null>(null);
  // During this render the element is still in the document.
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

/**
 * Focuses the element in `container` that matches `selector` if a change of `content` lost the
 * focus.
 */
export function useRestoreFocus(container: RefObject<HTMLElement | null>, selector: string, content: unknown): void {
  const previousContent = useRef(content);
  useLayoutEffect(() => {
    if (previousContent.current !== content && document.activeElement === document.body) container.current?.querySelector<HTMLElement>(selector)?.focus();
    previousContent.current = content;
  });
}
