// One agent, opened: every lane, its conduct, and what can be changed.

import { admin, agentPath, get } from "./api.js";
import { announce, bar, byId, el, exact, inARow, setText, span, violations } from "./dom.js";

let hello = { lanes: [], plans: [] };
let shown = null; // the open agent: its key, and the elements to update
let onChange = () => {};

export function setHello(newHello) {
  hello = newHello;
}

export async function open(key) {
  let agent;
  try {
    agent = await get(agentPath("/api/dashboard/agents", key));
  } catch (problem) {
    announce(problem.message, true);
    return;
  }
  const dialog = byId("agent");
  shown = build(agent);
  dialog.replaceChildren(...shown.children);
  update(agent);
  if (!dialog.open) dialog.showModal();
}

/** Updates the open agent; text that is being typed stays. */
export async function refresh() {
  const of = shown;
  if (!of || !byId("agent").open) return;
  try {
    const agent = await get(agentPath("/api/dashboard/agents", of.key));
    if (shown === of) update(agent);
  } catch {
    // The connection status shows it.
  }
}

function build(agent) {
  const title = el("h2", { id: "agent-title" }, el("bdi", {}, agent.shown));
  const badges = el("p", { class: "badges" });
  const conduct = el("p", { class: "conduct-line" });
  const lanes = agent.lanes.map((lane, index) => {
    const usage = bar();
    const cells = {
      usage,
      percent: el("b", { class: "percent" }),
      level: el("span", { class: "level" }),
      used: el("span", { class: "used" }),
      full: el("span", { class: "full" }),
    };
    const inputId = `override-${index}`;
    const error = el("p", { class: "field-error", id: `${inputId}-error`, role: "alert" });
    const input = el("input", {
      id: inputId,
      name: lane.name,
      type: "text",
      value: lane.override ?? "",
      autocomplete: "off",
      spellcheck: "false",
      "aria-describedby": `${inputId}-error`,
    });
    const row = el(
      "li",
      { class: "lane-row" },
      el("div", { class: "card-bar" }, el("span", { class: "lane" }, lane.name), cells.level, cells.percent),
      usage.track,
      el("div", { class: "card-foot" }, cells.used, cells.full),
      el("div", { class: "override" }, el("label", { for: inputId }, "Override for ", el("code", {}, lane.name)), input),
      error,
    );
    return { ...cells, name: lane.name, row, input, error };
  });
  const plan = el(
    "select",
    { id: "plan", "aria-describedby": "plan-error" },
    el("option", { value: "" }, "none (the defaults)"),
    ...hello.plans.map((name) => el("option", {}, name)),
  );
  plan.value = agent.plan ?? "";
  const planError = el("p", { class: "field-error", id: "plan-error", role: "alert" });
  const formError = el("p", { class: "field-error", role: "alert" });
  const of = { key: agent.key, id: agent.id, badges, conduct, lanes, plan };

  const save = async (event) => {
    event.preventDefault();
    for (const error of [planError, formError, ...lanes.map((lane) => lane.error)]) setText(error, "");
    for (const field of [plan, ...lanes.map((lane) => lane.input)]) field.removeAttribute("aria-invalid");
    const set = lanes.map(({ name, input }) => [name, input.value.trim()]).filter(([, text]) => text);
    const body = { plan: plan.value || null, overrides: Object.fromEntries(set) };
    try {
      await admin("PUT", agentPath("/agents", of.key), body);
      await done(of, "Saved. In force from the next check.");
    } catch (problem) {
      const lane = lanes.find(({ name }) => problem.field === `overrides.${name}`);
      const [field, error] = lane ? [lane.input, lane.error] : problem.field === "plan" ? [plan, planError] : [null, formError];
      setText(error, problem.message);
      field?.setAttribute("aria-invalid", "true");
      field?.focus();
    }
  };
  const act = (method, path, body, message) => async () => {
    setText(formError, "");
    try {
      await admin(method, path, body);
      await done(of, message);
    } catch (problem) {
      setText(formError, problem.message);
    }
  };
  const path = (rest) => agentPath("/agents", of.key, rest);
  const exempt = el("button", { type: "button", id: "set-exempt" });
  of.exempt = exempt;
  exempt.addEventListener("click", () =>
    exempt.dataset.exempt === "true"
      ? act("DELETE", agentPath("/allowlist", of.key), undefined, "Limited again.")()
      : act("POST", "/allowlist", { agent: of.id }, "Exempt: never limited from now on.")(),
  );
  const clear = act("DELETE", path(), undefined, "Back to the defaults.");
  const forget = el("button", { type: "button", id: "forget", class: "danger" }, "Forget");
  forget.addEventListener("click", async () => {
    if (forget.dataset.sure !== "true") {
      forget.dataset.sure = "true";
      setText(forget, "Forget: are you sure?");
      return;
    }
    await act("POST", path("/forget"), undefined, "Forgotten: its next check starts anew.")();
    delete forget.dataset.sure;
    setText(forget, "Forget");
  });
  of.children = [
    el(
      "div",
      { class: "agent-head" },
      el("div", {}, title, badges, conduct),
      el("button", { type: "button", class: "close quiet", "aria-label": "Close", onclick: () => byId("agent").close() }, "✕"),
    ),
    el(
      "form",
      { id: "limits", novalidate: true, onsubmit: save },
      el("div", { class: "plan-row" }, el("label", { for: "plan" }, "Plan"), plan),
      planError,
      el("h3", {}, "Lanes"),
      el("p", { class: "muted small" }, "An override is a limit such as ", el("code", {}, "100/minute burst 20"), " or ", el("code", {}, "deny"), ". Leave it empty to use the plan's limit."),
      el("ul", { class: "lanes" }, ...lanes.map((lane) => lane.row)),
      formError,
      el(
        "div",
        { class: "agent-actions" },
        el("button", { class: "primary", id: "save" }, "Save plan and overrides"),
        el(
          "button",
          {
            type: "button",
            id: "clear",
            onclick: async () => {
              await clear();
              plan.value = "";
              lanes.forEach(({ input }) => (input.value = ""));
            },
          },
          "Back to the defaults",
        ),
      ),
    ),
    el("h3", {}, "Actions"),
    el(
      "div",
      { class: "agent-actions" },
      exempt,
      el("button", { type: "button", id: "reset", onclick: act("POST", path("/reset"), undefined, "Its lanes are full again.") }, "Fill its lanes"),
      el("button", { type: "button", id: "forgive", onclick: act("POST", path("/reset_violations"), undefined, "Its violations are forgiven.") }, "Forgive violations"),
      forget,
    ),
  ];
  return of;
}

