// What a response says of the caller's limits: header fields in, `Limits` out.
//
// It reads `RateLimit` and `RateLimit-Policy` of drafts 6 to 10 of the IETF, `X-RateLimit-*`, the forms of OpenAI and
// Anthropic, and `Retry-After`. The table stands in `docs/client.md`. Nothing here throws: a field that cannot be
// understood counts as absent. A wait is never shorter than the server says. An instant is compared with the
// response's own `Date`, so that a wrong clock on this side makes no wait shorter.

/** One limit, as a response reports it. */
export interface Quota {
  /** Its name; empty if the fields have none. */
  readonly name: string;
  readonly remaining: number;
  /** How much there is in all. */
  readonly limit: number | null;
  /** Seconds in which an empty quota fills, if it fills steadily. */
  readonly window: number | null;
  /** Seconds until more is left. */
  readonly moreIn: number | null;
  /** False for tokens, bytes and whatever else a request takes an unknown amount of. */
  readonly countsRequests: boolean;
}

/** What a response says of the caller's limits. */
export interface Limits {
  readonly quotas: readonly Quota[];
  /** Seconds that a refused caller should wait, from the arrival of the response. */
  readonly retryAfter: number | null;
  /** Whether `X-RateLimit-Remaining` is 0, which makes a 403 a refusal. */
  readonly isUsedUp: boolean;
}

type Fields = ReadonlyMap<string, string>;

/** No wait is longer: 15 digits, as many as an Integer of a Structured Field has. */
const SECONDS_MAX = 1e15;
const FIELD_MAX = 8192;
const QUOTAS_MAX = 32;

/** Reads the limits out of a response's header fields. */
export function read(headers: Iterable<readonly [string, string]>, unixNow: number): Limits {
  const fields = new Map<string, string>();
  for (const [mixed, value] of headers) {
    const name = mixed.toLowerCase();
    const before = fields.get(name);
    if (value.length <= FIELD_MAX) fields.set(name, before === undefined ? value : `${before}, ${value}`);
  }
  const now = httpDate(fields.get("date") ?? "") ?? unixNow;
  const named = [draft10, draft7, draft6].map((form) => form(fields)).find((found) => found.length > 0);
  const quotas = [...(named ?? legacy(fields, now)), ...bySuffix(fields, now)];
  // A reset that has passed is now, not in the past.
  const ahead = quotas.map((q) => ({ ...q, moreIn: q.moreIn === null ? null : Math.max(0, q.moreIn) }));
  const isUsedUp = plain(fields.get("x-ratelimit-remaining")) === 0;
  return { quotas: ahead.slice(0, QUOTAS_MAX), retryAfter: retryAfter(fields, now), isUsedUp };
}

// --- Waits and instants.

const UNITS: Record<string, number> = { ns: 1e-9, us: 1e-6, "µs": 1e-6, ms: 1e-3, s: 1, m: 60, h: 3600, d: 86400 };

/** A plain number, the first of a list. */
function plain(text: string | undefined): number | null {
  const first = (text ?? "").split(",")[0]!.split(";")[0]!.trim();
  return /^[0-9]+(?:\.[0-9]+)?$/.test(first) ? Math.min(Number(first), SECONDS_MAX) : null;
}

/** `6m0s`, `1.5s`, `20ms`. */
function duration(text: string): number | null {
  let [seconds, end] = [0, 0];
  for (const part of text.matchAll(/([0-9]+(?:\.[0-9]+)?)(ms|us|µs|ns|s|m|h|d)/g)) {
    if (part.index !== end) return null;
    seconds += Number(part[1]) * UNITS[part[2]!]!;
    end += part[0].length;
  }
  return end > 0 && end === text.length ? Math.min(seconds, SECONDS_MAX) : null;
}

const MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");
const CLOCK = "([0-9]{2}):([0-9]{2}):([0-9]{2})";
const ZONE = "(?: ?(?:GMT|UTC|Z|([+-])([0-9]{2}):?([0-9]{2})))?";
const IMF = new RegExp(
  `^(?:[A-Za-z]+, ?)?([0-9]{1,2})[ -]([A-Z][a-z]{2})[ -]([0-9]{4}|[0-9]{2}) ${CLOCK}${ZONE}$`,
);
const ASCTIME = new RegExp(`^[A-Za-z]{3} ([A-Z][a-z]{2}) +([0-9]{1,2}) ${CLOCK} ([0-9]{4})$`);
const RFC_3339 = new RegExp(`^([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]${CLOCK}(\\.[0-9]+)?${ZONE}$`, "i");

