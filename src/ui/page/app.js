// The live page: the list of runs, the selection, updates by server-sent events, and the summary of a run.
import {axisNumber, color, count, duration, element, fetchJson, number, numColors} from "/dom.js";
import {views} from "/views.js";

const byId = id => document.getElementById(id);
const runs = new Map();      // name -> summary from the server
const rows = new Map();      // name -> row of the list
const state = {selected: [], tab: "curves", canContinue: false, pending: new Map()};

function message(text, isBad) {
  const node = element("div", {class: isBad ? "message bad" : "message"}, text);
  byId("messages").append(node);
  setTimeout(() => node.remove(), isBad ? 20000 : 6000);
}

// Selection. The page shows details of the first selected run, the focused run. The fragment of the URL stores the selection.

const focused = () => runs.get(state.selected[0]);
const colorOf = name => Math.max(0, state.selected.indexOf(name));

function saveAddress() {
  const text = new URLSearchParams({run: state.selected.join("\n"), tab: state.tab});
  history.replaceState(null, "", "#" + text);
}

function readAddress() {
  const text = new URLSearchParams(location.hash.slice(1));
  state.selected = (text.get("run") ?? "").split("\n").filter(name => name);
  if (views[text.get("tab")]) state.tab = text.get("tab");
}

function select(names) {
  state.selected = names.slice(0, numColors);
  saveAddress();
  for (const name of rows.keys()) markRow(name);
  showSummary();
  showView();
}

function toggle(name) {
  const others = state.selected.filter(other => other !== name);
  if (others.length < state.selected.length) select(others);
  else if (state.selected.length < numColors) select([...state.selected, name]);
  else {
    markRow(name);
    message(`At most ${numColors} runs can be compared; clear the box of another run first.`, true);
  }
}

// List of runs.

function sparkline(losses) {
  const values = losses.filter(value => value !== null);
  if (values.length < 2) return "";
  const low = Math.min(...values), high = Math.max(...values);
  const y = value => high > low ? 20 - 18 * (value - low) / (high - low) : 11;
  return values.map((value, i) => `${i ? "L" : "M"}${(i * 100 / (values.length - 1)).toFixed(1)} ${y(value).toFixed(1)}`).join("");
}

const share = run => run.total > 0 ? Math.min(100, 100 * run.step / run.total) : 0;
const left = run => run.state === "running" && run.step_seconds > 0 ? (run.total - run.step) * run.step_seconds : NaN;
const bestOf = run => run.best_step < 0 ? "" : `${run.best_name.replace("eval_", "")} ${number(run.best)}`;

function makeRow(name) {
  const check = element("input", {type: "checkbox", "aria-label": `Compare ${name}`, onchange: () => toggle(name)});
  const path = element("path");
  const spark = element("svg", {class: "spark", viewBox: "0 0 100 22", preserveAspectRatio: "none", "aria-hidden": "true"}, path);
  const title = element("button", {class: "name", type: "button", title: name, onclick: () => select([name])}, name);
  const fill = element("i"), stateText = element("span", {class: "state"}), progress = element("span"), model = element("span"), best = element("span");
  const node = element("li", {class: "run"}, check, title, spark, element("div", {class: "bar"}, fill),
    element("div", {class: "meta"}, stateText, progress), element("div", {class: "meta"}, model, best));
  const row = {node, check, title, path, fill, stateText, progress, model, best};
  rows.set(name, row);
  return row;
}

function markRow(name) {
  const {node, check, title} = rows.get(name), isSelected = state.selected.includes(name);
  check.checked = isSelected;
  node.classList.toggle("focused", state.selected[0] === name);
  title.setAttribute("aria-current", state.selected[0] === name);
  if (isSelected) node.style.setProperty("--run", color(colorOf(name)));
  else node.style.removeProperty("--run");
}

function fillRow(run) {
  const row = rows.get(run.name) ?? makeRow(run.name);
  row.node.className = `run ${run.state}`;
  row.path.setAttribute("d", sparkline(run.losses));
  row.fill.style.width = share(run) + "%";
  row.stateText.textContent = run.state;
  row.progress.textContent = run.total ? `step ${count(run.step)} of ${count(run.total)}` : "no step yet";
  row.model.textContent = run.model;
  row.best.textContent = run.state === "running" && left(run) >= 0 ? `${duration(left(run))} left` : bestOf(run);
  markRow(run.name);
}

