/** The live actors, as the server tells of their changes; and how full each mailbox was lately. */

import { useEffect, useRef, useState } from "preact/hooks";
import { followList } from "../../api/list_stream";
import type { Actor } from "../../api/types";

/** Between two looks at the mailboxes. */
const SAMPLE_INTERVAL_MS = 1_000;
/** Looks that are remembered. */
const SAMPLES_MAX = 60;

export interface Actors {
  actors: Actor[];
  depths: Map<string, number[]>;
  state: "loading" | "live" | "lost";
}

export function useActors(): Actors {
  const [shown, setShown] = useState<Actors>({ actors: [], depths: new Map(), state: "loading" });
  const known = useRef(new Map<string, Actor>());
  const depths = useRef(new Map<string, number[]>());
  useEffect(() => {
    const publish = (state: Actors["state"]) => {
      const actors = [...known.current.values()].sort((a, b) => (a.path < b.path ? -1 : 1));
      setShown({ actors, depths: depths.current, state });
    };
    const unsubscribe = followList<Actor>("/admin/actors", {
      onReset: () => known.current.clear(),
      onChange({ changed, gone }) {
        for (const actor of changed) known.current.set(actor.path, actor);
        for (const path of gone) known.current.delete(path);
        publish("live");
      },
      onLost: () => publish("lost"),
    });
    const sampleTimer = setInterval(() => {
      const next = new Map<string, number[]>();
      for (const [path, actor] of known.current) next.set(path, [...(depths.current.get(path) ?? []), actor.mailbox_depth].slice(-SAMPLES_MAX));
      depths.current = next;
      setShown((before) => ({ ...before, depths: next }));
    }, SAMPLE_INTERVAL_MS);
    return () => {
      unsubscribe();
      clearInterval(sampleTimer);
    };
  }, []);
  return shown;
}
