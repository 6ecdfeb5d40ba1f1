// A pause for a server that fails.

/**
 * Opens after `failures` in a row, for `seconds`; then one request probes the server. A failure is a connection that
 * breaks or a status of 500 and above. A 429 is not a failure: the server is well, and says when to come back.
 */
export class Breaker {
  #inARow = 0;
  #openedAt: number | undefined;
  #probe: object | undefined;

  constructor(
    readonly failures = 5,
    readonly seconds = 60,
  ) {
    if (!(failures >= 1) || !(seconds > 0 && seconds < Infinity)) {
      throw new RangeError(`${failures} failures, ${seconds} s: use at least 1, and more than 0 s`);
    }
  }

  /** Seconds until a request may be sent; 0 if it may be sent now. */
  delay(now: number): number {
    if (this.#openedAt === undefined) return 0;
    const left = this.#openedAt + this.seconds - now;
    return left > 0 ? left : this.#probe !== undefined ? 1 : 0;
  }

  /** A request was sent: the probe, if the breaker is open. */
  sent(request: object): void {
    if (this.#openedAt !== undefined) this.#probe = request;
  }

  /** How that request ended. While the breaker is open, the probe alone counts. */
  cameBack(request: object, failed: boolean, now: number): void {
    if (this.#openedAt !== undefined && this.#probe !== request) return;
    this.#inARow = failed ? this.#inARow + 1 : 0;
    if (!failed) this.#openedAt = undefined;
    else if (this.#probe === request || this.#inARow >= this.failures) this.#openedAt = now;
    this.#probe = undefined;
  }

  /** That request was cancelled: if it was the probe, another may go. */
  givenUp(request: object): void {
    if (this.#probe === request) this.#probe = undefined;
  }
}
