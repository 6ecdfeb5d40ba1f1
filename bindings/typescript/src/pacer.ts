// A client's pace: when the next request may be sent.
//
// `Pacer` keeps what all requests of one agent to one server have in common, and `Call` is one request. Neither sends,
// sleeps or starts anything: a transport asks `Call.delay`, sleeps that long, asks again, sends, and reports what came
// back. So `fetch` and tests on a clock of their own share these rules:
//
// - Until the first response one request goes alone, and the others wait for what it learns.
// - Requests queue for the tokens that the server has left, and go when theirs is there.
// - A refusal makes all of them wait, once: as long as the server says, else exponentially.

import { Breaker } from "./breaker.js";
import { CircuitOpen, RateLimited } from "./errors.js";
import { type Limits, read } from "./headers.js";
import { Mirror } from "./mirror.js";
import { complete, grown, shrunk, type Waits } from "./waits.js";

/** Seconds after which a request that waits for another's response looks again. */
const LOOK_AGAIN = 0.02;
/** Seconds after which the next request goes, even if the one that went alone has no response yet. */
const ALONE_MAX = 5;
const ROUTES_MAX = 1024;
const IDEMPOTENT = new Set(["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"]);

/** How a pacer behaves. All times are seconds. */
export interface PacerOptions {
  /** How long to wait where the server does not say. */
  readonly waits?: Partial<Waits>;
  /** The longest wait: 60. A longer one rejects with `RateLimited`. */
  readonly maxWait?: number;
  /** How often a refused request is sent again: 5 times. */
  readonly retries?: number;
  /** When to give a server that fails a pause: after 5 failures in a row, for 60 s. */
  readonly breaker?: { readonly failures?: number; readonly seconds?: number };
  /** Stands in for the time, in seconds since any origin. */
  readonly clock?: () => number;
  /** Stands in for the Unix time. */
  readonly unixClock?: () => number;
  /** Stands in for `Math.random`. */
  readonly uniform?: () => number;
}

/** What is known of a request before it is sent. */
export interface CallOptions {
  /** GET. */
  readonly method?: string;
  /** What its limits depend on, such as its path. */
  readonly route?: string;
  /** False for a body that cannot be sent twice: a refusal is handed on. */
  readonly mayRepeat?: boolean;
}

/** The pace of one agent at one server. */
export class Pacer {
  readonly #waits: Waits;
  readonly #maxWait: number;
  readonly #retries: number;
  readonly #breaker: Breaker;
  readonly #clock: () => number;
  readonly #unixClock: () => number;
  readonly #uniform: () => number;
  readonly #mirrors = new Map<string, Mirror>();
  readonly #routes = new Map<string, readonly string[]>();
  #names: readonly string[] = [];
  readonly #queue: Call[] = [];
  #inFlight = 0;
  #answered = 0;
  #alone = true;
  #sentAt = -Infinity;
  #refusedAt = -Infinity;
  #waitUntil = -Infinity;
  #askedUntil = -Infinity;
  #spacedUntil = -Infinity;
  #wait: number;

  constructor(options: PacerOptions = {}) {
    const { maxWait = 60, retries = 5 } = options;
    if (!(maxWait >= 0) || !(retries >= 0)) {
      throw new RangeError(`maxWait is ${maxWait} and retries ${retries}: use 0 or more`);
    }
    this.#waits = complete(options.waits ?? {});
    this.#maxWait = maxWait;
    this.#retries = retries;
    this.#breaker = new Breaker(options.breaker?.failures, options.breaker?.seconds);
    this.#clock = options.clock ?? (() => performance.now() / 1000);
    this.#unixClock = options.unixClock ?? (() => Date.now() / 1000);
    this.#uniform = options.uniform ?? Math.random;
    this.#wait = this.#waits.first;
  }

  /** A request. */
  call(options: CallOptions = {}): Call {
    return new Call(this, options);
  }

  /** This one, whatever the server and the credential: `Pacers` tells them apart. */
  of(_origin: string, _headers: Headers): Pacer {
    return this;
  }

