/** Requests, and what can go wrong with them. The one place that calls `fetch`. */

import type { Json } from "./types";

/** What the server says went wrong, or that it can't be reached (`status` 0). */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
    readonly more: Record<string, Json> = {},
  ) {
    super(detail);
    this.name = "Problem";
  }

  /** The server does not know the resource: a version without it. */
  get isMissing(): boolean {
    return (this.status === 404 && this.code === "not_found") || this.status === 405;
  }

  get isSignedOut(): boolean {
    return this.status === 401;
  }

  get isOffline(): boolean {
    return this.status === 0;
  }
}

export function toProblem(error: unknown): Problem {
  if (error instanceof Problem) return error;
  return new Problem(0, "internal", error instanceof Error ? error.message : String(error));
}

let signedOutListener: (problem: Problem) => void = () => undefined;

/** Tells of each answer that the server does not know who asks any more. */
export function onSignedOut(listener: (problem: Problem) => void): void {
  signedOutListener = listener;
}

type Query = Record<string, string | number | boolean | null | undefined>;

function buildUrl(path: string, query: Query): string {
  const said = Object.entries(query)
    .filter(([, value]) => value !== undefined && value !== null && value !== "")
    .map(([name, value]) => `${encodeURIComponent(name)}=${encodeURIComponent(String(value))}`);
  return said.length ? `${path}?${said.join("&")}` : path;
}

/** Milliseconds after which an answer is no longer waited for. */
const REQUEST_TIMEOUT_MS = 30_000;

async function request(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
  const headers: Record<string, string> = { accept: "application/json" };
  if (body !== undefined) headers["content-type"] = "application/json";
  const timeout = AbortSignal.timeout(REQUEST_TIMEOUT_MS);
  let answer: Response;
  try {
    answer = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
      credentials: "same-origin",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(0, "unreachable", "The server can’t be reached.");
  }
  if (answer.ok) return answer;
  const said = (await answer.json().catch(() => null)) as Record<string, Json> | null;
  const problem = new Problem(
    answer.status,
    String(said?.code ?? "unknown"),
    String(said?.detail ?? said?.title ?? `The server answered ${answer.status}.`),
    said ?? {},
  );
  if (problem.isSignedOut) signedOutListener(problem);
  throw problem;
}

export async function get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
  return (await request("GET", buildUrl(path, query), undefined, signal)).json() as Promise<T>;
}

export async function getText(path: string, signal?: AbortSignal): Promise<string> {
  return (await request("GET", path, undefined, signal)).text();
}

export async function send<T>(method: "POST" | "PATCH" | "DELETE", path: string, body?: unknown): Promise<T> {
  const answer = await request(method, path, body);
  return (answer.status === 204 ? null : answer.json()) as Promise<T>;
}
