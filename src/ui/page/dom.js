// Helper functions of the page: they create elements, format numbers and send requests.

export const numColors = 10;
/// Returns the CSS color of a curve.
export const color = index => `var(--c${index % numColors})`;
/// Creates an element with event handlers, attributes and children. Text from files is set as text, never as HTML.
export function element(tag, properties = {}, ...children) {
  const node = tag === "svg" || tag === "path" || tag === "line" ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "run") node.style.setProperty("--run", color(value));
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter(child => child !== null && child !== undefined));
  return node;
}

/// Formats a number with about four significant digits.
export function number(value, unit = "") {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (unit === "B") {
    const power = Math.min(4, Math.max(0, Math.floor(Math.log2(Math.abs(value) || 1) / 10)));
    return (value / 1024 ** power).toFixed(power ? 2 : 0) + " " + ["B", "KiB", "MiB", "GiB", "TiB"][power];
  }
  const size = Math.abs(value);
  const text = size !== 0 && (size < 1e-3 || size >= 1e6) ? value.toExponential(2) : String(Number(value.toPrecision(4)));
  return unit ? text + " " + unit : text;
}

/// Formats a number of steps as a short text: "800", "20k", "1.5M".
export const axisNumber = value => value >= 1e6 ? number(value / 1e6) + "M" : value >= 1e4 ? number(value / 1e3) + "k" : number(value);

/// Formats an integer with separators: "1,000,000".
export const count = value => value.toLocaleString("en-US");

/// Formats a duration: "1:02:05", "12.3 s".
export function duration(seconds) {
  if (!(seconds >= 0)) return "–";
  if (seconds < 60) return seconds.toFixed(seconds < 10 ? 1 : 0) + " s";
  const whole = Math.round(seconds), two = value => String(value).padStart(2, "0");
  const hours = Math.floor(whole / 3600), minutes = Math.floor(whole / 60) % 60;
  return hours ? `${hours}:${two(minutes)}:${two(whole % 60)} h` : `${minutes}:${two(whole % 60)} min`;
}

/// Sends a request and returns the JSON of the reply. Throws an Error with the message of the server.
export async function fetchJson(path, parameters, method = "GET") {
  const reply = await fetch(path + "?" + new URLSearchParams(parameters), {method});
  const json = await reply.json().catch(() => ({}));
  if (!reply.ok) throw new Error(json.error?.message ?? `the server answered with status ${reply.status}; reload the page`);
  return json;
}
