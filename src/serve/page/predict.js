"use strict";
const $ = (id) => document.getElementById(id);
const COLORS = ["#e53e3e", "#3182ce", "#38a169", "#805ad5", "#dd6b20", "#319795", "#d53f8c", "#b7791f"];
const SVG = "http://www.w3.org/2000/svg";
const MAX_ROWS = 10;

function setStatus(text, isFault = false) {
  $("status").textContent = text;
  $("status").classList.toggle("fault", isFault);
}

function svgElement(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

function colorsOf(boxes) {
  const names = [...new Set(boxes.map((box) => box.name))];
  return new Map(names.map((name, i) => [name, COLORS[i % COLORS.length]]));
}

function drawBoxes(answer) {
  const svg = svgElement("svg", {class: "over", viewBox: `0 0 ${answer.width} ${answer.height}`, "aria-hidden": "true"});
  const unit = Math.max(answer.width, answer.height) / 300;
  const colors = colorsOf(answer.boxes);
  for (const box of answer.boxes) {
    const color = colors.get(box.name);
    svg.append(svgElement("rect", {x: box.x, y: box.y, width: box.width, height: box.height, fill: "none", stroke: color, "stroke-width": unit}));
    const text = svgElement("text", {x: box.x + unit, y: Math.max(box.y - unit, unit * 9), fill: color, "font-size": unit * 9, "font-weight": "bold"});
    text.textContent = `${box.name} ${(box.score * 100).toFixed(0)}%`;
    svg.append(text);
  }
  $("canvas").append(svg);
}

function drawMask(png) {
  const mask = new Image();
  mask.src = "data:image/png;base64," + png;
  mask.className = "over mask";
  mask.alt = "Predicted class of each pixel";
  $("canvas").append(mask);
}

function addTable(rows) {
  const table = document.createElement("table");
  for (const [name, share] of rows.slice(0, MAX_ROWS)) {
    const row = table.insertRow();
    row.insertCell().textContent = name;
    const meter = document.createElement("meter");
    meter.value = share;
    row.insertCell().append(meter);
    const number = row.insertCell();
    number.className = "number";
    number.textContent = (share * 100).toFixed(1) + "%";
  }
  $("result").append(table);
}

async function predict(file) {
  $("canvas").replaceChildren();
  $("result").replaceChildren();
  const image = new Image();
  image.src = URL.createObjectURL(file);
  image.alt = file.name || "Pasted image";
  $("canvas").append(image);
  setStatus("Predicting...");
  const start = performance.now();
  try {
    const response = await fetch("/predict", {method: "POST", body: file});
    const answer = await response.json();
    if (!response.ok) throw new Error(answer.error.message);
    setStatus(`${answer.width} x ${answer.height} pixels, ${((performance.now() - start) / 1000).toFixed(2)} s`);
    if (answer.boxes) drawBoxes(answer);
    if (answer.boxes && answer.boxes.length === 0) $("result").textContent = "No objects found.";
    if (answer.boxes) addTable(answer.boxes.map((box) => [box.name, box.score]));
    if (answer.mask_png) drawMask(answer.mask_png);
    if (answer.classes) addTable(answer.classes.map((one) => [one.name, one.share]));
  } catch (error) {
    setStatus(error.message, true);
  }
}

function take(files) {
  if (files.length > 0) predict(files[0]);
}

$("file").addEventListener("change", () => take($("file").files));
document.addEventListener("paste", (event) => take(event.clipboardData.files));
document.addEventListener("dragover", (event) => { event.preventDefault(); $("drop").classList.add("over"); });
document.addEventListener("dragleave", () => $("drop").classList.remove("over"));
document.addEventListener("drop", (event) => { event.preventDefault(); $("drop").classList.remove("over"); take(event.dataTransfer.files); });
fetch("/v1/models").then((response) => response.json()).then((models) => {
  $("title").textContent = "Hearth: " + models.data[0].id;
  document.title = models.data[0].id + " - Hearth";
});
