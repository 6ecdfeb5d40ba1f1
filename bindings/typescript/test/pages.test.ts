// The examples of the pages, run; `https://api.example.com` is a server on loopback.

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { scripted } from "./scripted.js";

const PACKAGE = new URL("../src/index.js", import.meta.url);

for (const [page, paths] of [
  ["README.md", ["/tasks"]],
  ["../../docs/client.md", ["/tasks", "/tasks", "/tasks", "/tasks", "/tasks/1"]],
] as const) {
  test(`the examples of ${page} run`, async () => {
    const blocks = [...readFileSync(page, "utf8").matchAll(/^```ts\n(.*?)^```$/gms)].map((block) => block[1]!);
    assert(blocks.length > 0);
    const directory = mkdtempSync(join(tmpdir(), "tollgate-pages-"));
    try {
      await scripted(paths.length > 1 ? [[429, { "retry-after": "0.01" }]] : [], async (url, asked) => {
        for (const [at, block] of blocks.entries()) {
          // They use no types, so they are JavaScript too.
          const file = join(directory, `${at}.mjs`);
          const text = block.replaceAll("https://api.example.com", url).replace('"tollgate-client"', `"${PACKAGE}"`);
          writeFileSync(file, text);
          await import(pathToFileURL(file).href);
        }
        assert.deepEqual(asked.map((request) => request.url), paths);
      });
    } finally {
      rmSync(directory, { recursive: true });
    }
  });
}
