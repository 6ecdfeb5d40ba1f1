// Carries a request through its `Call`, for transports.

import type { Call } from "./pacer.js";

/** Sleeps for this time in seconds, or rejects with the signal's reason. */
export type Sleep = (seconds: number, signal?: AbortSignal) => Promise<void>;

/** The longest that `setTimeout` can wait. */
const TIMER_MAX_MS = 2 ** 31 - 1;

/** `setTimeout` as a promise. A wait that is longer than a timer can be ends early; whoever sleeps looks again. */
export const sleep: Sleep = (seconds, signal) =>
  new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    // Timers fire up to a millisecond early, and then there is one more look.
    const timer = setTimeout(
      () => {
        signal?.removeEventListener("abort", stop);
        resolve();
      },
      Math.min(Math.ceil(seconds * 1000), TIMER_MAX_MS),
    );
    signal?.addEventListener("abort", stop, { once: true });
  });

/** What `carry` needs of a request. */
export interface Carried<Answer> {
  readonly send: () => Promise<Answer>;
  /** Status and header fields of a response. */
  readonly read: (answer: Answer) => readonly [number, Iterable<readonly [string, string]>];
  /** Ends a response that is not handed on. */
  readonly discard: (answer: Answer) => unknown;
  readonly sleep?: Sleep;
  readonly signal?: AbortSignal | undefined;
  /** When the last wait has to be over, on the pacer's clock. */
  readonly latest?: number;
}

/** Waits, sends, and sends again what was refused. */
export async function carry<Answer>(call: Call, carried: Carried<Answer>): Promise<Answer> {
  const { signal } = carried;
  try {
    // Ends: `answered` is true for `retries` refusals at most, and each wait for `maxWait` at most.
    for (;;) {
      for (let delay = call.delay(carried.latest); delay > 0; delay = call.delay(carried.latest)) {
        await (carried.sleep ?? sleep)(delay, signal);
      }
      const answer = await carried.send();
      if (!call.answered(...carried.read(answer))) return answer;
      await carried.discard(answer);
    }
  } catch (error) {
    // A caller who gives up says nothing of the server.
    if (!signal?.aborted) call.failed();
    throw error;
  } finally {
    call.close();
  }
}
