// Line charts on a canvas: several downsampled curves, with bands from min to max, smoothing, logarithmic axes, events,
// a tooltip and zoom by dragging.

import {axisNumber, color, element, number, numColors} from "/dom.js";

/// Dash patterns that distinguish curves of the same color.
export const dashes = [[], [6, 4], [2, 3], [9, 3, 2, 3]];

/// Smooths values by an exponential moving average with bias correction. Short curves, such as those of
/// evaluations, are not smoothed.
function smoothed(values, factor) {
  if (!factor || values.length < 40) return values;
  let sum = 0, weight = 0;
  return values.map(value => {
    if (value === null) return null;
    sum = sum * factor + value * (1 - factor);
    weight = weight * factor + 1 - factor;
    return sum / weight;
  });
}

/// Returns round tick values within [low, high].
function ticks(low, high, count, isLog) {
  if (isLog) {
    const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
    const every = Math.max(1, Math.ceil((last - first) / count)), at = [];
    for (let power = first; power <= last; power += every)
      for (const digit of last - first <= 2 ? [1, 2, 5] : [1]) at.push(digit * 10 ** power);
    return at.filter(value => value >= low * 0.999 && value <= high * 1.001);
  }
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find(digit => digit * power >= rough) ?? 10), at = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-6; value += step) at.push(Math.abs(value) < step * 1e-6 ? 0 : value);
  return at;
}

/// Returns the limits of an axis for these values. On a linear axis, a few values far above the others are cut off.
function limits(values, isLog) {
  const usable = values.filter(value => Number.isFinite(value) && (!isLog || value > 0)).sort((a, b) => a - b);
  if (!usable.length) return isLog ? [0.1, 1] : [0, 1];
  let low = usable[0], high = usable[usable.length - 1];
  if (isLog) return low === high ? [low / 2, high * 2] : [low, high];
  const bulk = usable[Math.floor((usable.length - 1) * 0.98)];
  if (high - low > 4 * (bulk - low) && bulk > low) high = low + 1.5 * (bulk - low);
  if (low === high) return low === 0 ? [0, 1] : [low - Math.abs(low) * 0.1, low + Math.abs(low) * 0.1];
  const padding = (high - low) * 0.05;
  return [low > 0 && low < high / 3 ? 0 : low - padding, high + padding];
}

/// Margins of a chart in pixels.
const margin = {left: 54, right: 10, top: 8, bottom: 24};
let tip = null;

function hideTip() {
  tip?.remove();
  tip = null;
}

function line(index, dash) {
  const stroke = element("line", {x1: 0, x2: 22, y1: 5, y2: 5, stroke: color(index), "stroke-width": 2.4, "stroke-dasharray": dash.join(" ")});
  return element("svg", {width: 22, height: 10, "aria-hidden": "true"}, stroke);
}

export class Chart {
  /// `settings`: {smoothing, logX, logY, range}, shared by all charts. `zoom`: called with [first, last], or null to reset.
  constructor(title, unit, settings, zoom) {
    Object.assign(this, {title, unit, settings, zoom, series: [], events: [], hover: null, drag: null});
    this.canvas = element("canvas", {role: "img"});
    this.legend = element("div", {class: "legend"});
    this.node = element("section", {class: "card", "aria-label": title}, element("header", {}, element("h3", {}, title)), this.canvas, this.legend);
    this.canvas.addEventListener("pointermove", event => this.move(event));
    this.canvas.addEventListener("pointerleave", () => this.leave());
    this.canvas.addEventListener("pointerdown", event => { if (event.pointerType === "mouse") this.drag = this.stepAt(event); });
    this.canvas.addEventListener("pointerup", event => this.release(event));
    this.canvas.addEventListener("dblclick", () => this.zoom(null));
  }

  /// Replaces the curves, {name, color, dash, steps, means, mins, maxs}, and the events, {step, text, color}.
  show(series, events) {
    this.series = series;
    this.events = events;
    this.legend.replaceChildren(...series.map(one => element("span", {}, line(one.color, one.dash), one.name)));
    const last = series.map(one => `${one.name} ${number(one.means.at(-1), this.unit)}`).join(", ");
    this.canvas.setAttribute("aria-label", `${this.title}, last values: ${last}`);
    this.draw();
  }

