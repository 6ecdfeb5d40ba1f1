// `pacedFetch` against a server on loopback; it sleeps on a clock of its own.

import assert from "node:assert/strict";
import { test } from "node:test";
import { CircuitOpen, Pacer, pacedFetch, Pacers, RateLimited, sleep } from "../src/index.js";
import { scripted, Time } from "./scripted.js";

function setUp() {
  const time = new Time();
  const pacer = time.pacer();
  return { time, pacer, fetch: pacedFetch({ pacer, sleep: time.sleep }) };
}

test("a refused POST is sent again with its body", async () => {
  const { time, pacer, fetch } = setUp();
  const refusals = [2, 3].map((wait) => [429, { "retry-after": `${wait}` }] as const);
  await scripted([...refusals, [200, {}, "yes"]], async (url, asked) => {
    const response = await fetch(`${url}/a`, { method: "POST", body: "body" });
    assert.deepEqual([response.status, await response.text()], [200, "yes"]);
    assert.deepEqual(time.slept, [2, 3]);
    assert.deepEqual(
      asked.map((request) => [request.method, request.url, request.body]),
      Array(3).fill(["POST", "/a", "body"]),
    );
  });
  assert(pacer.isIdle);
});

test("a body that is a stream is sent once", async () => {
  const { time, fetch } = setUp();
  await scripted([[429, { "retry-after": "2" }]], async (url, asked) => {
    const body = new Blob(["body"]).stream();
    const response = await fetch(url, { method: "POST", body, duplex: "half" } as RequestInit);
    assert.equal(response.status, 429);
    assert.deepEqual(time.slept, []);
    assert.equal((await fetch(url)).status, 200);
    assert.deepEqual(time.slept, [2], "the next request waits for what the first has learned");
    assert.deepEqual(asked.map((request) => request.body), ["body", ""]);
  });
});

test("a Request with a body is sent once, and one without it again", async () => {
  const { time, fetch } = setUp();
  await scripted([[429, { "retry-after": "2" }], [429, { "retry-after": "3" }]], async (url, asked) => {
    assert.equal((await fetch(new Request(url, { method: "POST", body: "body" }))).status, 429);
    assert.equal((await fetch(new Request(url, { headers: { "x-agent-id": "a" } }))).status, 200);
    assert.deepEqual(time.slept, [2, 3]);
    assert.deepEqual(asked.map((request) => request.headers["x-agent-id"]), [undefined, "a", "a"]);
  });
});

test("it waits for the tokens that headers announce", async () => {
  const { time, fetch } = setUp();
  const says = (left: number) => ({ ratelimit: `"x";r=${left};t=10`, "ratelimit-policy": '"x";q=2;w=20' });
  await scripted([[200, says(1)], [200, says(0)]], async (url) => {
    for (let sent = 0; sent < 3; sent += 1) assert.equal((await fetch(url)).status, 200);
    assert(Math.abs(time.now - 10) < 0.1, `${time.now}`);
  });
});

test("a day is not slept through", async () => {
  const { time, fetch } = setUp();
  await scripted([[429, { "retry-after": "86400" }]], async (url) => {
    await assert.rejects(fetch(url), (error) => error instanceof RateLimited && error.retryAfter === 86400);
    assert.deepEqual(time.slept, []);
  });
});

test("a deadline ends the wait before it begins", async () => {
  const { time, fetch } = setUp();
  await scripted([[429, { "retry-after": "10" }]], async (url) => {
    await assert.rejects(fetch(url, { deadline: 9 }), RateLimited);
    assert.deepEqual(time.slept, []);
    assert.equal((await fetch(url, { deadline: 10 })).status, 200);
    assert.deepEqual(time.slept, [10]);
  });
});

test("a server that fails gets a pause", async () => {
  const { time, pacer, fetch } = setUp();
  const statuses = [500, 0, 502, 0, 503];
  await scripted(statuses.map((status) => [status]), async (url, asked) => {
    for (const status of statuses) {
      const sent = fetch(url, { method: "POST", body: "body" });
      if (status === 0) await assert.rejects(sent, TypeError);
      else assert.equal((await sent).status, status);
    }
    await assert.rejects(fetch(url), CircuitOpen);
    assert.equal(asked.length, 5);
    time.now += 60;
    assert.equal((await fetch(url)).status, 200);
  });
  assert(pacer.isIdle);
});

test("a caller who gives up ends its wait, and is no failure of the server", async () => {
  const pacer = new Pacer({ breaker: { failures: 1 } });
  const fetch = pacedFetch({ pacer });
  await scripted([[200], [429, { "retry-after": "50" }]], async (url, asked) => {
    assert.equal((await fetch(url)).status, 200);
    const stop = new AbortController();
    const waiting = fetch(url, { signal: stop.signal });
    // Ends: the server refuses the second request.
    while (asked.length < 2 || !(await isWaiting(pacer))) await sleep(0.001);
    stop.abort(new Error("enough"));
    await assert.rejects(waiting, /enough/);
  });
  assert(pacer.isIdle);
  const call = pacer.call();
  assert(call.delay() > 40, "the breaker is closed, and the wait goes on");
  call.close();
});

/** Whether the refusal has arrived, so that a new request would wait. */
async function isWaiting(pacer: Pacer): Promise<boolean> {
  const call = pacer.call();
  try {
    return call.delay() > 1;
  } finally {
    call.close();
  }
}

test("parallel requests wait once, and one goes first", async () => {
  const { time, fetch } = setUp();
  await scripted([[200], [429, { "retry-after": "2" }], [429, { "retry-after": "2" }]], async (url, asked) => {
    await fetch(url);
    const statuses = await Promise.all([fetch(url), fetch(url)].map(async (sent) => (await sent).status));
    assert.deepEqual(statuses, [200, 200]);
    assert.equal(asked.length, 5);
    assert(time.now >= 2);
  });
});

test("each credential has a pacer", () => {
  const time = new Time();
  const pacers = new Pacers(() => time.pacer(), 2);
  const of = (origin: string, token = "") => pacers.of(origin, new Headers({ authorization: token }));
  const first = of("https://a", "1");
  assert.equal(of("https://a", "1"), first);
  assert.notEqual(of("https://a", "2"), first);
  const call = first.call();
  assert.equal(call.delay(), 0);
  for (const name of "bcdef") of(`https://${name}`);
  assert.equal(of("https://a", "1"), first, "it is in use");
  call.close();
  for (const name of "bcdef") of(`https://${name}`);
  assert.notEqual(of("https://a", "1"), first);
});

test("options out of range are refused", () => {
  for (const options of [
    { maxWait: -1 },
    { retries: NaN },
    { breaker: { failures: 0 } },
    { breaker: { seconds: 0 } },
    { waits: { first: 0 } },
    { waits: { factor: 0.5 } },
    { waits: { jitter: 2 } },
    { waits: { spacing: Infinity } },
  ]) {
    assert.throws(() => new Pacer(options), RangeError, JSON.stringify(options));
  }
});
