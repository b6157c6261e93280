/**
 * A list that the server keeps up to date: all that is there, then what changes. Nothing is open while
 * the page can't be seen, because a browser has few connections for all of its pages.
 */

export interface ListChange<T> {
  changed: T[];
  gone: string[];
}

export interface ListListener<T> {
  /** The server is about to tell everything anew. */
  onReset(): void;
  onChange(change: ListChange<T>): void;
  /** It is away; it is asked again. */
  onLost(): void;
}

/** After a refusal, which browsers do not ask again after, it is asked again so much later. */
const REOPEN_DELAY_MS = 5_000;

/** Follows it until the answer is called. */
export function followList<T>(path: string, hearing: ListListener<T>): () => void {
  let source: EventSource | null = null;
  let timer = 0;
  const open = () => {
    if (source || document.visibilityState === "hidden") return;
    source = new EventSource(path);
    source.onopen = () => hearing.onReset();
    source.onmessage = (message) => {
      const { changed = [], gone = [] } = JSON.parse(String(message.data)) as Partial<ListChange<T>>;
      hearing.onChange({ changed, gone });
    };
    source.onerror = () => {
      hearing.onLost();
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
  const look = () => (document.visibilityState === "hidden" ? close() : open());
  document.addEventListener("visibilitychange", look);
  open();
  return () => {
    document.removeEventListener("visibilitychange", look);
    close();
  };
}
