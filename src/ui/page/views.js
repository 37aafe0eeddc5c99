// The views of selected runs: curves, samples, events, recipe, memory plan, report. A view is created for a node;
// show(runs, colorOf) is called when a selected run has changed.
import {Chart, dashes} from "/charts.js";
import {color, count, element, fetchJson, number} from "/dom.js";

const empty = (...text) => element("div", {class: "empty"}, ...text);

/// Charts in order: title, unit, test for keys, group. A key without such a chart has a separate chart, named after the key.
const gpu = quantity => key => new RegExp(`^gpu/\\d+/(${quantity})$`).test(key);
const kinds = [
  ["Loss", "", key => key === "loss" || key === "eval_loss", "Training"],
  ["Learning rate", "", key => key === "lr", "Training"],
  ["Gradient norm", "", key => key === "grad_norm", "Training"],
  ["Throughput", "steps/s", key => key === "steps_per_second", "Training"],
  ["GPU temperature", "C", gpu(".*_c"), "GPUs"],
  ["GPU power", "W", gpu("power_w|power_limit_w"), "GPUs"],
  ["GPU clocks", "MHz", gpu(".*_mhz"), "GPUs"],
  ["GPU memory in use", "B", gpu("memory_used_bytes"), "GPUs"],
  ["Idle time between steps", "%", gpu("idle_percent"), "GPUs"],
  ["GPU load", "%", gpu("busy_percent"), "GPUs"],
];
const isHidden = key => /^gpu\/\d+\/(memory_bytes)$/.test(key);

function kindOf(key) {
  const kind = kinds.find(([, , matches]) => matches(key));
  if (kind) return kind;
  const title = key.replace(/^eval_/, "validation ").replaceAll("_", " ");
  return [title[0].toUpperCase() + title.slice(1), "", null, key.startsWith("gpu/") ? "GPUs" : key.startsWith("eval_") ? "Validation" : "Other"];
}