async function done(of, message) {
  announce(message);
  onChange();
  await refresh();
}

function update(agent) {
  const { badges, conduct, lanes, exempt } = shown;
  const names = [agent.exempt && ["exempt", "exempt"], ["plan", agent.plan ? `plan ${agent.plan}` : "no plan"], !agent.known && ["unknown", "no record"]];
  badges.replaceChildren(...names.filter(Boolean).map(([kind, text]) => el("span", { class: "badge", "data-kind": kind }, text)));
  const text = agent.violations ? `${violations(agent.violations)} in the current window` : "No violations in the current window";
  const more = agent.in_a_row > 1 ? `, ${inARow(agent.in_a_row)}` : "";
  setText(conduct, agent.wait_ms ? `${text}${more}; wait ${span(agent.wait_ms)}.` : `${text}${more}.`);
  conduct.dataset.limited = agent.rate_limited;
  exempt.dataset.exempt = agent.exempt;
  setText(exempt, agent.exempt ? "End the exemption" : "Exempt from all limits");
  lanes.forEach((lane, index) => {
    const now = agent.lanes[index];
    lane.input.placeholder = now.planned ?? "";
    lane.usage.track.hidden = now.percent === undefined;
    if (now.percent === undefined) {
      setText(lane.used, "not limited");
      [lane.percent, lane.level, lane.full].forEach((element) => setText(element, ""));
      delete lane.row.dataset.level;
      return;
    }
    lane.row.dataset.level = now.level;
    lane.usage.show(now);
    setText(lane.percent, `${now.percent} %`);
    setText(lane.level, lane.usage.word(now));
    setText(lane.used, `${exact(now.used)} of ${exact(now.capacity)} used · ${now.limit}`);
    setText(lane.full, now.used && now.full_in_ms ? `full again in ${span(now.full_in_ms)}` : "");
  });
}

export function start(changed) {
  onChange = changed;
  const dialog = byId("agent");
  dialog.addEventListener("close", () => {
    // The event is delayed; another agent may have been opened meanwhile.
    if (dialog.open) return;
    shown = null;
    document.body.append(byId("toast") ?? "");
    dialog.replaceChildren();
  });
  // A click outside the dialog closes it.
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
}
