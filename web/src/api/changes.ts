/**
 * A list that the server keeps up to date: all that is there, then what changes. Nothing is open while
 * the page can't be seen, because a browser has few connections for all of its pages.
 */

export interface Change<T> {
  changed: T[];
  gone: string[];
}

export interface Hearing<T> {
  /** The server is about to tell everything anew. */
  begins(): void;
  hear(change: Change<T>): void;
  /** It is away; it is asked again. */
  lost(): void;
}

/** After a refusal, which browsers do not ask again after, it is asked again so much later. */
const REFUSED_MS = 5_000;

/** Follows it until the answer is called. */
export function follow<T>(path: string, hearing: Hearing<T>): () => void {
  let source: EventSource | null = null;
  let timer = 0;
  const open = () => {
    if (source || document.visibilityState === "hidden") return;
    source = new EventSource(path);
    source.onopen = () => hearing.begins();
    source.onmessage = (message) => {
      const { changed = [], gone = [] } = JSON.parse(String(message.data)) as Partial<Change<T>>;
      hearing.hear({ changed, gone });
    };
    source.onerror = () => {
      hearing.lost();
      if (source?.readyState !== EventSource.CLOSED) return;
      close();
      timer = window.setTimeout(open, REFUSED_MS);
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
