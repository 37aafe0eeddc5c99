"use strict";
const $ = (id) => document.getElementById(id);
let messages = [];
let running = null;

// Text of users and models is set as textContent only, so that it is never parsed as HTML.
function addMessage(role, text) {
  const box = document.createElement("div");
  box.className = "message " + role;
  const name = document.createElement("b");
  name.textContent = role === "user" ? "You" : "Model";
  const body = document.createElement("div");
  body.textContent = text;
  box.append(name, body);
  $("log").append(box);
  box.scrollIntoView({block: "end"});
  return body;
}

function setStatus(text, isFault = false) {
  $("status").textContent = text;
  $("status").classList.toggle("fault", isFault);
}

function numberOf(id) {
  return $(id).value === "" ? undefined : Number($(id).value);
}

function requestOf(text) {
  const request = {
    model: $("model").value, stream: true, stream_options: {include_usage: true},
    temperature: numberOf("temperature"), top_p: numberOf("top_p"), max_tokens: numberOf("max_tokens"), seed: numberOf("seed"),
  };
  if ($("raw").checked) return ["/v1/completions", {...request, prompt: text}];
  const system = $("system").value.trim();
  const all = system === "" ? messages : [{role: "system", content: system}, ...messages];
  return ["/v1/chat/completions", {...request, messages: all}];
}

// Calls onEvent with the data of each server-sent event.
async function readEvents(response, onEvent) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) if (part.startsWith("data: ") && part !== "data: [DONE]") onEvent(JSON.parse(part.slice(6)));
  }
}

async function send() {
  const text = $("text").value;
  if (running !== null || text.trim() === "") return;
  messages.push({role: "user", content: text});
  addMessage("user", text);
  $("text").value = "";
  const body = addMessage("assistant", "");
  running = new AbortController();
  $("send").disabled = true;
  $("stop").disabled = false;
  setStatus("Waiting for the model...");
  let answer = "", usage = null, start = 0;
  try {
    const [path, request] = requestOf(text);
    const response = await fetch(path, {method: "POST", body: JSON.stringify(request), signal: running.signal, headers: {"Content-Type": "application/json"}});
    if (!response.ok) throw new Error((await response.json()).error.message);
    await readEvents(response, (event) => {
      if (event.error) throw new Error(event.error.message);
      if (event.usage) usage = event.usage;
      const choice = event.choices[0];
      const piece = choice ? (choice.delta ? choice.delta.content : choice.text) : null;
      if (!piece) return;
      if (start === 0) { start = performance.now(); setStatus("Answering..."); }
      answer += piece;
      body.textContent = answer;
      body.scrollIntoView({block: "end"});
    });
    const seconds = (performance.now() - start) / 1000;
    setStatus(usage ? `${usage.prompt_tokens} prompt tokens, ${usage.completion_tokens} answer tokens, ${(usage.completion_tokens / seconds).toFixed(1)} tokens/s` : "");
  } catch (error) {
    if (error.name === "AbortError") setStatus("Stopped.");
    else setStatus(error.message, true);
  }
  if (answer === "") {
    messages.pop();
    body.parentElement.remove();
  } else {
    messages.push({role: "assistant", content: answer});
  }
  running = null;
  $("send").disabled = false;
  $("stop").disabled = true;
  $("text").focus();
}

function stop() {
  if (running !== null) running.abort();
}

async function open() {
  const models = (await (await fetch("/v1/models")).json()).data;
  for (const model of models) $("model").add(new Option(model.id, model.id));
  $("title").textContent = "Hearth: " + models[0].id;
  document.title = models[0].id + " - Hearth";
  const props = await (await fetch("/props")).json();
  if (props.has_chat_template) return;
  $("raw").checked = true;
  $("raw").disabled = true;
  setStatus("This model has no chat template: it continues your text.");
}

$("form").addEventListener("submit", (event) => { event.preventDefault(); send(); });
$("stop").addEventListener("click", stop);
$("clear").addEventListener("click", () => { stop(); messages = []; $("log").replaceChildren(); $("text").focus(); });
$("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
});
document.addEventListener("keydown", (event) => { if (event.key === "Escape") stop(); });
open().catch((error) => setStatus(error.message, true));