const nameOf = key => ({loss: "training", eval_loss: "validation"})[key] ?? key.replace(/^gpu\/(\d+)\//, "GPU $1 ").replaceAll("_", " ");

function curves(node) {
  const settings = {smoothing: 0, logX: false, logY: false, range: null};
  const data = new Map();    // run -> reply of /api/curves
  const loading = new Set();
  const stale = new Set();   // runs that changed while they were loaded
  const charts = new Map();  // title -> Chart
  const groups = new Map();  // group -> node with charts
  let shown = [], colorOf = () => 0, timer = null, isClosed = false;

  const reset = element("button", {type: "button", hidden: true, onclick: () => zoom(null)}, "Reset zoom");
  const box = (text, key) => element("label", {}, element("input", {type: "checkbox", id: `set-${key}`, onchange: event => { settings[key] = event.target.checked; draw(); }}), text);
  const amount = element("output", {class: "soft"}, "off");
  const smoothing = element("input", {type: "range", min: 0, max: 99, value: 0, id: "smoothing", "aria-label": "Smoothing", oninput: event => {
    settings.smoothing = Math.min(0.995, event.target.value / 100);
    amount.textContent = settings.smoothing ? settings.smoothing.toFixed(2) : "off";
    draw();
  }});
  const controls = element("div", {class: "controls"}, element("label", {}, "Smoothing", smoothing, amount), box("log values", "logY"), box("log steps", "logX"), reset, element("span", {class: "soft small"}, "Drag over a chart to zoom; double-click to reset."));
  const area = element("div");
  node.append(controls, area);
  const observer = new ResizeObserver(() => redraw());
  observer.observe(area);

  function zoom(range) {
    settings.range = range;
    reset.hidden = range === null;
    for (const run of shown) load(run.name);
  }

  async function load(name) {
    if (loading.has(name)) return stale.add(name);
    loading.add(name);
    stale.delete(name);
    try {
      const range = settings.range ? {first: settings.range[0], last: settings.range[1]} : {};
      const reply = await fetchJson("/api/curves", {run: name, points: 400, ...range});
      data.set(name, reply);
      if (!reply.complete) stale.add(name);
      if (!isClosed) draw();
      setTimeout(() => finish(name), reply.complete ? 900 : 0);
    } catch {
      setTimeout(() => finish(name), 3000);
    }
  }
  function finish(name) {
    loading.delete(name);
    if (stale.has(name) && !isClosed) load(name);
  }

  function chartFor(title, unit, group) {
    if (!charts.has(title)) charts.set(title, new Chart(title, unit, settings, zoom));
    if (!groups.has(group)) {
      groups.set(group, element("div", {class: "charts"}));
      const order = ["Training", "Validation", "GPUs", "Other"].filter(name => groups.has(name));
      area.replaceChildren(...order.flatMap(name => [element("h3", {class: "group"}, name), groups.get(name)]));
    }
    const chart = charts.get(title);
    if (chart.node.parentNode !== groups.get(group)) groups.get(group).append(chart.node);
    return chart;
  }

  function draw() {
    const series = new Map(), events = [];
    for (const run of shown) {
      const reply = data.get(run.name);
      if (!reply) continue;
      for (const event of reply.events) events.push({...event, text: shown.length > 1 ? `${run.name}: ${event.text}` : event.text, color: colorOf(run.name)});
      for (const [key, curve] of Object.entries(reply.curves)) {
        if (isHidden(key) || !curve.steps.length) continue;
        const [title, unit, , group] = kindOf(key);
        if (!series.has(title)) series.set(title, {unit, group, keys: [], curves: []});
        const one = series.get(title);
        if (!one.keys.includes(key)) one.keys.push(key);
        one.curves.push({key, run: run.name, steps: curve.steps, means: curve.means, mins: curve.mins ?? curve.means, maxs: curve.maxs ?? curve.means});
      }
    }
    for (const [title, chart] of charts)
      if (!series.has(title)) {
        chart.node.remove();
        charts.delete(title);
      }
    const order = [...kinds.map(kind => kind[0]), ...[...series.keys()].sort()];
    const titles = [...series.keys()].sort((a, b) => order.indexOf(a) - order.indexOf(b));
    for (const title of titles) {
      const {unit, group, keys, curves: found} = series.get(title);
      keys.sort((a, b) => (b === "loss") - (a === "loss") || a.localeCompare(b));
      for (const one of found) {
        const at = keys.indexOf(one.key);
        // For a single run, each curve has a color. For several runs, each run has a color and each of its curves a dash pattern.
        one.color = shown.length > 1 ? colorOf(one.run) : at;
        one.dash = shown.length > 1 ? dashes[at % dashes.length] : [];
        one.order = shown.findIndex(run => run.name === one.run) * 1000 + at;
        one.name = shown.length > 1 ? one.run + (keys.length > 1 ? " " + nameOf(one.key) : "") : nameOf(one.key);
      }
      chartFor(title, unit, group).show(found.sort((a, b) => a.order - b.order), events);
    }
    for (const [group, list] of groups) {
      list.previousSibling?.toggleAttribute("hidden", !list.children.length);
      list.toggleAttribute("hidden", !list.children.length);
    }
    if (titles.length || !shown.every(run => data.get(run.name)?.complete)) return;
    groups.clear();
    area.replaceChildren(empty("The log contains no step yet."));
  }

  function redraw() {
    for (const chart of charts.values()) chart.draw();
  }

  return {
    isReusable: true,
    redraw,
    show(runs, colors) {
      const before = new Map(shown.map(run => [run.name, run.logged_at]));
      shown = runs;
      colorOf = colors;
      for (const run of runs) if (before.get(run.name) !== run.logged_at || !data.has(run.name)) load(run.name);
      draw();
    },
    close() {
      isClosed = true;
      observer.disconnect();
    },
  };
}

/// A view of details that rarely change: loads /api/run of each selected run, and draws again only if an
/// evaluation, the state or the selection has changed.
function details(node, draw) {
  let drawn = "", isClosed = false;
  return {
    isReusable: true,
    async show(runs, colorOf) {
      const key = JSON.stringify(runs.map(run => [run.name, run.state, run.evaluation, run.checkpoint]));
      if (key === drawn) return;
      drawn = key;
      const found = await Promise.all(runs.map(async run => ({...run, color: colorOf(run.name), ...await fetchJson("/api/run", {run: run.name}).catch(() => ({recipe: [], samples: {}, plan: null}))})));
      if (!isClosed && key === drawn) draw(node, found);
    },
    close() { isClosed = true; },
  };
}

function samples(node) {
  let at = null;  // index of the slider; null: the newest images
  return details(node, (area, runs) => {
    const steps = [...new Set(runs.flatMap(run => Object.values(run.samples).flat()))].sort((a, b) => a - b);
    if (!steps.length) return area.replaceChildren(empty("There are no generated images. Only runs that train image generation models save them, at every evaluation."));
    const images = element("div", {class: "images"}), label = element("output");
    const slider = element("input", {type: "range", min: 0, max: steps.length - 1, value: at ?? steps.length - 1, "aria-label": "Step of the images"});
    const show = () => {
      const step = steps[slider.value];
      label.textContent = `step ${step}`;
      slider.setAttribute("aria-valuetext", `step ${step}`);
      images.replaceChildren(...runs.flatMap(run => Object.entries(run.samples).map(([name, known]) => {
        const nearest = known.filter(other => other <= step).at(-1) ?? known[0];
        const caption = `${runs.length > 1 ? run.name + ", " : ""}image ${name}, step ${nearest}`;
        return element("figure", {}, element("img", {alt: caption, src: "/api/sample?" + new URLSearchParams({run: run.name, step: nearest, name})}), element("figcaption", {}, caption));
      })));
    };
    slider.addEventListener("input", () => {
      at = Number(slider.value) === steps.length - 1 ? null : slider.value;
      show();
    });
    area.replaceChildren(element("div", {class: "controls"}, element("label", {class: "slider"}, "Step", slider, label)), images);
    show();
  });
}

function events(node) {
  let drawn = "";
  return {
    isReusable: true,
    async show(runs, colorOf) {
      const key = JSON.stringify(runs.map(run => [run.name, run.event, run.evaluation]));
      if (key === drawn) return;
      drawn = key;
      const replies = await Promise.all(runs.map(run => fetchJson("/api/curves", {run: run.name, points: 2}).catch(() => ({events: []}))));
      if (key !== drawn) return;
      const all = replies.flatMap((reply, i) => reply.events.map(event => ({...event, run: runs[i].name}))).sort((a, b) => b.step - a.step);
      const rows = all.map(event => element("li", {}, element("span", {class: "dot", run: colorOf(event.run)}), element("span", {class: "soft"}, `step ${event.step}`), element("span", {}, runs.length > 1 ? element("b", {}, event.run + ": ") : "", event.text)));
      node.replaceChildren(rows.length ? element("ul", {class: "events"}, ...rows) : empty("There are no events: no rollback, restart, pause or throttling."));
    },
  };
}

function recipe(node) {
  let onlyDifferences = null, filter = "";
  return details(node, (area, runs) => {
    const keys = [...new Set(runs.flatMap(run => run.recipe.map(([key]) => key)))];
    if (!keys.length) return area.replaceChildren(empty("The run folder has no readable config.yaml."));
    const values = runs.map(run => new Map(run.recipe));
    const differs = key => values.some(one => one.get(key) !== values[0].get(key));
    const body = element("tbody");
    const fill = () => body.replaceChildren(...keys.filter(key => (!(onlyDifferences ?? runs.length > 1) || differs(key)) && key.includes(filter))
      .map(key => element("tr", {class: differs(key) ? "differs" : ""}, element("td", {}, element("code", {}, key)), ...values.map(one => element("td", {}, one.get(key) ?? "–")))));
    const only = element("input", {type: "checkbox", onchange: event => { onlyDifferences = event.target.checked; fill(); }});
    only.checked = onlyDifferences ?? runs.length > 1;
    const search = element("input", {type: "search", placeholder: "Filter keys", "aria-label": "Filter keys", value: filter, oninput: event => { filter = event.target.value; fill(); }});
    const head = element("tr", {}, element("th", {scope: "col"}, "key"), ...runs.map(run => element("th", {scope: "col"}, run.name)));
    area.replaceChildren(element("div", {class: "controls"}, search, runs.length > 1 ? element("label", {}, only, "only differences") : null), element("div", {class: "scroll"}, element("table", {}, element("thead", {}, head), body)));
    fill();
  });
}

const parts = [["weight_bytes", "weights"], ["frozen_bytes", "frozen weights"], ["optimizer_bytes", "optimizer and state"], ["gradient_bytes", "gradients"], ["activation_bytes", "activations"], ["workspace_bytes", "workspace"], ["staging_bytes", "staging"]];

function plan(node) {
  return details(node, (area, runs) => {
    const widest = Math.max(1, ...runs.map(run => run.plan?.peak_bytes ?? 0));
    area.replaceChildren(...runs.map(run => {
      if (!run.plan) return empty(`${run.name} has no plan.json. Newer versions of Hearth write this file.`);
      const used = parts.filter(([key]) => run.plan[key] > 0), total = used.reduce((sum, [key]) => sum + run.plan[key], 0);
      const bar = element("div", {class: "memory", "aria-hidden": "true"}, ...used.map(([key]) => {
        const part = element("i");
        part.style.width = 100 * run.plan[key] / total * Math.min(1, run.plan.peak_bytes / widest) + "%";
        part.style.background = color(parts.findIndex(one => one[0] === key));
        return part;
      }));
      const row = (name, value, index) => {
        const swatch = element("span", {class: "swatch"});
        if (index >= 0) swatch.style.background = color(index);
        return element("tr", {}, element("td", {}, swatch, name), element("td", {class: "number"}, value));
      };
      const rows = used.map(([key, name]) => row(name, number(run.plan[key], "B"), parts.findIndex(one => one[0] === key)));
      rows.push(row("arena: activations, gradients and workspace, packed", number(run.plan.arena_bytes, "B"), -1), row("lower bound of the arena", number(run.plan.bound_bytes, "B"), -1));
      if (run.plan.host_bytes) rows.push(row("offloaded to host memory", number(run.plan.host_bytes, "B"), -1));
      if (run.plan.recomputed_values) rows.push(row("recomputed values", count(run.plan.recomputed_values), -1));
      if (run.plan.offloaded_values) rows.push(row("offloaded values", count(run.plan.offloaded_values), -1));
      if (run.plan.fp8_values) rows.push(row("saved activations in fp8", number(run.plan.fp8_values), -1));
      return element("section", {class: "card"}, element("header", {}, element("h3", {}, runs.length > 1 ? run.name : "Memory of a training step"), element("span", {class: "soft"}, `peak ${number(run.plan.peak_bytes, "B")}, ${count(run.plan.parameters)} parameters, micro-batch ${run.plan.batch}`)), bar, element("table", {}, element("tbody", {}, ...rows)));
    }));
  });
}

function report(node) {
  let drawn = "";
  return {
    isReusable: true,
    show([run]) {
      const key = JSON.stringify([run.name, run.report, run.state]);
      if (key === drawn) return;
      drawn = key;
      node.replaceChildren(run.report ? element("iframe", {title: `Report of ${run.name}`, sandbox: "", src: "/api/report?" + new URLSearchParams({run: run.name})}) : empty("A run writes its report when it ends. The report shows sample predictions, the confusion matrix and the memory of a step."));
    },
  };
}

export const views = {curves, samples, events, recipe, plan, report};