  /// Maps a value within [low, high] to a pixel within [from, to].
  pixelOf(value, [low, high], from, to, isLog) {
    const share = isLog ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
    return from + share * (to - from);
  }
  x(step) { return this.pixelOf(step, this.spanX, margin.left, this.width - margin.right, this.settings.logX); }
  y(value) { return Math.max(margin.top - 3, this.pixelOf(value, this.spanY, this.height - margin.bottom, margin.top, this.settings.logY)); }

  measure() {
    const {logX, logY, range} = this.settings;
    let first = Infinity, last = -Infinity;
    const values = [];
    for (const one of this.series) {
      // The learning rate is exact.
      one.smooth = this.title === "Learning rate" ? one.means : smoothed(one.means, this.settings.smoothing);
      for (let i = 0; i < one.steps.length; ++i) {
        if (logX && one.steps[i] < 1) continue;
        first = Math.min(first, one.steps[i]);
        last = Math.max(last, one.steps[i]);
        values.push(one.smooth[i]);
        if (!this.settings.smoothing) values.push(one.mins[i], one.maxs[i]);
      }
    }
    if (range) [first, last] = range;
    else if (!logX) first = Math.min(first, 0);
    if (logX) first = Math.max(1, first);
    if (!(last > first)) [first, last] = Number.isFinite(last) ? [Math.max(logX ? 1 : 0, last - 1), last + 1] : [logX ? 1 : 0, 10];
    this.spanX = [first, last];
    this.spanY = limits(values, logY);
  }

  draw() {
    const scale = window.devicePixelRatio || 1, box = this.canvas.getBoundingClientRect();
    if (!box.width) return;
    this.width = box.width;
    this.height = box.height;
    this.canvas.width = Math.round(box.width * scale);
    this.canvas.height = Math.round(box.height * scale);
    const to = this.canvas.getContext("2d"), style = getComputedStyle(document.body);
    to.scale(scale, scale);
    this.colors = Array.from({length: numColors}, (_, i) => style.getPropertyValue(`--c${i}`));
    this.measure();
    this.drawAxes(to, style.getPropertyValue("--line"), style.getPropertyValue("--soft"), style.fontFamily);
    to.save();
    to.beginPath();
    to.rect(margin.left, margin.top - 4, this.width - margin.left - margin.right, this.height - margin.top - margin.bottom + 5);
    to.clip();
    this.drawEvents(to);
    for (const one of this.series) this.drawCurve(to, one);
    if (this.hover !== null) this.drawHover(to, style.getPropertyValue("--soft"));
    to.restore();
  }

  drawAxes(to, lineColor, textColor, font) {
    to.font = `12px ${font}`;
    to.lineWidth = 1;
    to.fillStyle = textColor;
    to.strokeStyle = lineColor;
    to.textAlign = "right";
    to.textBaseline = "middle";
    const values = ticks(...this.spanY, 4, this.settings.logY);
    const isNarrow = new Set(values.map(value => number(value))).size < values.length;
    const label = value => this.unit === "B" ? number(value, "B").replace("iB", "") : isNarrow ? String(Number(value.toPrecision(6))) : number(value);
    for (const value of values) {
      const y = Math.round(this.y(value)) + 0.5;
      to.beginPath();
      to.moveTo(margin.left, y);
      to.lineTo(this.width - margin.right, y);
      to.stroke();
      to.fillText(label(value), margin.left - 7, y, margin.left - 9);
    }
    to.textAlign = "center";
    to.textBaseline = "top";
    const at = ticks(...this.spanX, Math.max(3, Math.floor(this.width / 110)), this.settings.logX);
    for (const value of at) to.fillText(axisNumber(value), Math.min(this.x(value), this.width - 18), this.height - margin.bottom + 8);
  }

  drawEvents(to) {
    to.lineWidth = 1;
    for (const event of this.events) {
      const x = this.x(event.step);
      to.strokeStyle = to.fillStyle = this.colors[event.color % numColors];
      to.globalAlpha = 0.45;
      to.setLineDash([3, 3]);
      to.beginPath();
      to.moveTo(x, margin.top);
      to.lineTo(x, this.height - margin.bottom);
      to.stroke();
      to.globalAlpha = 1;
      to.setLineDash([]);
      to.beginPath();
      to.moveTo(x - 5, margin.top - 4);
      to.lineTo(x + 5, margin.top - 4);
      to.lineTo(x, margin.top + 4);
      to.fill();
    }
  }