  /** The time on its clock, in seconds. */
  now(): number {
    return this.#clock();
  }

  /** Whether no request is on its way or waits. */
  get isIdle(): boolean {
    return this.#inFlight === 0 && this.#queue.length === 0;
  }

  // --- What `Call` does.

  /** @internal */
  delay(call: Call, latest: number): number {
    const now = this.#clock();
    if (!this.#queue.includes(call)) this.#queue.push(call);
    const openFor = this.#breaker.delay(now);
    if (openFor > 0) throw new CircuitOpen("the server keeps failing", openFor, this.#unixClock() + openFor);
    if (now < this.#waitUntil) {
      this.#allowWait(Math.max(0, this.#askedUntil - now), now, latest);
      return this.#waitUntil - now;
    }
    const delay = this.#tokenIn(call, now);
    if (delay > 0) {
      this.#allowWait(delay, now, latest);
      return delay;
    }
    this.leave(call);
    const taken = this.#of(call);
    for (const mirror of taken) mirror.taken(now, this.#inFlight);
    call.sent = { at: now, taken, answeredBefore: this.#answered };
    this.#inFlight += 1;
    this.#sentAt = now;
    this.#spacedUntil = now + this.#waits.spacing;
    this.#breaker.sent(call);
    return 0;
  }

  /** Seconds until the request may be sent, or should look again. */
  #tokenIn(call: Call, now: number): number {
    const isAlone = this.#inFlight === 0 || now - this.#sentAt >= ALONE_MAX;
    let longest = Math.max(0, this.#spacedUntil - now);
    if (this.#alone && !isAlone) longest = Math.max(longest, LOOK_AGAIN);
    const place = this.#queue.indexOf(call);
    for (const mirror of this.#of(call)) {
      const delay = mirror.delay(place, now, this.#inFlight);
      longest = Math.max(longest, delay ?? (isAlone ? 0 : LOOK_AGAIN));
    }
    return longest;
  }

  #allowWait(wait: number, now: number, latest: number): void {
    if (wait > this.#maxWait) {
      throw new RateLimited(`the wait is longer than maxWait, ${this.#maxWait} s`, wait, this.#unixClock() + wait);
    }
    if (now + wait > latest) {
      throw new RateLimited("the wait ends after the deadline", wait, this.#unixClock() + wait);
    }
  }

  #of(call: Call): Mirror[] {
    const names = this.#routes.get(call.route) ?? this.#names;
    return names.map((name) => this.#mirrors.get(name)).filter((mirror) => mirror !== undefined);
  }

  /** @internal Learns from a response. Returns whether to send the request again. */
  cameBack(call: Call, sent: Sent, status: number, headers: Iterable<readonly [string, string]>): boolean {
    const [now, limits] = [this.#clock(), read(headers, this.#unixClock())];
    this.#landed(sent, now);
    const others = this.#inFlight + this.#answered - 1 - sent.answeredBefore;
    const heard = new Set<Mirror>();
    for (const quota of limits.quotas) {
      const mirror = this.#mirrors.get(quota.name) ?? new Mirror();
      this.#mirrors.set(quota.name, mirror);
      heard.add(mirror);
      mirror.heard(quota, now, now - sent.at, others, this.#inFlight);
    }
    for (const mirror of heard.size > 0 ? sent.taken : []) if (!heard.has(mirror)) mirror.givenBack();
    if (status < 500) this.#remember(call, limits.quotas.map((quota) => quota.name));
    this.#breaker.cameBack(call, status >= 500, now);
    if (!isRefusal(status, limits)) {
      if (status < 500 && sent.at > this.#refusedAt) {
        this.#wait = shrunk(this.#waits, this.#wait);
        this.#spacedUntil = now + this.#waits.spacing;
      }
      this.#alone = false;
      return false;
    }
    // Requests that were on their way when the first was refused belong to the same moment.
    let ownWait = 0;
    if (sent.at > this.#refusedAt) {
      ownWait = this.#wait;
      this.#wait = grown(this.#waits, this.#wait);
      this.#refusedAt = now;
    }
    const wait = asked(limits) || ownWait;
    this.#askedUntil = Math.max(this.#askedUntil, now + wait);
    this.#waitUntil = Math.max(this.#waitUntil, now + wait * (1 + this.#waits.jitter * this.#uniform()));
    // What is left after that wait is not known: one request goes first.
    this.#alone = true;
    const notDone = status === 403 || status === 429 || IDEMPOTENT.has(call.method);
    return notDone && call.mayRepeat && call.refusals <= this.#retries;
  }

  /** @internal */
  failed(call: Call, sent: Sent): void {
    const now = this.#clock();
    this.#landed(sent, now);
    this.#breaker.cameBack(call, true, now);
  }

  /** @internal */
  givenUp(call: Call, sent: Sent): void {
    this.#landed(sent, this.#clock());
    this.#breaker.givenUp(call);
  }

  /** @internal */
  leave(call: Call): void {
    const place = this.#queue.indexOf(call);
    if (place >= 0) this.#queue.splice(place, 1);
  }

  #landed(sent: Sent, now: number): void {
    for (const mirror of sent.taken) mirror.refill(now, this.#inFlight);
    this.#inFlight -= 1;
    this.#answered += 1;
  }

  #remember(call: Call, names: readonly string[]): void {
    // No server has as many limits; this one makes up names.
    if (this.#mirrors.size > ROUTES_MAX) this.#mirrors.clear();
    this.#names = names;
    this.#routes.delete(call.route);
    this.#routes.set(call.route, names);
    if (this.#routes.size > ROUTES_MAX) this.#routes.delete(this.#routes.keys().next().value!);
  }
}

/** @internal What a pacer keeps of a request that is on its way. */
export interface Sent {
  readonly at: number;
  readonly taken: readonly Mirror[];
  readonly answeredBefore: number;
}

/** One request: when to send it, and whether to send it again. `carry` shows how it is used. */
export class Call {
  readonly method: string;
  readonly route: string;
  readonly mayRepeat: boolean;
  /** @internal */
  sent: Sent | undefined;
  /** @internal */
  refusals = 0;
  readonly #pacer: Pacer;

  constructor(pacer: Pacer, options: CallOptions) {
    this.#pacer = pacer;
    this.method = (options.method ?? "GET").toUpperCase();
    this.route = options.route ?? "";
    this.mayRepeat = options.mayRepeat ?? true;
  }

  /**
   * Seconds to sleep before asking again; 0 if the request has to be sent now. Throws `RateLimited` if the wait is too
   * long or ends after `latest`, and `CircuitOpen` if the server keeps failing.
   */
  delay(latest = Infinity): number {
    return this.sent ? 0 : this.#pacer.delay(this, latest);
  }

  /** A response came. Returns whether to send the request again, once `delay` allows it. */
  answered(status: number, headers: Iterable<readonly [string, string]>): boolean {
    const sent = this.#back();
    if (!sent) return false;
    this.refusals += 1;
    return this.#pacer.cameBack(this, sent, status, headers);
  }

  /** No response came: the connection broke. */
  failed(): void {
    const sent = this.#back();
    if (sent) this.#pacer.failed(this, sent);
  }

  /** The request is over. If it was cancelled on its way, that is no failure of the server. */
  close(): void {
    const sent = this.#back();
    if (sent) this.#pacer.givenUp(this, sent);
    this.#pacer.leave(this);
  }

  #back(): Sent | undefined {
    const { sent } = this;
    this.sent = undefined;
    return sent;
  }
}

/** 429, and what GitHub and busy servers answer in its place. */
function isRefusal(status: number, limits: Limits): boolean {
  if (status === 403) return limits.retryAfter !== null || limits.isUsedUp;
  return status === 429 || ((status === 503 || status === 529) && limits.retryAfter !== null);
}

/** The wait that a refusal asks for; 0 if it does not say. */
function asked(limits: Limits): number {
  if (limits.retryAfter) return limits.retryAfter;
  const usedUp = limits.quotas.filter((quota) => quota.remaining < 1);
  return Math.max(0, ...usedUp.map((quota) => quota.moreIn ?? 0));
}
