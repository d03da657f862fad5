// Small helpers for elements, numbers and the API.

export const $ = (id) => document.getElementById(id);

/** el makes an element of a tag, attributes and children. */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") {
      for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    } else if (value === true) {
      node.setAttribute(name, "");
    } else if (value !== false && value != null) {
      node.setAttribute(name, value);
    }
  }
  node.append(...children);
  return node;
}

/** text changes a node only where that changes something. */
export function text(node, value) {
  if (node.textContent !== String(value)) node.textContent = value;
}

/** plural is "1 request", "2 requests". */
export const plural = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;

export const count = (n) => n.toLocaleString("en");

/** duration is a time in milliseconds for people. */
export function duration(ms) {
  if (ms >= 10_000) return `${Math.round(ms / 1000)} s`;
  if (ms >= 1000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms >= 10) return `${Math.round(ms)} ms`;
  if (ms >= 0.1) return `${ms.toFixed(1)} ms`;
  return "under 0.1 ms";
}

/** Server time, by which everything is told. */
let ahead = 0;
export const setClock = (serverNow) => { ahead = serverNow - Date.now(); };
export const now = () => Date.now() + ahead;

/** announce tells a screen reader what a button has done. */
export function announce(message) {
  $("announce").textContent = message;
}

/** notice shows what did not work, over the page: nothing on it moves. */
export function notice(message) {
  const box = $("notice");
  box.hidden = !message;
  box.textContent = message || "";
}

/**
 * call asks the API. A problem is an Error with its members. The page prefers status 200
 * for problems too, or a browser would show each denial in red in its console.
 */
export async function call(method, path, body) {
  let response, answer;
  try {
    response = await fetch(path, {
      method,
      headers: { Prefer: "status=200", ...(body === undefined ? {} : { "Content-Type": "application/json" }) },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    answer = await response.json();
  } catch {
    throw Object.assign(new Error("The program does not answer. Is it still running?"), { problem: {} });
  }
  if (!response.ok || response.headers.get("Content-Type") === "application/problem+json") {
    throw Object.assign(new Error(answer.detail || answer.title || `Status ${answer.status || response.status}`), { problem: answer });
  }
  return answer;
}

/** act runs what a button does, once at a time, and shows what went wrong. */
export async function act(button, what) {
  if (button.getAttribute("aria-busy") === "true") return;
  button.setAttribute("aria-busy", "true");
  try {
    await what();
    notice("");
  } catch (error) {
    notice(error.message);
  } finally {
    button.removeAttribute("aria-busy");
  }
}
