// The drawing of each algorithm's state, as the inside of an SVG of 240 × 104.

const W = 240;
const BASE = 82; // on which marks stand
const TOP = 16;

const f = (x) => x.toFixed(1);
const rect = (x, y, w, h, cls) => `<rect x="${f(x)}" y="${f(y)}" width="${f(Math.max(0, w))}" height="${f(Math.max(0, h))}" class="${cls}"/>`;
const line = (x1, y1, x2, y2, cls) => `<path d="M${f(x1)} ${f(y1)}L${f(x2)} ${f(y2)}" class="${cls}"/>`;
const label = (x, y, s, anchor = "middle", cls = "label") => `<text x="${f(x)}" y="${f(y)}" text-anchor="${anchor}" class="${cls}">${s}</text>`;

/** mark is one unit: a dot by Redis, a diamond by the process, a cross denied. */
function mark(x, y, d, faded) {
  const fade = faded ? " faded" : "";
  if (!d.allowed) return `<path d="M${f(x - 2.4)} ${f(y - 2.4)}l4.8 4.8m0-4.8l-4.8 4.8" class="m-denied${fade}"/>`;
  if (d.source === "local") return `<path d="M${f(x)} ${f(y - 3.6)}l3.6 3.6l-3.6 3.6l-3.6-3.6z" class="m-local${fade}"/>`;
  return `<circle cx="${f(x)}" cy="${f(y)}" r="2.9" class="m-redis${fade}"/>`;
}

/** marks puts decisions where they were made; those at one time stand on each other. */
function marks(decisions, x, faded = () => false) {
  const columns = [];
  for (const d of decisions) {
    const at = x(d.at);
    if (at < 2 || at > W - 2) continue;
    let column = columns.at(-1);
    if (!column || at - column.at > 7) columns.push(column = { at, ds: [] });
    for (let i = 0; i < d.n; i++) column.ds.push(d);
  }
  let out = "";
  for (const { at, ds } of columns) {
    ds.sort((a, b) => b.allowed - a.allowed);
    const step = Math.min(7.4, (BASE - TOP - 6) / ds.length);
    ds.forEach((d, i) => { out += mark(at, BASE - 5 - i * step, d, faded(d)); });
  }
  return out;
}

const ground = () => line(0, BASE, W, BASE, "axis");

function nowLine(x) {
  return line(x, TOP - 4, x, BASE, "now") + label(x, 100, "now", "middle", "label strong");
}

/** windows draws the borders of aligned windows around t. */
function windows(m, t, x, from, to, counts) {
  let out = "";
  for (let begin = m.start(from); begin < to; begin += m.window) {
    const a = Math.max(0, x(begin)), b = Math.min(W, x(begin + m.window));
    if (Math.round(begin / m.window) % 2 === 0) out += rect(a, TOP, b - a, BASE - TOP, "band");
    out += line(x(begin), TOP, x(begin), BASE, "border");
    if (counts && begin <= t) {
      const n = m.admitted(begin, begin + m.window);
      out += label((a + b) / 2, 10, `${n} in this window`, "middle", begin + m.window > t ? "label strong" : "label");
    }
  }
  return out;
}

function fixedWindow(m, t) {
  const from = m.start(t) - m.window, span = 2 * m.window;
  const x = (at) => ((at - from) / span) * W;
  return windows(m, t, x, from, from + span, true) + ground() + marks(m.decisions, x) + nowLine(x(t));
}

function slidingLog(m, t) {
  const from = t - 1.85 * m.window, span = 2 * m.window;
  const x = (at) => ((at - from) / span) * W;
  const begin = t - m.window;
  return rect(x(begin), TOP, x(t) - x(begin), BASE - TOP, "band active") + ground() +
    marks(m.decisions, x, (d) => d.at <= begin) + nowLine(x(t)) +
    label((x(begin) + x(t)) / 2, 10, `${m.admitted(begin, t + 1)} in the last ${m.settings.seconds} s`, "middle", "label strong");
}

function slidingCounter(m, t) {
  const from = m.start(t) - m.window, span = 2 * m.window;
  const x = (at) => ((at - from) / span) * W;
  const weight = 1 - (t - m.start(t)) / m.window;
  const former = m.former(t), current = m.admitted(m.start(t), t + 1);
  return windows(m, t, x, from, from + span, false) +
    rect(x(t - m.window), TOP, x(t) - x(t - m.window), BASE - TOP, "frame") + ground() +
    marks(m.decisions, x) + nowLine(x(t)) +
    label(W / 2, 10, `${former} × ${Math.round(weight * 100)} % + ${current} = ${(former * weight + current).toFixed(1)}`, "middle", "label strong");
}