type Found = (string | undefined)[];

function unix(year: number, month: number, day: number, clock: Found, zone: Found): number | null {
  if (year < 1970 || month < 1 || month > 12 || day < 1 || day > 31) return null;
  const [hour, minute, second] = clock.map(Number);
  const [sign, hours, minutes] = zone;
  const offset = (Number(hours ?? 0) * 60 + Number(minutes ?? 0)) * (sign === "-" ? -60 : 60);
  return Date.UTC(year, month - 1, day, hour, minute, second) / 1000 - offset;
}

/** The three forms of RFC 9110. */
function httpDate(untrimmed: string): number | null {
  const text = untrimmed.trim();
  const imf = IMF.exec(text);
  if (imf) {
    const digits = imf[3]!;
    const year = Number(digits) + (digits.length === 4 ? 0 : Number(digits) < 70 ? 2000 : 1900);
    return unix(year, MONTHS.indexOf(imf[2]!) + 1, Number(imf[1]), imf.slice(4, 7), imf.slice(7, 10));
  }
  const old = ASCTIME.exec(text);
  return old && unix(Number(old[6]), MONTHS.indexOf(old[1]!) + 1, Number(old[2]), old.slice(3, 6), []);
}

function rfc3339(text: string): number | null {
  const found = RFC_3339.exec(text.trim());
  if (!found) return null;
  const whole = unix(Number(found[1]), Number(found[2]), Number(found[3]), found.slice(4, 7), found.slice(8, 11));
  return whole === null ? null : whole + Number(found[7] ?? 0);
}

/** Seconds from now: a number, a duration, or an instant in any of its forms. */
function wait(untrimmed: string, now: number): number | null {
  const text = untrimmed.trim();
  const number = plain(text);
  if (number === null) {
    const span = duration(text);
    const instant = span === null ? (httpDate(text) ?? rfc3339(text)) : null;
    return instant === null ? span : instant - now;
  }
  // Nobody waits for thirty years: that is a Unix time, in seconds or in milliseconds.
  return number < 1e9 ? number : number < 1e11 ? number - now : number / 1000 - now;
}

function retryAfter(fields: Fields, now: number): number | null {
  const text = fields.get("retry-after") ?? "";
  const ms = plain(fields.get("retry-after-ms"));
  const dated = httpDate(text);
  const parts = dated === null ? text.split(",").map((part) => plain(part) ?? duration(part.trim())) : [dated - now];
  const waits = [ms === null ? null : ms / 1000, ...parts].filter((part) => part !== null);
  const longest = Math.max(...waits);
  return longest >= 0 ? longest : null;
}

// --- Structured Fields: as much of RFC 9651 as these fields use.

const STRING = String.raw`"(?:[\x20-\x21\x23-\x5b\x5d-\x7e]|\\["\\])*"`;
const TOKEN = String.raw`[A-Za-z*][!#$%&'*+.^_\`|~0-9A-Za-z:/-]*`;
const INTEGER = String.raw`-?[0-9]{1,15}(?:\.[0-9]{1,3})?`;
const BARE = String.raw`${STRING}|${INTEGER}|${TOKEN}|:[A-Za-z0-9+/=]*:|\?[01]`;
const ITEM = new RegExp(`[ \\t]*(${BARE})`, "y");
const PARAMETER = new RegExp(`[ \\t]*;[ \\t]*([a-z*][a-z0-9_.*-]*)(?:=(${BARE}))?`, "y");
const COMMA = /[ \t]*(?:,|$)/y;

type Item = readonly [name: string, parameters: ReadonlyMap<string, string>];

