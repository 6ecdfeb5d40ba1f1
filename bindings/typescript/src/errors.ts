// What a request that was not sent, or not sent again, rejects with.

/** The request may be sent later: `RateLimited` or `CircuitOpen`. */
export class TryLater extends Error {
  /** Seconds to wait, counted from when this was thrown. */
  readonly retryAfter: number;
  /** When that wait is over, in Unix seconds. */
  readonly retryAt: number;

  constructor(why: string, retryAfter: number, retryAt: number) {
    super(`${why}; try again in ${Number(retryAfter.toPrecision(3))} s`);
    this.name = new.target.name;
    this.retryAfter = retryAfter;
    this.retryAt = retryAt;
  }
}

/** The wait is longer than `maxWait`, or than the caller's deadline. */
export class RateLimited extends TryLater {}

/** The server has failed too often in a row, and gets a pause. */
export class CircuitOpen extends TryLater {}