/** bucket draws a vessel with a level, and beside it what was decided lately. */
function bucket(m, t, level, words, cls) {
  const left = 8, width = 64, height = BASE - TOP;
  const full = (level / m.capacity) * height;
  let out = rect(left, BASE - full, width, full, cls);
  for (let i = 1; i < m.capacity && m.capacity <= 20; i++) {
    out += line(left, BASE - (i / m.capacity) * height, left + 7, BASE - (i / m.capacity) * height, "tick");
  }
  out += `<path d="M${left} ${TOP - 4}V${BASE}H${left + width}V${TOP - 4}" class="vessel"/>`;
  out += label(left + width / 2, 100, words, "middle", "label strong");
  const from = t - 6000, begin = 92;
  const x = (at) => begin + ((at - from) / 6600) * (W - begin);
  return out + line(begin, BASE, W, BASE, "axis") + marks(m.decisions.filter((d) => d.at > from), x) + nowLine(x(t));
}

function tokenBucket(m, t) {
  const level = m.capacity - m.used(t);
  return bucket(m, t, level, `${level.toFixed(1)} tokens`, "level");
}

function leakyPolicing(m, t) {
  const level = m.used(t);
  return bucket(m, t, level, `${level.toFixed(1)} of ${m.capacity} full`, "level");
}

function leakyShaping(m, t) {
  const ahead = Math.max(3000, m.capacity / m.rate), span = ahead * 1.35;
  const x = (at) => ((at - t + ahead * 0.3) / span) * W;
  const starts = m.decisions.filter((d) => d.allowed).map((d) => ({ ...d, at: d.at + d.delayMs }));
  const waiting = starts.filter((d) => d.at > t);
  const cell = m.rate > 0 ? Math.min(W, x(1 / m.rate) - x(0)) : 0;
  let out = rect(x(t), TOP, W - x(t), BASE - TOP, "band") + ground();
  const height = 26, y = (TOP + BASE - height) / 2;
  for (const d of starts) {
    const at = x(d.at);
    if (at < -cell) continue;
    const state = d.at > t ? "waits" : "started";
    out += rect(at, y, Math.max(4, Math.min(22, cell - 3)), height, `job ${state} ${d.source === "local" ? "by-local" : "by-redis"}`);
  }
  out += marks(m.decisions.filter((d) => !d.allowed), x);
  out += nowLine(x(t)) + label((x(t) + W) / 2, 10, waiting.length ? `${waiting.length} in the queue, each with its time` : "the queue is empty", "middle", "label strong");
  return out;
}

function gcra(m, t) {
  const tolerance = m.capacity / m.rate, span = tolerance * 1.3;
  const x = (at) => 34 + ((at - t) / span) * (W - 44);
  const last = m.last;
  const tat = last ? Math.max(t, last.at + last.resetAfterMs) : t;
  const y = 46, h = 20;
  let out = rect(x(t), y, x(t + tolerance) - x(t), h, "band") + rect(x(t), y, x(tat) - x(t), h, "level");
  for (let i = 1; i < m.capacity && m.capacity <= 20; i++) out += line(x(t + i / m.rate), y + h - 6, x(t + i / m.rate), y + h, "tick");
  out += line(x(t + tolerance), TOP + 6, x(t + tolerance), BASE, "border") + line(x(t), TOP + 6, x(t), BASE, "now");
  out += label(x(t), 100, "now", "middle", "label strong") + label(x(t + tolerance), 100, `limit, ${(tolerance / 1000).toFixed(1)} s`);
  out += `<path d="M${f(x(tat))} ${y - 2}l-4-7h8z" class="pointer"/>`;
  return out + label(W / 2, 10, tat > t ? `${((tat - t) / 1000).toFixed(1)} s ahead of the pace` : "on pace", "middle", "label strong");
}

const drawings = {
  "fixed-window": fixedWindow,
  "sliding-log": slidingLog,
  "sliding-counter": slidingCounter,
  "token-bucket": tokenBucket,
  "leaky-policing": leakyPolicing,
  "leaky-shaping": leakyShaping,
  gcra,
};

/** draw returns the drawing of a model at a time. */
export const draw = (m, t) => drawings[m.algorithm.slug](m, t);
