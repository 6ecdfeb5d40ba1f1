// The page as a whole: login, the live connection, the summary.

import * as agent from "./agent.js";
import { call, get, session } from "./api.js";
import * as cards from "./cards.js";
import * as chart from "./chart.js";
import { byId, count, el, exact, number, rate, setText, span } from "./dom.js";
import * as events from "./events.js";

let stream = null;
let retryTimer = null;
let pause = 1000;
let lostAt = null;
let server = null;

// --- Login.

function showLogin(message = "") {
  disconnect();
  byId("agent").close();
  byId("dashboard").hidden = true;
  byId("session").hidden = true;
  byId("login-view").hidden = false;
  setText(byId("token-error"), message);
  setConnection("out", "Not logged in");
  byId("token").focus();
}

function showDashboard() {
  byId("login-view").hidden = true;
  byId("dashboard").hidden = false;
  byId("session").hidden = false;
  chart.start();
}

async function logIn(token) {
  const field = byId("token");
  field.removeAttribute("aria-invalid");
  try {
    await call("POST", "/login", { token });
    field.value = "";
    connect();
  } catch (problem) {
    showLogin(problem.message);
    field.setAttribute("aria-invalid", "true");
  }
}

byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  logIn(byId("token").value.trim());
});

byId("log-out").addEventListener("click", async () => {
  await call("POST", "/logout").catch(() => {});
  showLogin();
});

session.ended = () => showLogin("Your session has ended; log in again.");

/** Whether we are logged in; `null` if the server does not answer. */
const hasSession = () => get("/api/dashboard/session").then((answer) => answer.logged_in, () => null);

// --- The live connection.

function setConnection(state, text) {
  byId("connection").dataset.state = state;
  setText(byId("connection-text"), text);
}

function disconnect() {
  clearTimeout(retryTimer);
  stream?.close();
  stream = null;
}

/** While the page is visible, a snapshot comes every second, otherwise every ten. */
function connect() {
  disconnect();
  const every = document.hidden ? 10 : 1;
  const opened = new EventSource(`/api/dashboard/live?every=${every}`);
  stream = opened;
  const on = (name, then) =>
    opened.addEventListener(name, (event) => {
      if (stream === opened) then(JSON.parse(event.data));
    });
  on("hello", (hello) => {
    pause = 1000;
    lostAt = null;
    byId("lost").hidden = true;
    setConnection("live", "Live");
    showDashboard();
    if (server !== hello.started) {
      server = hello.started;
      chart.restart();
    }
    events.connected(hello);
    agent.setHello(hello);
    cards.setLanes(hello.lanes);
    cards.refresh(true);
  });
  on("happened", (event) => {
    events.add(event);
    if (event.kind.startsWith("assignment") || event.kind === "policy") refreshAll();
  });
  on("snapshot", (snapshot) => {
    events.caughtUp();
    summarise(snapshot);
    cards.refresh();
    agent.refresh();
  });
  opened.onerror = () => {
    if (stream === opened) lost();
  };
}

/** Shows that the connection is lost, and retries, more and more slowly. */
async function lost() {
  disconnect();
  lostAt ??= Date.now();
  // Is it the connection or the session?
  if ((await hasSession()) === false) {
    session.ended();
    return;
  }
  if (byId("login-view").hidden && !byId("dashboard").hidden) {
    const since = new Date(lostAt).toLocaleTimeString("en-GB");
    byId("lost").hidden = false;
    setText(byId("lost"), `The connection to the server was lost at ${since}. The page shows old data and reconnects by itself.`);
  }
  setConnection("lost", "Connection lost, reconnecting");
  clearTimeout(retryTimer);
  retryTimer = setTimeout(connect, pause);
  pause = Math.min(pause * 1.5, 10_000);
}

document.addEventListener("visibilitychange", () => {
  if (stream) connect();
});

// --- The summary.

