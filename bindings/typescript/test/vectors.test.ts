// The vectors of `tests/vectors/client`: the Python client runs the same. Run from the package's directory.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { type Call, CircuitOpen, GENTLE, Pacer, RateLimited, read, type TryLater } from "../src/index.js";

type Json = Record<string, unknown>;
type Step = Json & { headers?: Record<string, string> };

const START = 1_800_000_000;

function cases(name: string): Json[] {
  const file = JSON.parse(readFileSync(`../../tests/vectors/client/${name}`, "utf8")) as { cases: Json[] };
  assert(file.cases.length > 30);
  return file.cases;
}

/** Fails unless two numbers agree, or both are absent. */
function agree(found: unknown, expected: unknown, what: string): void {
  if (typeof found === "number" && typeof expected === "number") {
    assert(Math.abs(found - expected) < 1e-4, `${what}: ${found}, and ${expected} was expected`);
  } else {
    assert.equal(found ?? null, expected ?? null, what);
  }
}

function onlyHas(found: Json, fields: string): void {
  for (const field of Object.keys(found)) assert(fields.split(" ").includes(field), `${field} is not defined`);
}

for (const vector of cases("headers.json")) {
  test(`headers: ${vector["name"]}`, () => {
    onlyHas(vector, "name now headers quotas retry_after is_used_up");
    const limits = read(vector["headers"] as [string, string][], (vector["now"] as number | undefined) ?? START);
    agree(limits.retryAfter, vector["retry_after"], "retry_after");
    assert.equal(limits.isUsedUp, vector["is_used_up"] ?? false);
    const expected = vector["quotas"] as Json[];
    assert.deepEqual(
      limits.quotas.map((quota) => quota.name),
      expected.map((quota) => quota["name"]),
    );
    limits.quotas.forEach((quota, at) => {
      const wanted = expected[at]!;
      onlyHas(wanted, "name remaining limit window more_in counts_requests");
      agree(quota.remaining, wanted["remaining"], "remaining");
      agree(quota.limit, wanted["limit"], "limit");
      agree(quota.window, wanted["window"], "window");
      agree(quota.moreIn, wanted["more_in"], "more_in");
      assert.equal(quota.countsRequests, wanted["counts_requests"] ?? true);
    });
  });
}

class Run {
  now = 0;
  readonly calls = new Map<string, Call>();
  readonly pacer: Pacer;

  constructor(options: Json) {
    onlyHas(options, "max_wait retries uniform gentle");
    this.pacer = new Pacer({
      clock: () => this.now,
      unixClock: () => START + this.now,
      uniform: () => (options["uniform"] as number | undefined) ?? 0,
      maxWait: (options["max_wait"] as number | undefined) ?? 60,
      retries: (options["retries"] as number | undefined) ?? 5,
      waits: options["gentle"] ? GENTLE : {},
    });
  }

  step(step: Step): void {
    this.now = (step["at"] as number | undefined) ?? this.now;
    if (step["ask"] !== undefined) return this.ask(step);
    const of = (field: string) => this.calls.get(step[field] as string)!;
    if (step["answer"] !== undefined) {
      onlyHas(step, "at answer status headers again");
      const again = of("answer").answered(step["status"] as number, Object.entries(step.headers!));
      assert.equal(again, step["again"], "again");
    } else if (step["fail"] !== undefined) {
      onlyHas(step, "at fail");
      of("fail").failed();
    } else {
      onlyHas(step, "at close");
      of("close").close();
    }
  }

  ask(step: Step): void {
    onlyHas(step, "at ask method route may_repeat within delay raises retry_after");
    const name = step["ask"] as string;
    const { method = "GET", route = "", may_repeat: mayRepeat = true } = step as Json;
    const options = { method, route, mayRepeat } as { method: string; route: string; mayRepeat: boolean };
    const call = this.calls.get(name) ?? this.pacer.call(options);
    this.calls.set(name, call);
    const latest = this.now + ((step["within"] as number | undefined) ?? Infinity);
    if (step["raises"] === undefined) return agree(call.delay(latest), step["delay"], "delay");
    const kind = step["raises"] === "RateLimited" ? RateLimited : CircuitOpen;
    assert.throws(
      () => call.delay(latest),
      (error: TryLater) => {
        agree(error.retryAfter, step["retry_after"], "retry_after");
        agree(error.retryAt, START + this.now + error.retryAfter, "retry_at");
        return error instanceof kind && error.name === step["raises"];
      },
    );
    call.close();
  }
}

for (const vector of cases("paces.json")) {
  test(`paces: ${vector["name"]}`, () => {
    onlyHas(vector, "name options steps");
    const run = new Run((vector["options"] as Json | undefined) ?? {});
    (vector["steps"] as Step[]).forEach((step, at) => {
      try {
        run.step(step);
      } catch (error) {
        throw new Error(`step ${at + 1}: ${JSON.stringify(step)}`, { cause: error });
      }
    });
  });
}