/** The items of a list with their parameters; empty if any of it is malformed. */
function list(text: string): Item[] {
  const items: Item[] = [];
  let at = 0;
  const next = (pattern: RegExp): RegExpExecArray | null => {
    pattern.lastIndex = at;
    const found = pattern.exec(text);
    if (found) at = pattern.lastIndex;
    return found;
  };
  // Ends: each round takes at least one character, or returns.
  while (at < text.length) {
    const item = next(ITEM);
    if (!item) return [];
    const parameters = new Map<string, string>();
    for (let found = next(PARAMETER); found; found = next(PARAMETER)) parameters.set(found[1]!, found[2] ?? "");
    if (!next(COMMA)) return [];
    items.push([unquoted(item[1]!), parameters]);
  }
  return items;
}

function unquoted(bare: string): string {
  return bare.startsWith('"') ? bare.slice(1, -1).replace(/\\(["\\])/g, "$1") : bare;
}

function draft10(fields: Fields): Quota[] {
  const policies = new Map(list(fields.get("ratelimit-policy") ?? ""));
  const quotas: Quota[] = [];
  for (const [name, parameters] of list(fields.get("ratelimit") ?? "")) {
    const policy = policies.get(name);
    const unit = unquoted(policy?.get("qu") ?? "requests");
    const remaining = plain(parameters.get("r"));
    if (remaining === null || unit === "concurrent-requests") continue;
    const [limit, window] = [plain(policy?.get("q")) || null, plain(policy?.get("w")) || null];
    const moreIn = plain(parameters.get("t"));
    quotas.push({ name, remaining, limit, window, moreIn, countsRequests: unit === "requests" });
  }
  return quotas;
}

function draft7(fields: Fields): Quota[] {
  const parts = (fields.get("ratelimit") ?? "").split(",").map((part) => part.split("="));
  const values = new Map(parts.map(([key, ...value]) => [key!.trim(), value.join("=")]));
  return windowed("", values.get("limit"), values.get("remaining"), plain(values.get("reset")));
}

function draft6(fields: Fields): Quota[] {
  const [limit, remaining] = [fields.get("ratelimit-limit"), fields.get("ratelimit-remaining")];
  return windowed("", limit, remaining, plain(fields.get("ratelimit-reset")));
}

/** A quota that may come back all at once: the fields do not say how it fills. */
function windowed(
  name: string,
  limit: string | undefined,
  remaining: string | undefined,
  moreIn: number | null,
  countsRequests = true,
): Quota[] {
  const left = plain(remaining);
  return left === null ? [] : [{ name, remaining: left, limit: plain(limit), window: null, moreIn, countsRequests }];
}

function legacy(fields: Fields, now: number): Quota[] {
  return ["x-ratelimit", "x-rate-limit"].flatMap((prefix) => {
    const moreIn = plain(fields.get(`${prefix}-reset-after`)) ?? wait(fields.get(`${prefix}-reset`) ?? "", now);
    const name = (fields.get(`${prefix}-resource`) ?? "").trim();
    return windowed(name, fields.get(`${prefix}-limit`), fields.get(`${prefix}-remaining`), moreIn);
  });
}

function bySuffix(fields: Fields, now: number): Quota[] {
  return [...fields].flatMap(([field, remaining]) => {
    const suffixed = /^x-ratelimit-remaining-([a-z0-9-]+)$/.exec(field)?.[1];
    const anthropic = /^anthropic-ratelimit-([a-z0-9-]+)-remaining$/.exec(field)?.[1];
    const name = suffixed ?? anthropic;
    if (name === undefined) return [];
    const of = (part: string) =>
      fields.get(suffixed === undefined ? `anthropic-ratelimit-${name}-${part}` : `x-ratelimit-${part}-${name}`);
    const reset = of("reset") ?? "";
    const found = windowed(name, of("limit"), remaining, wait(reset, now), !name.includes("tokens"));
    return found.map((quota) => steady(quota, duration(reset.trim())));
  });
}

/** A reset such as `6m0s` says when the quota will be full again, and that it fills steadily. */
function steady(quota: Quota, fullIn: number | null): Quota {
  const used = (quota.limit ?? 0) - quota.remaining;
  if (!fullIn || quota.limit === null || used <= 0) return quota;
  const window = (fullIn * quota.limit) / used;
  return { ...quota, window, moreIn: Math.min(fullIn, window / quota.limit) };
}
