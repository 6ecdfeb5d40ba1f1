// A page of agents: one card each, updated in place.

import { get } from "./api.js";
import { bar, byId, count, el, exact, setText, span, violations } from "./dom.js";

const cards = new Map(); // by key
let query = { search: "", sort: "usage", page: 0, per_page: 48 };
let open = () => {};
let lanes = [];
let isLoading = false;
let isStale = false;
let notBefore = 0;

/** Loads the list again. A list that takes long is loaded less often, unless it is urgent. */
export async function refresh(isUrgent = false) {
  if (isLoading) {
    isStale ||= isUrgent;
    return;
  }
  if (!isUrgent && performance.now() < notBefore) return;
  isLoading = true;
  const started = performance.now();
  try {
    const parameters = new URLSearchParams(query);
    show(await get(`/api/dashboard/agents?${parameters}`));
  } catch {
    // The connection status shows it; the cards stay.
  } finally {
    isLoading = false;
    const now = performance.now();
    notBefore = now + 10 * (now - started);
    if (isStale) {
      isStale = false;
      refresh(true);
    }
  }
}

function show(list) {
  const pages = Math.max(1, Math.ceil(list.matched / list.per_page));
  if (list.page >= pages) {
    query.page = pages - 1;
    isStale = true;
    return;
  }
  const elements = list.agents.map((agent) => {
    let card = cards.get(agent.key);
    if (!card) cards.set(agent.key, (card = makeCard(agent)));
    card.show(agent);
    return card.element;
  });
  arrange(elements);
  const shown = new Set(list.agents.map((agent) => agent.key));
  for (const key of cards.keys()) if (!shown.has(key)) cards.delete(key);

  const isSearch = query.search !== "";
  const total = isSearch ? `${exact(list.matched)} of ${count(list.listed, "agent", "agents")}` : count(list.listed, "agent", "agents");
  // Read out during a search, but not each time an agent comes or goes.
  byId("agents-count").setAttribute("aria-live", isSearch ? "polite" : "off");
  setText(byId("agents-count"), list.not_listed ? `${total}; ${exact(list.not_listed)} more cannot be listed` : total);
  byId("pages").hidden = pages === 1;
  setText(byId("page-number"), `Page ${exact(list.page + 1)} of ${exact(pages)}`);
  byId("previous").disabled = list.page === 0;
  byId("next").disabled = list.page + 1 >= pages;
  showEmpty(list.agents.length === 0, isSearch);
}

/** Puts cards in order. While the pointer or the focus is on one, none is moved. */
function arrange(elements) {
  const holder = byId("cards");
  const isInUse = holder.matches(":hover") || holder.contains(document.activeElement);
  const present = new Set(holder.children);
  const isSame = elements.length === present.size && elements.every((element) => present.has(element));
  if (isSame && (isInUse || elements.every((element, i) => holder.children[i] === element))) return;
  const focused = holder.contains(document.activeElement) ? document.activeElement : null;
  holder.replaceChildren(...elements);
  if (focused?.isConnected) focused.focus({ preventScroll: true });
}

function makeCard(agent) {
  const id = el("bdi", { class: "id", title: agent.shown }, agent.shown);
  const badges = el("span", { class: "badges" });
  const percent = el("b", { class: "percent" });
  const lane = el("span", { class: "lane" });
  const level = el("span", { class: "level" });
  const used = el("span", { class: "used" });
  const conduct = el("span", { class: "conduct" });
  const usage = bar();
  const button = el(
    "button",
    { type: "button", class: "card", "data-key": agent.key, onclick: () => open(agent.key) },
    el("span", { class: "card-head" }, id, badges),
    el("span", { class: "card-bar" }, lane, level, percent),
    usage.track,
    el("span", { class: "card-foot" }, used, conduct),
  );
  let before = "";
  return {
    element: el("li", {}, button),
    show(agent) {
      const now = JSON.stringify(agent);
      if (now === before) return;
      before = now;
      const names = [];
      if (agent.exempt) names.push(["exempt", "exempt"]);
      if (agent.plan) names.push(["plan", agent.plan]);
      if (agent.overrides) names.push(["override", agent.overrides === 1 ? "override" : `${agent.overrides} overrides`]);
      badges.replaceChildren(...names.map(([kind, text]) => el("span", { class: "badge", "data-kind": kind }, text)));
      button.dataset.limited = agent.rate_limited;
      if (agent.lane) {
        button.dataset.level = agent.lane.level;
        usage.track.hidden = false;
        usage.show(agent.lane);
        setText(lane, agent.lane.name);
        setText(level, usage.word(agent.lane));
        setText(percent, `${agent.lane.percent} %`);
        setText(used, `${exact(agent.lane.used)} of ${exact(agent.lane.capacity)} used`);
      } else {
        delete button.dataset.level;
        usage.track.hidden = true;
        setText(lane, agent.exempt ? "never limited" : "every lane denies everything");
        [level, percent, used].forEach((element) => setText(element, ""));
      }
      const notes = [];
      if (agent.violations) notes.push(violations(agent.violations));
      if (agent.wait_ms) notes.push(`wait ${span(agent.wait_ms)}`);
      setText(conduct, notes.join(" · "));
    },
  };
}

function showEmpty(isEmpty, isSearch) {
  const empty = byId("empty");
  empty.hidden = !isEmpty;
  if (!isEmpty) return;
  const state = isSearch ? `search ${query.search}` : "none";
  if (empty.dataset.state === state) return;
  empty.dataset.state = state;
  if (isSearch) {
    empty.replaceChildren(
      el("p", {}, "No active agent has this text in its id."),
      el("button", { type: "button", onclick: () => open(encodeURIComponent(query.search).replaceAll(".", "%2E")) }, "Open this id anyway"),
    );
    return;
  }
  const body = JSON.stringify({ agent: "me", lane: lanes[0]?.name ?? "" });
  empty.replaceChildren(
    el("h3", {}, "No agent has sent a request yet"),
    el("p", {}, "Send a first check and watch a card appear:"),
    el("pre", {}, el("code", {}, `curl -d '${body}' ${location.origin}/v1/check`)),
    el("p", { class: "muted" }, "Or run ", el("code", {}, "tollgate demo"), " to see simulated agents."),
  );
}

export function start(openAgent) {
  open = openAgent;
  const search = byId("search");
  let waiting;
  const change = (changes) => {
    query = { ...query, page: 0, ...changes };
    refresh(true);
  };
  search.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => change({ search: search.value }), 150);
  });
  byId("filter").addEventListener("submit", (event) => event.preventDefault());
  byId("sort").addEventListener("change", (event) => change({ sort: event.target.value }));
  byId("per-page").addEventListener("change", (event) => change({ per_page: Number(event.target.value) }));
  const turn = (by) => {
    change({ page: query.page + by });
    byId("agents").scrollIntoView({ block: "start" });
  };
  byId("previous").addEventListener("click", () => turn(-1));
  byId("next").addEventListener("click", () => turn(1));
}

export function setLanes(newLanes) {
  lanes = newLanes;
}