function isBetter(a, b) {
  if (a.best_step < 0 || b.best_step < 0) return b.best_step < 0 ? a.best_step >= 0 : false;
  if (a.best_name !== b.best_name) return a.best_name < b.best_name;
  return a.best_name === "eval_loss" ? a.best < b.best : a.best > b.best;
}

function sortRows() {
  const filter = byId("filter").value.toLowerCase();
  const orders = {
    recent: (a, b) => (b.state === "running") - (a.state === "running") || b.logged_at - a.logged_at,
    name: (a, b) => a.name.localeCompare(b.name, undefined, {numeric: true}),
    best: (a, b) => isBetter(a, b) ? -1 : isBetter(b, a) ? 1 : 0,
  };
  const shown = [...runs.values()].filter(run => `${run.name} ${run.model} ${run.state}`.toLowerCase().includes(filter)).sort(orders[byId("order").value]);
  const list = byId("runs"), nodes = shown.map(run => rows.get(run.name).node);
  if (nodes.length !== list.children.length || nodes.some((node, i) => list.children[i] !== node)) list.replaceChildren(...nodes);
  const running = [...runs.values()].filter(run => run.state === "running").length;
  const text = `${runs.size} run${runs.size === 1 ? "" : "s"}, ${running} running` + (shown.length < runs.size ? `, ${shown.length} shown` : "");
  if (byId("count").textContent !== text) byId("count").textContent = text;
  document.title = running ? `Hearth: ${running} running` : "Hearth";
}

// Summary of the focused run.

async function act(path, run, done) {
  state.pending.set(run.name, path);
  showSummary();
  try {
    await fetchJson(path, {run: run.name}, "POST");
    message(done);
  } catch (error) {
    message(error.message, true);
  }
  setTimeout(() => {
    state.pending.delete(run.name);
    showSummary();
  }, 4000);
}

function askToStop(run) {
  byId("question").textContent = `Stop ${run.name}? The run saves a checkpoint after the current step, and you can continue it later.`;
  const dialog = byId("confirm");
  dialog.returnValue = "no";
  dialog.onclose = () => {
    if (dialog.returnValue === "yes") act("/api/stop", run, `${run.name} stops after the current step.`);
  };
  dialog.showModal();
}

function actionsOf(run) {
  const isPending = state.pending.has(run.name), actions = element("div", {class: "actions"});
  const add = (text, kind, action) => actions.append(element("button", {type: "button", class: kind, id: `act-${text.split(" ")[0].toLowerCase()}`, disabled: isPending, onclick: action}, text));
  if (run.state === "running") {
    add("Save checkpoint", "", () => act("/api/checkpoint", run, `${run.name} saves a checkpoint after the current step.`));
    add("Stop", "danger", () => askToStop(run));
  } else if (state.canContinue && run.state !== "done" && run.checkpoint >= 0) {
    add("Continue", "primary", () => act("/api/continue", run, `${run.name} continues from step ${run.checkpoint}.`));
  }
  return actions;
}

function noteOf(run) {
  const silence = Date.now() / 1000 - run.logged_at;
  if (run.state === "crashed" && run.total)
    return `The process of this run has ended; the last line of the log is ${duration(silence)} old.` + (run.checkpoint >= 0 ? ` The newest checkpoint is of step ${run.checkpoint}.` : " There is no checkpoint, so the run must be started again.") + (run.event ? ` Last event: ${run.event}` : "");
  if (run.state === "running" && run.total && silence > Math.max(60, 20 * run.step_seconds)) return `The run has written no log line for ${duration(silence)}.`;
  return run.event ? `Last event: ${run.event}` : "";
}

