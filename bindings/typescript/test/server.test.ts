// The client against the real server, in real time.

import assert from "node:assert/strict";
import { test } from "node:test";
import { BURST, paced, RATE, retrying, row, tollgate } from "./rig.js";

const program = process.env["TOLLGATE_SERVER"];
if (!program && process.env["TOLLGATE_ALL"] === "1") {
  throw new Error("TOLLGATE_SERVER has to name the program `tollgate`");
}

test("a paced client meets no 429", { skip: !program && "TOLLGATE_SERVER names no program `tollgate`" }, async () => {
  await tollgate(program!, async (url) => {
    // Beside each other, each with an agent of its own.
    const [ours, other] = await Promise.all([paced(url, 200), retrying(url, 60)]);
    console.log(row("paced", ours));
    console.log(row("retrying", other));
    assert.deepEqual([...ours.answers], [[200, 200]]);
    assert(ours.seconds < (4 * (200 - BURST)) / RATE, "the machine is busy, but not so busy");
    // On a machine so busy that it cannot send faster than it may, it meets no 429; and takes the longer.
    const isLimited = other.answers.has(429) || other.ratio >= 1;
    assert(other.answers.get(200) === 60 && isLimited);
  });
});
