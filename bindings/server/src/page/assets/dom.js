// Creates elements from text alone: nothing from outside is ever parsed as markup.

export const byId = (id) => document.getElementById(id);

/** An element with attributes, and children that are elements or text. */
export function el(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "value") element.value = value;
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Sets a text only if it differs, so that nothing is laid out or read out again. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const whole = new Intl.NumberFormat("en");
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const number = (value) => (value < 100_000 ? whole.format(value) : compact.format(value));
export const exact = (value) => whole.format(value);
export const rate = (value) => (value < 10 ? (Math.round(value * 10) / 10).toString() : number(Math.round(value)));
export const count = (value, one, many) => `${exact(value)} ${value === 1 ? one : many}`;

// An agent's conduct is stored in few bits: its counts stop at their maximum.
const most = (value, full) => (value >= full ? `${full} or more` : exact(value));
export const violations = (value) => `${most(value, 63)} ${value === 1 ? "violation" : "violations"}`;
export const inARow = (value) => `${most(value, 15)} in a row`;

/** A duration in short words, rounded up. */
export function span(ms) {
  const seconds = Math.ceil(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return seconds % 60 ? `${minutes} min ${seconds % 60} s` : `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  return `${Math.floor(hours / 24)} days`;
}

/** Shows a message for a while, and has it read out. */
const toast = byId("toast");
let hideTimer;
export function announce(text, isBad = false) {
  // Nothing outside an open dialog is seen or read out.
  const dialog = byId("agent");
  (dialog.open ? dialog : document.body).append(toast);
  toast.textContent = text;
  toast.dataset.bad = isBad;
  clearTimeout(hideTimer);
  hideTimer = setTimeout(() => (toast.textContent = ""), 6000);
}

const words = { green: "ok", yellow: "busy", red: "near the limit" };

/** A bar for a lane. Its level is shown by colour, by a word and by a pattern. */
export function bar() {
  const fill = el("span", { class: "fill" });
  const track = el("span", { class: "track", "aria-hidden": "true" }, fill);
  return {
    track,
    show(lane) {
      const percent = Math.min(100, lane.percent);
      const width = `${percent}%`;
      if (fill.style.width !== width) fill.style.width = width;
      if (track.dataset.level !== lane.level) track.dataset.level = lane.level;
    },
    word: (lane) => (lane.used >= lane.capacity ? "used up" : words[lane.level]),
  };
}