  drawCurve(to, one) {
    const usable = i => one.smooth[i] !== null && (!this.settings.logY || one.smooth[i] > 0) && (!this.settings.logX || one.steps[i] >= 1);
    const path = values => {
      to.beginPath();
      let started = false;
      for (let i = 0; i < one.steps.length; ++i) {
        if (!usable(i)) continue;
        if (started) to.lineTo(this.x(one.steps[i]), this.y(values[i]));
        else to.moveTo(this.x(one.steps[i]), this.y(values[i]));
        started = true;
      }
    };
    to.strokeStyle = to.fillStyle = this.colors[one.color % numColors];
    to.lineJoin = "round";
    if (this.settings.smoothing) {
      to.globalAlpha = 0.22;
      to.lineWidth = 1;
      path(one.means);
      to.stroke();
    } else if (one.mins !== one.means) {
      path(one.maxs);
      for (let i = one.steps.length - 1; i >= 0; --i)
        if (usable(i)) to.lineTo(this.x(one.steps[i]), this.y(this.settings.logY && one.mins[i] <= 0 ? this.spanY[0] : one.mins[i]));
      to.globalAlpha = 0.16;
      to.fill();
    }
    to.globalAlpha = 1;
    to.lineWidth = 1.8;
    to.setLineDash(one.dash);
    path(one.smooth);
    to.stroke();
    to.setLineDash([]);
    const shown = one.steps.filter((_, i) => usable(i)).length;
    if (shown > 40 && one.steps.length > 1) return;
    for (let i = 0; i < one.steps.length; ++i) {
      if (!usable(i)) continue;
      to.beginPath();
      to.arc(this.x(one.steps[i]), this.y(one.smooth[i]), shown === 1 ? 4 : 2.4, 0, 7);
      to.fill();
    }
  }

  drawHover(to, color) {
    const x = this.x(this.hover);
    if (this.drag !== null) {
      const from = this.x(this.drag);
      to.globalAlpha = 0.15;
      to.fillStyle = color;
      to.fillRect(Math.min(from, x), margin.top, Math.abs(x - from), this.height - margin.top - margin.bottom);
      to.globalAlpha = 1;
    }
    to.strokeStyle = color;
    to.lineWidth = 1;
    to.beginPath();
    to.moveTo(x, margin.top);
    to.lineTo(x, this.height - margin.bottom);
    to.stroke();
  }

  stepAt(event) {
    const share = (event.clientX - this.canvas.getBoundingClientRect().left - margin.left) / (this.width - margin.left - margin.right);
    const [first, last] = this.spanX, at = Math.min(1, Math.max(0, share));
    return this.settings.logX ? first * (last / first) ** at : first + at * (last - first);
  }

  move(event) {
    if (!this.spanX) return;
    this.hover = this.stepAt(event);
    this.draw();
    const rows = [];
    for (const one of this.series) {
      let nearest = -1;
      for (let i = 0; i < one.steps.length; ++i)
        if (one.smooth[i] !== null && (nearest < 0 || Math.abs(one.steps[i] - this.hover) < Math.abs(one.steps[nearest] - this.hover))) nearest = i;
      if (nearest >= 0) rows.push(element("div", {}, line(one.color, one.dash), `${one.name} at ${one.steps[nearest]}`, element("b", {}, number(one.smooth[nearest], this.unit))));
    }
    const reach = (this.spanX[1] - this.spanX[0]) / this.width * 8;
    for (const one of this.events.filter(one => Math.abs(one.step - this.hover) < reach).slice(0, 4)) rows.push(element("div", {}, `Step ${one.step}: ${one.text}`));
    hideTip();
    if (!rows.length) return;
    tip = element("div", {class: "tip", role: "presentation"}, ...rows.slice(0, 16));
    document.body.append(tip);
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(6, event.clientX + box.width + 24 > window.innerWidth ? event.clientX - box.width - 14 : event.clientX + 16) + "px";
    tip.style.top = Math.max(6, Math.min(event.clientY + 14, window.innerHeight - box.height - 8)) + "px";
  }

  leave() {
    this.hover = this.drag = null;
    hideTip();
    this.draw();
  }

  release(event) {
    if (this.drag === null) return;
    const [first, last] = [this.drag, this.stepAt(event)].sort((a, b) => a - b);
    this.drag = null;
    if (last - first > (this.spanX[1] - this.spanX[0]) / 50) this.zoom([Math.floor(first), Math.ceil(last)]);
  }
}
