// What has happened, and who is told of it: a list, and a notification if the person allows it.

import { byId, el, say } from "./dom.js";

const KEPT = 100;
const TEXTS = {
  sustained_abuse: ["Sustained abuse", "!"],
  assignment: ["Plan, override or exemption changed", "✎"],
  assignments: ["Plans, overrides or exemptions changed", "✎"],
  policy: ["The policy was replaced", "⟳"],
  saturated: ["No room for new agents", "!"],
  unknown_action: ["An action that the policy does not name", "?"],
  clock: ["The clock fell back to the system's", "⏱"],
  other: ["Something happened", "·"],
};

let seen = -1; // the number of the last event
let caughtUp = false; // whether what comes now is news
let server = null;
let open = () => {};
let abuse = null;

/** A connection begins: numbers count on, unless the server is another one. */
export function connected(hello) {
  abuse = hello.abuse;
  if (server !== hello.started) {
    caughtUp = server !== null;
    server = hello.started;
    seen = -1;
    byId("events").replaceChildren();
  }
}

/** What was there when the page opened has been told; the rest is news. */
export function settled() {
  caughtUp = true;
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
  if (event.kind === "sustained_abuse" && caughtUp) notify(event);
}

function notify(event) {
  const within = abuse ? `${abuse.violations} violations within ${Math.round(abuse.within_seconds / 60)} minutes` : event.text;
  const text = `${event.agent.shown}: ${within}`;
  say(`Sustained abuse by ${text}`, true);
  if (!isOn()) return;
  // One for each agent: a later one takes the place of an earlier one.
  const notification = new Notification("tollgate: sustained abuse", { body: text, tag: `abuse-${event.agent.key}` });
  notification.addEventListener("show", () => (document.documentElement.dataset.notified = event.agent.key));
  notification.addEventListener("click", () => {
    window.focus();
    open(event.agent.key);
  });
}

const canNotify = () => "Notification" in window && window.isSecureContext;
const isOn = () => canNotify() && Notification.permission === "granted" && wanted();
const wanted = () => localStorage.getItem("notify") === "yes";

function showSwitch() {
  const button = byId("notify");
  button.setAttribute("aria-pressed", isOn());
  button.textContent = isOn() ? "Notifications are on" : "Notify me of abuse";
}

export function start(opened) {
  open = opened;
  byId("notify").addEventListener("click", async () => {
    if (!canNotify()) {
      say("This browser notifies only of pages over https or on this machine.", true);
      return;
    }
    if (isOn()) {
      localStorage.setItem("notify", "no");
    } else {
      const permission = await Notification.requestPermission();
      localStorage.setItem("notify", permission === "granted" ? "yes" : "no");
      say(permission === "granted" ? "You will be notified of sustained abuse while this page is open." : "The browser does not allow notifications of this page.", permission !== "granted");
    }
    showSwitch();
  });
  showSwitch();
}
