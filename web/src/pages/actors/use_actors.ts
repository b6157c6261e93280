/** The live actors, kept up to date by the server, and the recent depths of their mailboxes. */

import { useEffect, useRef, useState } from "preact/hooks";
import { followList } from "../../api/list_stream";
import type { Actor } from "../../api/types";

/** The interval between two samples of the mailbox depths. */
const SAMPLE_INTERVAL_MS = 1_000;
/** The number of samples kept per actor. */
const SAMPLES_MAX = 60;

/** The live actors, their recent mailbox depths by path, and the state of the stream. */
export interface Actors {
  actors: Actor[];
  depths: Map<string, number[]>;
  state: "loading" | "live" | "lost";
}

/** Follows the live actors while the component is mounted. */
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
