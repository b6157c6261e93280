/** Where the page is: `#/room/part?name=value`. */

import { Store } from "./store";

export interface Route {
  page: string;
  part: string;
  query: Record<string, string>;
}

export function parse(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const [room = "", ...rest] = path.split("/");
  return { page: room || "chat", part: decode(rest.join("/")), query: Object.fromEntries(new URLSearchParams(query)) };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function routeUrl(room: string, part = "", query: Record<string, string | undefined> = {}): string {
  const said = Object.entries(query).filter((entry): entry is [string, string] => Boolean(entry[1]));
  const search = said.length ? `?${new URLSearchParams(said)}` : "";
  return `#/${room}${part ? `/${part}` : ""}${search}`;
}

export const route = new Store<Route>(parse(globalThis.location?.hash ?? ""));

export function navigate(to: string, replace = false): void {
  if (replace) {
    history.replaceState(null, "", to);
    route.set(parse(to));
  } else location.hash = to;
}

globalThis.addEventListener?.("hashchange", () => route.set(parse(location.hash)));
