/** The live actors, as the server tells of their changes; and how full each mailbox was lately. */

import { useEffect, useRef, useState } from "preact/hooks";
import type { Actor } from "../../api/types";

/** Between two looks at the mailboxes. */
const LOOK_MS = 1_000;
/** Looks that are remembered. */
const LOOKS = 60;

export interface Actors {
  actors: Actor[];
  depths: Map<string, number[]>;
  state: "loading" | "live" | "lost";
}

interface Change {
  changed: Actor[];
  gone: string[];
}

export function useActors(): Actors {
  const [shown, setShown] = useState<Actors>({ actors: [], depths: new Map(), state: "loading" });
  const known = useRef(new Map<string, Actor>());
  const depths = useRef(new Map<string, number[]>());
  useEffect(() => {
    const source = new EventSource("/admin/actors");
    const show = (state: Actors["state"]) => {
      const actors = [...known.current.values()].sort((one, other) => (one.path < other.path ? -1 : 1));
      setShown({ actors, depths: depths.current, state });
    };
    // A stream that begins tells of all of them.
    source.onopen = () => known.current.clear();
    source.onmessage = (message) => {
      const { changed = [], gone = [] } = JSON.parse(String(message.data)) as Partial<Change>;
      for (const actor of changed) known.current.set(actor.path, actor);
      for (const path of gone) known.current.delete(path);
      show("live");
    };
    source.onerror = () => show("lost");
    const looking = setInterval(() => {
      const next = new Map<string, number[]>();
      for (const [path, actor] of known.current) next.set(path, [...(depths.current.get(path) ?? []), actor.mailbox_depth].slice(-LOOKS));
      depths.current = next;
      setShown((before) => ({ ...before, depths: next }));
    }, LOOK_MS);
    return () => {
      source.close();
      clearInterval(looking);
    };
  }, []);
  return shown;
}
