/**
 * A list that the server keeps up to date over server-sent events: first every item, then the changes.
 * The connection is closed while the page is hidden, because a browser allows few connections per host.
 */

import { parseJson } from "./json";

/** The items that were added or changed, and the ids of the items that were removed. */
export interface ListChange<T> {
  changed: T[];
  gone: string[];
}

/** The callbacks of `followList`. */
export interface ListListener<T> {
  /** The stream was opened; the server sends every item again. */
  onReset(): void;
  onChange(change: ListChange<T>): void;
  /** The stream was lost; it is reopened automatically. */
  onLost(): void;
}

/**
 * The delay before the stream is reopened after an error response. Browsers do not reconnect then.
 */
const REOPEN_DELAY_MS = 5_000;

/** Follows the list at `path`. Returns a function that stops following it. */
export function followList<T>(path: string, listener: ListListener<T>): () => void {
  let source: EventSource | null = null;
  let timer = 0;
  const open = () => {
    if (source || document.visibilityState === "hidden") return;
    source = new EventSource(path);
    source.onopen = () => listener.onReset();
    source.onmessage = (message) => {
      const { changed = [], gone = [] } = parseJson(String(message.data)) as Partial<ListChange<T>>;
      listener.onChange({ changed, gone });
    };
    source.onerror = () => {
      listener.onLost();
      if (source?.readyState !== EventSource.CLOSED) return;
      close();
      timer = window.setTimeout(open, REOPEN_DELAY_MS);
    };
  };
  const close = () => {
    clearTimeout(timer);
    source?.close();
    source = null;
  };
  const handleVisibilityChange = () => (document.visibilityState === "hidden" ? close() : open());
  document.addEventListener("visibilitychange", handleVisibilityChange);
  open();
  return () => {
    document.removeEventListener("visibilitychange", handleVisibilityChange);
    close();
  };
}
