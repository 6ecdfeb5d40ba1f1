// How long to wait where the server does not say.

/**
 * Exponential waits, with jitter. They count if a refusal has no usable `Retry-After`. Jitter is added to every wait,
 * also to one that the server asked for, and never taken off it.
 */
export interface Waits {
  /** Seconds to wait after the first refusal: 1. */
  readonly first: number;
  /** Each further refusal multiplies the wait by this: 2. */
  readonly factor: number;
  /** The longest wait, without its jitter: 300. A longer one that the server asks for is honoured. */
  readonly longest: number;
  /** At most this part of a wait is added to it, at random: 0.1. */
  readonly jitter: number;
  /** What a success leaves of the wait, never less than `first`: 0. */
  readonly afterSuccess: number;
  /** Seconds between one request and the next: 0. */
  readonly spacing: number;
}

export const STANDARD: Waits = { first: 1, factor: 2, longest: 300, jitter: 0.1, afterSuccess: 0, spacing: 0 };

/**
 * For a client in no hurry: waits of at most a minute, which successes shorten by a tenth each, and half a second
 * between requests.
 */
export const GENTLE: Waits = { ...STANDARD, longest: 60, afterSuccess: 0.9, spacing: 0.5 };

/** The waits with defaults for what is absent. Throws a RangeError for what makes no schedule. */
export function complete(some: Partial<Waits>): Waits {
  const waits = { ...STANDARD, ...some };
  const { first, factor, longest, jitter, afterSuccess, spacing } = waits;
  if (!(first > 0 && first <= longest && longest < Infinity)) {
    throw new RangeError(`first is ${first} and longest ${longest}: use 0 < first <= longest`);
  }
  if (!(factor >= 1 && factor < Infinity)) throw new RangeError(`factor is ${factor}: use 1 or more`);
  if (!(jitter >= 0 && jitter <= 1 && afterSuccess >= 0 && afterSuccess <= 1)) {
    throw new RangeError("jitter and afterSuccess are parts of a wait: use 0 to 1");
  }
  if (!(spacing >= 0 && spacing < Infinity)) throw new RangeError(`spacing is ${spacing}: use seconds, 0 or more`);
  return waits;
}

/** The wait after this one. */
export function grown(waits: Waits, wait: number): number {
  return Math.min(waits.longest, wait * waits.factor);
}

/** The wait after a success. */
export function shrunk(waits: Waits, wait: number): number {
  return Math.max(waits.first, wait * waits.afterSuccess);
}
