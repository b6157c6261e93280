/** The route in the URL fragment: `#/page/part?name=value`. */

import { Store } from "./store";

/** A parsed route. `part` is the rest of the path after the page name. */
export interface Route {
  page: string;
  part: string;
  query: Record<string, string>;
}

/** Parses a URL fragment. The default page is `chat`. */
export function parseRoute(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const [page = "", ...rest] = path.split("/");
  return { page: page || "chat", part: decodePart(rest.join("/")), query: Object.fromEntries(new URLSearchParams(query)) };
}

function decodePart(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Formats a route as a URL fragment. Empty query values are left out. */
export function routeUrl(page: string, part = "", query: Record<string, string | undefined> = {}): string {
  const entries = Object.entries(query).filter((entry): entry is [string, string] => Boolean(entry[1]));
  const search = entries.length ? `?${new URLSearchParams(entries)}` : "";
  return `#/${page}${part ? `/${part}` : ""}${search}`;
}

/** The current route. */
export const route = new Store<Route>(parseRoute(globalThis.location?.hash ?? ""));

/** Goes to a route. `replace` replaces the current history entry instead of adding one. */
export function navigate(url: string, replace = false): void {
  if (replace) {
    history.replaceState(null, "", url);
    route.set(parseRoute(url));
  } else location.hash = url;
}

globalThis.addEventListener?.("hashchange", () => route.set(parseRoute(location.hash)));
