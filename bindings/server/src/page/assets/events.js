// Events: a list, and a notification if the user allows it.

import { announce, byId, el } from "./dom.js";

const KEPT = 100;
const TEXTS = {
  sustained_abuse: ["Sustained abuse", "!"],
  assignment: ["Plan, override or exemption changed", "✎"],
  assignments: ["Plans, overrides or exemptions changed", "✎"],
  policy: ["The policy was replaced", "⟳"],
  saturated: ["No room for new agents", "!"],
  unknown_action: ["An action that is not in the policy", "?"],
  clock: ["The clock fell back to the system's", "⏱"],
  other: ["Another event", "·"],
};

let seen = -1; // the number of the last event
let isCaughtUp = false; // whether events are new from now on
let server = null;
let open = () => {};
let abuse = null;

/** A connection begins: numbers continue, unless the server was restarted. */
export function connected(hello) {
  abuse = hello.abuse;
  if (server !== hello.started) {
    isCaughtUp = server !== null;
    server = hello.started;
    seen = -1;
    byId("events").replaceChildren();
  }
}

/** All past events have been added; the next ones are new. */
export function caughtUp() {
  isCaughtUp = true;
}

export function add(event) {
  if (event.number <= seen) return;
  seen = event.number;
  const [title, sign] = TEXTS[event.kind] ?? TEXTS.other;
  const time = new Date(event.at_ms);
  const agent = event.agent && el("button", { type: "button", class: "link", title: event.agent.shown, onclick: () => open(event.agent.key) }, el("bdi", {}, event.agent.shown));
  const list = byId("events");
  list.prepend(
    el(
      "li",
      { "data-kind": event.kind },
      el("span", { class: "sign", "aria-hidden": "true" }, sign),
      el("div", {}, el("b", {}, title), agent && el("div", { class: "event-agent" }, agent), event.text && el("div", { class: "muted" }, event.text)),
      el("time", { datetime: time.toISOString() }, time.toLocaleTimeString("en-GB")),
    ),
  );
  while (list.children.length > KEPT) list.lastElementChild.remove();
  byId("events-none").hidden = true;
  if (event.kind === "sustained_abuse" && isCaughtUp) notify(event);
}

function notify(event) {
  const within = abuse ? `${abuse.violations} violations within ${Math.round(abuse.within_seconds / 60)} minutes` : event.text;
  const text = `${event.agent.shown}: ${within}`;
  announce(`Sustained abuse by ${text}`, true);
  if (!isOn()) return;
  // One for each agent: a later one replaces an earlier one.
  const notification = new Notification("tollgate: sustained abuse", { body: text, tag: `abuse-${event.agent.key}` });
  notification.addEventListener("show", () => (document.documentElement.dataset.notified = event.agent.key));
  notification.addEventListener("click", () => {
    window.focus();
    open(event.agent.key);
  });
}

const canNotify = () => "Notification" in window && window.isSecureContext;
const isOn = () => canNotify() && Notification.permission === "granted" && isWanted();
const isWanted = () => localStorage.getItem("notify") === "yes";

function showSwitch() {
  const button = byId("notify");
  button.setAttribute("aria-pressed", isOn());
  button.textContent = isOn() ? "Notifications are on" : "Notify me of abuse";
}

export function start(openAgent) {
  open = openAgent;
  byId("notify").addEventListener("click", async () => {
    if (!canNotify()) {
      announce("Browsers allow notifications only for pages over https or on this machine.", true);
      return;
    }
    if (isOn()) {
      localStorage.setItem("notify", "no");
    } else {
      const permission = await Notification.requestPermission();
      localStorage.setItem("notify", permission === "granted" ? "yes" : "no");
      announce(permission === "granted" ? "You will be notified of sustained abuse while this page is open." : "The browser does not allow notifications for this page.", permission !== "granted");
    }
    showSwitch();
  });
  showSwitch();
}
