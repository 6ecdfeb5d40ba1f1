/**
 * A client that keeps to its limits: it paces itself before the first 429, and waits as long as it is asked to.
 *
 * @packageDocumentation
 */

export { Breaker } from "./breaker.js";
export { carry, sleep, type Carried, type Sleep } from "./carry.js";
export { CircuitOpen, RateLimited, TryLater } from "./errors.js";
export { pacedFetch, type PacedFetch, type PacedFetchOptions, type PacedInit } from "./fetch.js";
export { read, type Limits, type Quota } from "./headers.js";
export { Call, Pacer, type CallOptions, type PacerOptions } from "./pacer.js";
export { Pacers } from "./pacers.js";
export { GENTLE, STANDARD, type Waits } from "./waits.js";
