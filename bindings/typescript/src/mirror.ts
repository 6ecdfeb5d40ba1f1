// What a client thinks is left of one quota.

import type { Quota } from "./headers.js";

/** Two clocks differ by less than this, and so does our pace from the server's. */
const DRIFT = 0.001;
/** What is lost when floats are added up. */
const DUST = 1e-9;

/**
 * A token bucket that follows the server's, and has at most as much left.
 *
 * A request takes its token here when it is sent, and there when it arrives, so on the way this one is ahead. A
 * response cannot say which of the requests on their way it has counted already: what is left lies between its number
 * less all of them, and its number. While our own count lies in between, it is the better one; else somebody else uses
 * the quota too, or requests cost more than one, and the lower bound takes its place.
 */
export class Mirror {
  #left = -Infinity;
  #at = 0;
  /** Tokens a second; 0 if they come back all at once, or nobody knows when. */
  #rate = 0;
  #limit: number | null = null;
  #moreAt: number | null = null;
  #counts = true;

  /**
   * A response has reported the quota. `others` is how many other requests the server may have counted after it wrote
   * this.
   */
  heard(quota: Quota, now: number, latency: number, others: number, inFlight: number): void {
    this.refill(now, inFlight);
    const { remaining, moreIn } = quota;
    let rate = quota.limit && quota.window ? quota.limit / quota.window : 0;
    // More than one token will come by then, so they come all at once.
    if (moreIn !== null && (moreIn - 1) * rate > 1) rate = 0;
    // Whole tokens are reported, and whole seconds, rounded up.
    const most = rate ? remaining + 1 + rate * latency : remaining;
    const least = rate && moreIn !== null ? Math.max(remaining, remaining + 1 - moreIn * rate) : remaining;
    if (!quota.countsRequests) this.#left = remaining;
    else if (!(least - others <= this.#left && this.#left <= most)) this.#left = least - others;
    this.#rate = rate * (1 - DRIFT);
    this.#limit = quota.limit;
    this.#counts = quota.countsRequests;
    this.#moreAt = rate || moreIn === null ? null : now + moreIn;
  }

  /** Adds what has come since the last call; until now `inFlight` requests were on their way. */
  refill(now: number, inFlight: number): void {
    const passed = Math.max(0, now - this.#at);
    this.#at = now;
    if (this.#rate && this.#limit !== null) {
      // What is on its way has still to be taken from the server's bucket, even from a full one.
      this.#left = Math.max(this.#left, Math.min(this.#limit - inFlight, this.#left + passed * this.#rate));
    } else if (this.#moreAt !== null && now >= this.#moreAt) {
      // One goes and sees how much it is.
      this.#left = Math.max(this.#left, 1);
      this.#moreAt = null;
    }
  }

  /** A request was sent. */
  taken(now: number, inFlight: number): void {
    this.refill(now, inFlight);
    if (this.#counts) this.#left -= 1;
  }

  /** That request turned out to count for other quotas. */
  givenBack(): void {
    if (this.#counts) this.#left += 1;
  }

  /**
   * Seconds until there is a token for the request at this place of the queue, from 0; `null` if nobody knows: one
   * request may go and see.
   */
  delay(place: number, now: number, inFlight: number): number | null {
    this.refill(now, inFlight);
    const needed = this.#counts ? place + 1 : 1;
    if (this.#left >= needed - DUST) return 0;
    if (this.#rate) return (needed - this.#left) / this.#rate;
    return this.#moreAt === null ? null : this.#moreAt - now;
  }
}
