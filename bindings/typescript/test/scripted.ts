// A server that answers as a test tells it to, and a clock that sleeping advances.

import { once } from "node:events";
import { createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";
import { Pacer, type PacerOptions, type Sleep } from "../src/index.js";

/** Status, header fields and body; a status of 0 breaks the connection. */
export type Answer = readonly [status: number, headers?: Record<string, string>, body?: string];

export interface Asked {
  readonly method: string | undefined;
  readonly url: string | undefined;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

/** Answers in this order, then 200, while `use` runs. */
export async function scripted(answers: Answer[], use: (url: string, asked: Asked[]) => Promise<void>): Promise<void> {
  const asked: Asked[] = [];
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    asked.push({ method: request.method, url: request.url, headers: request.headers, body });
    const [status, headers = {}, text = "{}"] = answers.shift() ?? [200];
    if (status === 0) return void request.socket.destroy();
    response.writeHead(status, headers).end(text);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  try {
    await use(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, asked);
  } finally {
    server.closeAllConnections();
    server.close();
    await once(server, "close");
  }
}

export class Time {
  now = 0;
  readonly slept: number[] = [];

  readonly sleep: Sleep = async (seconds, signal) => {
    signal?.throwIfAborted();
    this.slept.push(seconds);
    this.now += seconds;
  };

  /** A pacer on this clock, without jitter. */
  pacer(options: PacerOptions = {}): Pacer {
    const unixClock = () => 1_800_000_000 + this.now;
    return new Pacer({ clock: () => this.now, unixClock, uniform: () => 0, ...options });
  }
}
