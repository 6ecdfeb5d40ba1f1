// What pacing is worth: the paced client beside one that sleeps as long as `Retry-After` says, against the real server.
//
// 8 workers, 200 requests, a lane of 20 per second with a burst of 20: 9 s at best. `make clients-bench` runs it.

import { paced, retrying, row, tollgate } from "../test/rig.js";

const REQUESTS = 200;
const RUNS = 5;

const program = process.env["TOLLGATE_SERVER"];
if (!program) throw new Error("TOLLGATE_SERVER has to name the program `tollgate`");

console.log("| client | 429s | time | of the ideal |\n|---|---:|---:|---:|");
const ratios = { paced: [] as number[], retrying: [] as number[] };
for (let run = 0; run < RUNS; run += 1) {
  for (const [name, client] of Object.entries({ paced, retrying })) {
    // A server for each run, so that no run finds what the last one has used.
    await tollgate(program, async (url) => {
      const took = await client(url, REQUESTS);
      ratios[name as keyof typeof ratios].push(took.ratio);
      console.log(row(name, took));
    });
  }
}
for (const [name, found] of Object.entries(ratios)) {
  const median = found.sort((a, b) => a - b)[(RUNS - 1) / 2]!;
  console.log(`${name}: ${median.toFixed(2)} of the ideal, the median of ${RUNS} runs`);
}
