// Decisions per second by verdict, drawn by uPlot.

import { byId, el, rate, setText } from "./dom.js";

const SECONDS = 300;

// Lines differ by their dashes too, not only by colour.
const VERDICTS = [
  { name: "allow", variable: "--allow", dash: [] },
  { name: "warn", variable: "--warn", dash: [6, 3] },
  { name: "deny", variable: "--deny", dash: [2, 2] },
  { name: "exempt", variable: "--exempt", dash: [10, 3, 2, 3] },
];

let samples = []; // [ms, allowed, warned, denied, exempt], counted from the start of the server
let plot = null;
const now = VERDICTS.map(() => null);

export function restart() {
  samples = [];
}

/** Adds new samples; returns the current rate of each verdict. */
export function add(more) {
  const last = samples.length ? samples[samples.length - 1][0] : 0;
  samples.push(...more.filter((sample) => sample[0] > last));
  const first = samples[samples.length - 1][0] - (SECONDS + 1) * 1000;
  samples = samples.filter((sample) => sample[0] >= first);
  draw();
  return current();
}

/** The mean of the last few seconds: a single second fluctuates. */
function current() {
  if (samples.length < 2) return null;
  const end = samples[samples.length - 1];
  const start = samples.find((sample) => sample[0] >= end[0] - 5500) ?? samples[0];
  if (start === end) return null;
  return VERDICTS.map((_, i) => ((end[i + 1] - start[i + 1]) * 1000) / (end[0] - start[0]));
}

function rates() {
  const times = [];
  const lines = VERDICTS.map(() => []);
  for (let at = 1; at < samples.length; at++) {
    const [from, to] = [samples[at - 1], samples[at]];
    const seconds = (to[0] - from[0]) / 1000;
    times.push(to[0] / 1000);
    lines.forEach((line, i) => line.push(Math.max(0, to[i + 1] - from[i + 1]) / seconds));
  }
  return [times, ...lines];
}

function draw() {
  const data = rates();
  const means = current();
  if (means) {
    VERDICTS.forEach(({ name }, i) => setText(now[i], rate(means[i])));
    const text = VERDICTS.map(({ name }, i) => `${name} ${rate(means[i])}`).join(", ");
    byId("chart").setAttribute("aria-label", `Decisions per second, by verdict, over the last minutes. Now: ${text}.`);
  }
  if (plot) plot.setData(data);
}

function build() {
  const holder = byId("chart");
  const style = getComputedStyle(document.documentElement);
  const colour = (variable) => style.getPropertyValue(variable).trim();
  const axis = {
    stroke: colour("--muted"),
    grid: { stroke: colour("--line"), width: 1 },
    ticks: { show: false },
    font: "12px system-ui, sans-serif",
  };
  const options = {
    width: holder.clientWidth,
    height: holder.clientHeight,
    padding: [10, 26, 0, 0],
    legend: { show: false },
    cursor: { drag: { x: false, y: false }, points: { show: false }, y: false },
    scales: {
      x: { time: true, range: (_, min, max) => within(min, max) },
      y: { range: (_, __, max) => [0, Math.max(1, (max ?? 0) * 1.1)] },
    },
    axes: [
      { ...axis, space: 90, values: (_, ticks) => ticks.map(clock), size: 28 },
      { ...axis, size: 52, space: 34, values: (_, ticks) => ticks.map(rate) },
    ],
    series: [
      {},
      ...VERDICTS.map(({ name, variable, dash }) => ({
        label: name,
        stroke: colour(variable),
        width: 2,
        dash,
        points: { show: false },
        fill: name === "allow" ? `${colour(variable)}1f` : undefined,
      })),
    ],
  };
  if (plot) plot.destroy();
  plot = new uPlot(options, rates(), holder);
}

/** The last five minutes, or as much of them as there is, but at least half a minute. */
function within(min, max) {
  const end = max ?? Date.now() / 1000;
  return [Math.max(end - SECONDS, Math.min(min ?? end, end - 30)), end];
}

const clock = (seconds) =>
  new Date(seconds * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

export function start() {
  if (plot) return;
  const legend = byId("legend");
  legend.replaceChildren(
    ...VERDICTS.map(({ name }, i) => {
      now[i] = el("b", {}, "–");
      return el("li", { "data-verdict": name }, el("span", { class: "swatch", "aria-hidden": "true" }), `${name} `, now[i]);
    }),
  );
  build();
  new ResizeObserver(() => {
    const holder = byId("chart");
    if (holder.clientWidth) plot.setSize({ width: holder.clientWidth, height: holder.clientHeight });
  }).observe(byId("chart"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", build);
}
