// The real server, and clients of two kinds that send it requests from parallel workers.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pacedFetch, sleep } from "../src/index.js";

const LANE = "http/read";
const WORKERS = 8;
export const RATE = 20;
export const BURST = 20;

/** Starts the server on a port of its own, and stops it after `use`. */
export async function tollgate(program: string, use: (url: string) => Promise<void>): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), "tollgate-client-"));
  const file = join(directory, "tollgate.toml");
  const lane = `[lanes]\n"${LANE}" = "${RATE}/second burst ${BURST}"\n`;
  writeFileSync(file, `${lane}[server]\nlisten = "127.0.0.1:0"\n`);
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("TOLLGATE_")));
  const server = spawn(program, ["serve", "--config", file], { env, stdio: ["ignore", "pipe", "ignore"] });
  const ended = once(server, "exit");
  try {
    let printed = "";
    let url: string | undefined;
    for await (const text of server.stdout) {
      printed += text;
      url = / on (http:\/\/127\.0\.0\.1:[0-9]+)/.exec(printed)?.[1];
      if (url) break;
    }
    if (!url) throw new Error(`the server stopped: ${printed}`);
    await use(url);
  } finally {
    server.kill();
    await ended;
    rmSync(directory, { recursive: true });
  }
}

/** What a run of a client came to. */
export interface Took {
  readonly seconds: number;
  readonly answers: Map<number, number>;
  readonly ratio: number;
}

async function work(requests: number, answers: Map<number, number>, send: () => Promise<void>): Promise<Took> {
  let left = requests;
  const started = performance.now();
  await Promise.all(
    Array.from({ length: WORKERS }, async () => {
      while (left-- > 0) await send();
    }),
  );
  const seconds = (performance.now() - started) / 1000;
  return { seconds, answers, ratio: seconds / ((requests - BURST) / RATE) };
}

function counting(answers: Map<number, number>): typeof globalThis.fetch {
  return async (input, init) => {
    const response = await globalThis.fetch(input, init);
    answers.set(response.status, (answers.get(response.status) ?? 0) + 1);
    return response;
  };
}

function check(agent: string): RequestInit {
  return { method: "POST", body: JSON.stringify({ agent, lane: LANE }) };
}

/** Our `fetch`, as it is by default. */
export async function paced(url: string, requests: number): Promise<Took> {
  const answers = new Map<number, number>();
  const fetch = pacedFetch({ fetch: counting(answers) });
  return work(requests, answers, async () => {
    const response = await fetch(`${url}/v1/check`, check("paced-ts"));
    if (!response.ok) throw new Error(`status ${response.status}`);
    await response.arrayBuffer();
  });
}

/** A `fetch` in a loop that sleeps as long as `Retry-After` says, each request by itself. */
export async function retrying(url: string, requests: number): Promise<Took> {
  const answers = new Map<number, number>();
  const fetch = counting(answers);
  return work(requests, answers, async () => {
    // Ends: the server lets everybody through in the end.
    for (;;) {
      const response = await fetch(`${url}/v1/check`, check("retrying-ts"));
      await response.arrayBuffer();
      if (response.ok) return;
      await sleep(Number(response.headers.get("retry-after")));
    }
  });
}

export function row(name: string, took: Took): string {
  return `| ${name} | ${took.answers.get(429) ?? 0} | ${took.seconds.toFixed(2)} s | ${took.ratio.toFixed(2)} |`;
}
