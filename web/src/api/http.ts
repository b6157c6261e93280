/** HTTP requests and their errors. The only module that calls `fetch`. */

import { parseJson, stringifyJson } from "./json";
import type { Json } from "./types";

/** An error response of the server. `status` is 0 if the server is unreachable. */
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

  /** True if this server version does not have the resource. */
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

/** Converts any thrown value to a `Problem`. */
export function toProblem(error: unknown): Problem {
  if (error instanceof Problem) return error;
  return new Problem(0, "internal", error instanceof Error ? error.message : String(error));
}

let signedOutListener: (problem: Problem) => void = () => undefined;

/** Sets the listener that is called for each response with status 401. */
export function onSignedOut(listener: (problem: Problem) => void): void {
  signedOutListener = listener;
}

type Query = Record<string, string | number | boolean | null | undefined>;

function buildUrl(path: string, query: Query): string {
  const pairs = Object.entries(query)
    .filter(([, value]) => value !== undefined && value !== null && value !== "")
    .map(([name, value]) => `${encodeURIComponent(name)}=${encodeURIComponent(String(value))}`);
  return pairs.length ? `${path}?${pairs.join("&")}` : path;
}

/** The time limit of a request, in milliseconds. */
const REQUEST_TIMEOUT_MS = 30_000;

async function request(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
  const headers: Record<string, string> = { accept: "application/json" };
  if (body !== undefined) headers["content-type"] = "application/json";
  const timeoutSignal = AbortSignal.timeout(REQUEST_TIMEOUT_MS);
  let response: Response;
  try {
    response = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : stringifyJson(body),
      signal: signal ? AbortSignal.any([signal, timeoutSignal]) : timeoutSignal,
      credentials: "same-origin",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(0, "unreachable", "The server is unreachable.");
  }
  if (response.ok) return response;
  const problemBody = (await parseBody(response).catch(() => null)) as Record<string, Json> | null;
  const problem = new Problem(
    response.status,
    String(problemBody?.code ?? "unknown"),
    String(problemBody?.detail ?? problemBody?.title ?? `The server responded with status ${response.status}.`),
    problemBody ?? {},
  );
  if (problem.isSignedOut) signedOutListener(problem);
  throw problem;
}

async function parseBody<T>(response: Response): Promise<T> {
  return parseJson(await response.text()) as T;
}

/** Sends a GET request and returns the JSON body. */
export async function getJson<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
  return parseBody<T>(await request("GET", buildUrl(path, query), undefined, signal));
}

/** Sends a GET request and returns the body as text. */
export async function getText(path: string, signal?: AbortSignal): Promise<string> {
  return (await request("GET", path, undefined, signal)).text();
}

/**
 * Sends a request with a JSON body. Returns the JSON body of the response, or null if it has none.
 */
export async function sendJson<T>(method: "POST" | "PUT" | "PATCH" | "DELETE", path: string, body?: unknown): Promise<T> {
  const response = await request(method, path, body);
  return response.status === 204 ? (null as T) : parseBody<T>(response);
}
