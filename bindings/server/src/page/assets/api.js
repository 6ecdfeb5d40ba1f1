// Requests to the server, with its problems as errors.

export class Problem extends Error {
  constructor(status, detail, field) {
    super(detail);
    this.status = status;
    this.field = field;
  }
}

/** Called when the session has ended. */
export const session = { ended: () => {} };

export async function call(method, path, body) {
  let answer;
  try {
    answer = await fetch(path, {
      method,
      credentials: "same-origin",
      headers: method === "GET" ? {} : { "content-type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new Problem(0, "The server cannot be reached.");
  }
  const document = await answer.json().catch(() => ({}));
  if (answer.ok) return document;
  const problem = new Problem(answer.status, document.detail ?? `The server answered ${answer.status}.`, document.field);
  if (answer.status === 401 && path !== "/login") session.ended();
  throw problem;
}

export const get = (path) => call("GET", path);
export const admin = (method, path, body) => call(method, `/api/admin/rate-limits${path}`, body);

/** The path of an agent. Browsers read "." and ".." as directories, even encoded; for these the id goes in the query. */
export const agentPath = (base, key, rest = "") =>
  key === "%2E" || key === "%2E%2E" ? `${base}/-${rest}?agent=${key}` : `${base}/${key}${rest}`;