function showSummary() {
  const run = focused(), node = byId("summary");
  if (!run) {
    node.className = "";
    node.replaceChildren(element("h2", {}, runs.size ? "Select a run" : "No runs yet"));
    return;
  }
  const fact = (name, value) => element("div", {class: "fact"}, element("span", {}, name), element("b", {}, value));
  const facts = [fact(run.total ? `step of ${axisNumber(run.total)}` : "step", run.total ? count(run.step) : "–")];
  if (run.state === "running") facts.push(fact("time left", duration(left(run))));
  facts.push(fact("time", duration(run.elapsed)), fact("steps/s", run.step_seconds > 0 ? number(Number((1 / run.step_seconds).toPrecision(3))) : "–"), fact("loss", number(run.losses.at(-1))));
  if (run.best_step >= 0) facts.push(fact(`best ${run.best_name.replace("eval_", "")}`, `${number(run.best)}`));
  if (run.checkpoint >= 0) facts.push(fact("checkpoint", count(run.checkpoint)));
  const fill = element("i");
  fill.style.width = share(run) + "%";
  const bar = element("div", {class: "bar", role: "progressbar", "aria-label": "Progress", "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": Math.round(share(run))}, fill);
  const note = noteOf(run), active = document.activeElement?.id;
  node.className = run.state;
  node.replaceChildren(element("div", {class: "head"}, element("h2", {}, run.name), element("span", {class: "state"}, run.state), element("span", {class: "soft"}, run.model), actionsOf(run)),
    bar, element("div", {class: "facts"}, ...facts), ...(note ? [element("p", {class: "note"}, note)] : []));
  if (active?.startsWith("act-")) byId(active)?.focus();
}

// Views.

let view = null;

function showView() {
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const isShown = tab.id === `tab-${state.tab}`;
    tab.setAttribute("aria-selected", isShown);
    tab.tabIndex = isShown ? 0 : -1;
  }
  byId("view").setAttribute("aria-labelledby", `tab-${state.tab}`);
  const selected = state.selected.map(name => runs.get(name)).filter(run => run);
  if (view?.tab !== state.tab || !view.isReusable) {
    view?.close?.();
    byId("view").replaceChildren();
    view = views[state.tab](byId("view"));
    view.tab = state.tab;
  }
  if (selected.length) view.show(selected, colorOf);
  else byId("view").replaceChildren(element("div", {class: "empty"}, runs.size ? "Select one or more runs in the list." : element("span", {}, "Start a run with ", element("code", {}, "hearth train demo"), "; it then appears here.")));
  view.isReusable = selected.length > 0 && view.isReusable !== false;
}

function showTab(tab) {
  state.tab = tab;
  saveAddress();
  showView();
}

function takeRuns(changes) {
  for (const name of changes.removed) {
    rows.get(name)?.node.remove();
    rows.delete(name);
    runs.delete(name);
  }
  for (const run of changes.runs) {
    const before = runs.get(run.name);
    if (before && before.state !== run.state) message(`${run.name}: ${run.state}`, run.state === "crashed");
    runs.set(run.name, run);
    fillRow(run);
  }
  sortRows();
  const isKnown = state.selected.some(name => runs.has(name));
  if (!isKnown && runs.size) {
    const first = byId("runs").querySelector(".name");
    if (first) return select([first.title]);
  }
  if (changes.removed.length || changes.runs.some(run => state.selected.includes(run.name))) {
    showSummary();
    showView();
  } else if (!runs.size) {
    showSummary();
    showView();
  }
}

function connect() {
  const source = new EventSource("/api/updates"), status = byId("connection");
  source.addEventListener("server", event => {
    const server = JSON.parse(event.data);
    state.canContinue = server.can_continue;
    byId("root").textContent = server.root;
    status.textContent = "live";
    status.className = "live";
  });
  source.addEventListener("runs", event => takeRuns(JSON.parse(event.data)));
  source.addEventListener("message", event => message(JSON.parse(event.data).text, true));
  source.onerror = () => {
    status.textContent = "no connection; if hearth ui has ended, start it again";
    status.className = "lost";
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, 3000);
  };
}

byId("filter").addEventListener("input", sortRows);
byId("order").addEventListener("change", sortRows);
const tabs = [...document.querySelectorAll("[role=tab]")];
for (const [i, tab] of tabs.entries()) {
  tab.addEventListener("click", () => showTab(tab.id.slice(4)));
  tab.addEventListener("keydown", event => {
    const move = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (!move) return;
    const next = tabs[(i + move + tabs.length) % tabs.length];
    next.focus();
    next.click();
  });
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => view?.redraw?.());
addEventListener("hashchange", () => {
  readAddress();
  select(state.selected);
});
setInterval(showSummary, 5000);
readAddress();
connect();
