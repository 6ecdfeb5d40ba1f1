// A pacer for each server and credential.

import { Pacer } from "./pacer.js";

const CREDENTIALS = ["authorization", "x-api-key", "api-key", "x-agent-id"];

/**
 * Makes a `Pacer` for each server and credential, since each has limits of its own.
 *
 * The credential is what stands in `Authorization`, `X-Api-Key`, `Api-Key` and `X-Agent-Id`. Beyond `pacersMax` the one
 * that was used least recently is forgotten.
 */
export class Pacers {
  readonly #pacers = new Map<string, Pacer>();

  constructor(
    readonly make: () => Pacer = () => new Pacer(),
    readonly pacersMax = 1024,
  ) {
    if (!(pacersMax >= 1)) throw new RangeError(`pacersMax is ${pacersMax}: use 1 or more`);
  }

  /** The pacer of requests to this server with these header fields. */
  of(origin: string, headers: Headers): Pacer {
    const key = [origin, ...CREDENTIALS.map((name) => headers.get(name) ?? "")].join("\n");
    const pacer = this.#pacers.get(key) ?? this.make();
    // A Map keeps the order of insertion: the last is the one that was used last.
    this.#pacers.delete(key);
    this.#pacers.set(key, pacer);
    if (this.#pacers.size > this.pacersMax) this.#forgetOne(key);
    return pacer;
  }

  /** One that is in use stays: its requests would find another, and go past its wait. */
  #forgetOne(asked: string): void {
    for (const [key, pacer] of this.#pacers) {
      if (pacer.isIdle && key !== asked) {
        this.#pacers.delete(key);
        return;
      }
    }
  }
}
