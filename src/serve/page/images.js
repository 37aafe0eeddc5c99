"use strict";
const $ = (id) => document.getElementById(id);

function setStatus(text, isFault = false) {
  $("status").textContent = text;
  $("status").classList.toggle("fault", isFault);
}

async function generate() {
  const request = {prompt: $("prompt").value};
  for (const id of ["n", "steps", "guidance", "seed"]) if ($(id).value !== "") request[id] = Number($(id).value);
  $("send").disabled = true;
  setStatus("Generating...");
  const start = performance.now();
  try {
    const response = await fetch("/v1/images/generations", {method: "POST", body: JSON.stringify(request), headers: {"Content-Type": "application/json"}});
    const answer = await response.json();
    if (!response.ok) throw new Error(answer.error.message);
    setStatus(`seed ${answer.seed}, ${((performance.now() - start) / 1000).toFixed(1)} s`);
    for (const {b64_json} of answer.data) {
      const image = new Image();
      image.src = "data:image/png;base64," + b64_json;
      image.alt = request.prompt;
      $("images").prepend(image);
    }
  } catch (error) {
    setStatus(error.message, true);
  }
  $("send").disabled = false;
}

$("form").addEventListener("submit", (event) => { event.preventDefault(); generate(); });
$("prompt").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); generate(); }
});
fetch("/v1/models").then((response) => response.json()).then((models) => {
  $("title").textContent = "Hearth: " + models.data[0].id;
  document.title = models.data[0].id + " - Hearth";
});
