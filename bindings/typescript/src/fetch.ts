// A `fetch` that keeps to its limits.

import { carry, type Sleep } from "./carry.js";
import type { Pacer } from "./pacer.js";
import { Pacers } from "./pacers.js";

/** What `fetch` takes, and a deadline. */
export interface PacedInit extends RequestInit {
  /** Seconds from now after which no wait may end: it rejects with `RateLimited` instead. */
  readonly deadline?: number;
}

/** A `fetch` that paces its requests. */
export type PacedFetch = (input: RequestInfo | URL, init?: PacedInit) => Promise<Response>;

/** Where `pacedFetch` gets its parts. */
export interface PacedFetchOptions {
  /** One pacer for all requests, or one for each server and credential: the default. */
  readonly pacer?: Pacer | Pacers;
  /** What sends: `globalThis.fetch`. */
  readonly fetch?: typeof globalThis.fetch;
  /** Stands in for `setTimeout`. */
  readonly sleep?: Sleep;
}

/**
 * Wraps `fetch`: each request is sent when its limits allow it, and again if it was refused, unless its body is a
 * stream.
 *
 * ```ts
 * const fetch = pacedFetch();
 * const response = await fetch("https://api.example.com/tasks", { deadline: 30 });
 * ```
 */
export function pacedFetch(options: PacedFetchOptions = {}): PacedFetch {
  const pacers = options.pacer ?? new Pacers();
  const inner = options.fetch ?? ((input, init) => globalThis.fetch(input, init));
  return async (input, { deadline, ...init } = {}) => {
    const request = typeof input === "object" && "url" in input ? input : undefined;
    const url = new URL(request?.url ?? input.toString(), globalThis.location?.href);
    const headers = new Headers(init.headers ?? request?.headers);
    const pacer = pacers.of(url.origin, headers);
    const method = init.method ?? request?.method ?? "GET";
    // A stream is read once, and the body of a Request is one.
    const body: unknown = init.body ?? request?.body;
    const isStream = typeof body === "object" && body !== null && ("getReader" in body || Symbol.asyncIterator in body);
    const call = pacer.call({ method, route: `${method} ${url.pathname}`, mayRepeat: !isStream });
    return carry(call, {
      send: () => inner(input, init),
      read: (response) => [response.status, response.headers],
      discard: (response) => response.body?.cancel(),
      signal: init.signal ?? request?.signal,
      ...(options.sleep && { sleep: options.sleep }),
      ...(deadline !== undefined && { latest: pacer.now() + deadline }),
    });
  };
}