function summarise(snapshot) {
  const rates = chart.add(snapshot.samples);
  if (rates) {
    setText(byId("rate"), rate(rates.reduce((sum, one) => sum + one, 0)));
    setText(byId("rate-note"), `${number(snapshot.checks)} since the start`);
  }
  setText(byId("violations"), number(snapshot.violations_last_hour));
  setText(byId("violations-note"), `${count(snapshot.sustained_abuse, "case", "cases")} of sustained abuse`);
  setText(byId("known"), number(snapshot.agents));
  setText(byId("known-note"), `${exact(snapshot.overridden)} with overrides`);
  setText(byId("exempt"), number(snapshot.exempt));
  setText(byId("exempt-note"), "never limited");
  showSharing(snapshot.sharing);
  showEngine(snapshot.engine);
  showOffenders(snapshot.offenders);
}

/** Who shares the limiter: one line, and in it a line for each process. */
let sharingShown = "";
function showSharing(sharing) {
  byId("sharing").hidden = !sharing;
  const now = JSON.stringify(sharing);
  if (!sharing || now === sharingShown) return;
  sharingShown = now;
  const { path, processes, takeovers, detached, policy_differs: differs } = sharing;
  const parts = [`Shared by ${count(processes.length, "process", "processes")} at ${path}`, count(takeovers, "takeover", "takeovers")];
  if (detached) parts.push("the file is gone, so later processes share another");
  if (differs) parts.push("another policy than this server's is in force");
  setText(byId("sharing-text"), parts.join(", "));
  byId("sharing").dataset.bad = detached || differs;
  byId("sharing-processes").replaceChildren(
    ...processes.map(({ pid, joined_ms, version, this: isThis }) => {
      const since = new Date(joined_ms).toLocaleString("en-GB");
      return el("li", {}, `process ${pid}, since ${since}, version ${version}${isThis ? " (this server)" : ""}`);
    }),
  );
}

/** How machines share the limiter: a light and one line. */
function showEngine(engine) {
  byId("engine").hidden = !engine;
  if (!engine) return;
  const { state, since_ms, nodes, without_store, last_problem, answers, warnings } = engine;
  const since = span(Date.now() - since_ms);
  const states = {
    connected: `connected for ${since}`,
    seeding: "the store is back, and is told what it missed",
    lost: `lost for ${since}: ${without_store}`,
  };
  const from = Object.entries(answers).filter(([, answered]) => answered > 0);
  const parts = [`Shared by ${count(nodes, "machine", "machines")}`, states[state] ?? state];
  if (state === "lost" && last_problem) parts.push(last_problem);
  if (from.length > 0) parts.push(`answers: ${from.map(([name, answered]) => `${name} ${number(answered)}`).join(", ")}`);
  setText(byId("engine-text"), [...parts, ...warnings].join("; "));
  byId("engine").dataset.state = state;
  byId("engine").dataset.bad = state === "lost" || warnings.length > 0;
}

let offendersShown = "";
function showOffenders(offenders) {
  const now = JSON.stringify(offenders);
  if (now === offendersShown) return;
  offendersShown = now;
  const list = byId("offenders");
  const focused = list.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  const most = Math.max(1, ...offenders.map((offender) => offender.violations));
  list.replaceChildren(
    ...offenders.map(({ key, shown, violations, error }) => {
      const meter = el("span", { class: "track", "data-level": "plain", "aria-hidden": "true" }, el("span", { class: "fill" }));
      meter.firstChild.style.width = `${(100 * violations) / most}%`;
      const about = error ? "up to " : "";
      return el(
        "li",
        {},
        el("button", { type: "button", class: "link", "data-key": key, title: shown, onclick: () => agent.open(key) }, el("bdi", {}, shown)),
        el("span", { class: "offences" }, el("b", {}, `${about}${number(violations)}`), violations === 1 ? " violation" : " violations"),
        meter,
      );
    }),
  );
  byId("offenders-none").hidden = offenders.length > 0;
  if (focused) [...list.querySelectorAll("button")].find((button) => button.dataset.key === focused)?.focus();
}

function refreshAll() {
  cards.refresh(true);
  agent.refresh();
}

// --- Start.

cards.start(agent.open);
agent.start(refreshAll);
events.start(agent.open);

// The token is in the fragment of the address, so that it is never sent in a URL.
if (location.hash.startsWith("#token=")) {
  const token = location.hash.slice("#token=".length);
  history.replaceState(null, "", "/");
  logIn(token);
} else {
  const isLoggedIn = await hasSession();
  if (isLoggedIn) connect();
  else if (isLoggedIn === false) showLogin();
  else lost();
}
