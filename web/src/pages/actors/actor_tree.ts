/** Builds the tree of actors from their paths. Pure. */

import type { Actor } from "../../api/types";

/** A node of the tree: an actor, or a path without an actor of its own. */
export interface ActorPathNode {
  path: string;
  name: string;
  actor: Actor | null;
  children: ActorPathNode[];
  /** The number of actors in the subtree, including this one. */
  count: number;
  /** The numbers of waiting actors and of actors with a problem in the subtree. */
  waiting: number;
  troubled: number;
}

/** Returns the root nodes of the tree. */
export function buildTree(actors: Actor[]): ActorPathNode[] {
  const root = createNode("", "");
  for (const actor of actors) {
    let node = root;
    for (const name of actor.path.split("/").filter(Boolean)) {
      const path = `${node.path}/${name}`;
      let next = node.children.find((child) => child.path === path);
      if (!next) node.children.push((next = createNode(path, name)));
      node = next;
    }
    node.actor = actor;
  }
  root.children.forEach(updateCounts);
  return root.children;
}

const createNode = (path: string, name: string): ActorPathNode => ({ path, name, actor: null, children: [], count: 0, waiting: 0, troubled: 0 });

function updateCounts(node: ActorPathNode): void {
  node.children.forEach(updateCounts);
  const sum = (getCount: (child: ActorPathNode) => number) => node.children.reduce((total, child) => total + getCount(child), 0);
  node.count = (node.actor ? 1 : 0) + sum((child) => child.count);
  node.waiting = (node.actor?.waiting ? 1 : 0) + sum((child) => child.waiting);
  node.troubled = (node.actor && hasProblem(node.actor) ? 1 : 0) + sum((child) => child.troubled);
}

/** Returns true if the actor is parked, was restarted, or has failed a message. */
export function hasProblem(actor: Actor): boolean {
  return actor.restarts > 0 || actor.failed > 0 || actor.last_error !== null || actor.state === "parked";
}

/** Returns the nodes with a matching actor in their subtree. */
export function filterTree(nodes: ActorPathNode[], matches: (actor: Actor) => boolean): ActorPathNode[] {
  return nodes.flatMap((node) => {
    const children = filterTree(node.children, matches);
    const isMatch = node.actor !== null && matches(node.actor);
    return isMatch || children.length ? [{ ...node, children }] : [];
  });
}
