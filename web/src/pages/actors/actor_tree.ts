/** Actors as a tree by their paths. Pure. */

import type { Actor } from "../../api/types";

export interface ActorNode {
  path: string;
  name: string;
  actor: Actor | null;
  children: ActorNode[];
  /** Actors in it, itself counted. */
  count: number;
  /** Some actor in it waits, or has failed. */
  waiting: number;
  troubled: number;
}

export function buildTree(actors: Actor[]): ActorNode[] {
  const root = branch("", "");
  for (const actor of actors) {
    let at = root;
    for (const name of actor.path.split("/").filter(Boolean)) {
      const path = `${at.path}/${name}`;
      let next = at.children.find((child) => child.path === path);
      if (!next) at.children.push((next = branch(path, name)));
      at = next;
    }
    at.actor = actor;
  }
  root.children.forEach(count);
  return root.children;
}

const branch = (path: string, name: string): ActorNode => ({ path, name, actor: null, children: [], count: 0, waiting: 0, troubled: 0 });

function count(one: ActorNode): void {
  one.children.forEach(count);
  const sum = (of: (child: ActorNode) => number) => one.children.reduce((total, child) => total + of(child), 0);
  one.count = (one.actor ? 1 : 0) + sum((child) => child.count);
  one.waiting = (one.actor?.waiting ? 1 : 0) + sum((child) => child.waiting);
  one.troubled = (one.actor && hasProblem(one.actor) ? 1 : 0) + sum((child) => child.troubled);
}

export function hasProblem(actor: Actor): boolean {
  return actor.restarts > 0 || actor.failed > 0 || actor.last_error !== null || actor.state === "parked";
}

/** The branches that hold an actor that is wanted, with what leads to it. */
export function filterTree(branches: ActorNode[], wanted: (actor: Actor) => boolean): ActorNode[] {
  return branches.flatMap((one) => {
    const children = filterTree(one.children, wanted);
    const own = one.actor !== null && wanted(one.actor);
    return own || children.length ? [{ ...one, children }] : [];
  });
}
