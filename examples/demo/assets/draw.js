// What an algorithm does, as the inside of an SVG of w × HEIGHT pixels. Every drawing is a
// function of the decisions and the time: nothing is kept between two frames.

export const HEIGHT = 232;

const TOP = 34; // under the headline
const BASE = 168; // on which marks stand
const FLIGHT = 450; // how long a request is on its way, in milliseconds
const APART = 45; // between requests that came at once

const f = (x) => x.toFixed(1);
const rect = (x, y, w, h, cls, more = "") => `<rect x="${f(x)}" y="${f(y)}" width="${f(Math.max(0, w))}" height="${f(Math.max(0, h))}" class="${cls}" ${more}/>`;
const line = (x1, y1, x2, y2, cls) => `<path d="M${f(x1)} ${f(y1)}L${f(x2)} ${f(y2)}" class="${cls}"/>`;
const circle = (x, y, r, cls) => `<circle cx="${f(x)}" cy="${f(y)}" r="${f(Math.max(0, r))}" class="${cls}"/>`;
const seconds = (ms) => `${(ms / 1000).toFixed(1)} s`;

/** Stage is one drawing: its width, its time, and whether things may fly. */
class Stage {
  constructor(model, t, width, still) {
    Object.assign(this, { m: model, t, w: width, still, out: "" });
  }

  add(...parts) { this.out += parts.join(""); }

  /** label keeps a text inside, whatever it is centred on. */
  label(x, y, s, cls = "label") {
    const half = s.length * 3.5;
    this.add(`<text x="${f(Math.max(half, Math.min(this.w - half, x)))}" y="${f(y)}" text-anchor="middle" class="${cls}">${s}</text>`);
  }

  title(s) { this.label(this.w / 2, 16, s, "label strong title"); }

  /** way is how far a request has come, from 0 to 1, and gently at its end. */
  way(d, i = 0) {
    if (this.still) return 1;
    const part = Math.max(0, Math.min(1, (this.t - d.at - i * APART) / FLIGHT));
    return 1 - (1 - part) ** 3;
  }

  /** mark is one unit: a dot by Redis, a diamond by the process, a cross denied. */
  mark(x, y, d, faded) {
    const cls = faded ? " faded" : "";
    if (!d.allowed) this.add(`<path d="M${f(x - 3.4)} ${f(y - 3.4)}l6.8 6.8m0-6.8l-6.8 6.8" class="m-denied${cls}"/>`);
    else if (d.source === "local") this.add(`<path d="M${f(x)} ${f(y - 5)}l5 5l-5 5l-5-5z" class="m-local${cls}"/>`);
    else this.add(circle(x, y, 4.2, `m-redis${cls}`));
  }

  /**
   * marks puts decisions where they were made; those at one time stand on each other. Each
   * comes from a place, by default from above. gone says since when one no longer counts;
   * with falls it then leaves the drawing, without it stays there, pale.
   */
  marks(decisions, x, { from, gone = () => -1, falls, left = 0 } = {}) {
    const columns = [];
    for (const d of decisions) {
      const at = x(d.at);
      let column = columns.at(-1);
      if (!column || at - column.at > 9) columns.push(column = { at, ds: [] });
      for (let i = 0; i < d.n; i++) column.ds.push(d);
    }
    for (const { at, ds } of columns) {
      if (at < left + 5 || at > this.w + 5) continue;
      ds.sort((a, b) => b.allowed - a.allowed);
      const step = Math.min(10.5, (BASE - TOP - 8) / ds.length);
      ds.forEach((d, i) => {
        const p = this.way(d, i), y = BASE - 7 - i * step;
        if (p <= 0) return;
        const start = d.allowed && from ? from(d) : { x: at, y: TOP - 14 };
        const since = gone(d);
        if (falls && since > (this.still ? 0 : 900)) return;
        const drop = falls && since > 0 ? (since / 900) ** 2 * 60 : 0;
        this.mark(start.x + (at - start.x) * p, start.y + (y - start.y) * p + drop, d, since >= 0);
      });
    }
  }

  ground(left = 0) { this.add(line(left, BASE, this.w, BASE, "axis")); }

  now(x) {
    this.add(line(x, TOP - 6, x, BASE, "now"));
    this.label(x, BASE + 16, "now", "label strong");
  }

  /** denial says why the last request got nothing, and when one would, as long as that holds. */
  denial() {
    const wait = this.m.retryIn(this.t);
    if (wait <= 0) return;
    const part = Math.min(1, wait / this.m.last.retryAfterMs), y = HEIGHT - 32;
    this.add(rect(0, y, this.w, 30, "why", 'rx="8"'), rect(0, y, this.w * part, 30, "why-left", 'rx="8"'));
    const why = this.m.why(this.t), size = Math.min(13, (this.w - 20) / (why.length * 0.56));
    this.add(`<text x="10" y="${y + 20}" font-size="${f(size)}" class="why-text">${why}</text>`);
  }

  /** windows draws aligned windows, each filled by what it counts. */
  windows(x, from, to, fill) {
    const { m, t } = this;
    for (let begin = m.start(from); begin < to; begin += m.window) {
      const a = Math.max(0, x(begin)), b = Math.min(this.w, x(begin + m.window));
      if (b <= a) continue;
      if (Math.round(begin / m.window) % 2 === 0) this.add(rect(a, TOP, b - a, BASE - TOP, "band"));
      if (fill) {
        const n = m.admitted(begin, begin + m.window), height = Math.min(1, n / m.capacity) * (BASE - TOP);
        this.add(rect(a, BASE - height, b - a, height, "level pale"));
        if (begin <= t && b - a > 52) this.label((a + b) / 2, BASE + 16, `${n} of ${m.capacity}`, begin + m.window > t ? "label strong" : "label");
      }
      if (x(begin) > 0) this.add(line(x(begin), TOP - 6, x(begin), BASE, "border"));
    }
  }
}

function fixedWindow(s) {
  const { m, t, w } = s, span = 2.2 * m.window;
  const x = (at) => w * 0.7 + ((at - t) / span) * w;
  s.windows(x, t - 0.7 * span, t + 0.3 * span, true);
  s.ground();
  s.marks(m.decisions, x, { gone: (d) => m.start(t) - m.start(d.at) - 1 });
  s.add(line(x(t), TOP - 6, x(t), BASE, "now"));
  s.title(`this window ends in ${seconds(m.start(t) + m.window - t)}`);
}

function slidingLog(s) {
  const { m, t, w } = s, span = 1.75 * m.window, begin = t - m.window;
  const x = (at) => w * 0.94 + ((at - t) / span) * w;
  s.add(rect(x(begin), TOP, x(t) - x(begin), BASE - TOP, "band active"));
  s.ground();
  s.marks(m.decisions, x, { gone: (d) => begin - d.at, falls: true });
  s.now(x(t));
  s.label(x(begin), BASE + 16, `${m.settings.seconds} s ago`);
  s.title(`${m.admitted(begin, t + 1)} of ${m.capacity} in the last ${m.settings.seconds} s`);
}

function slidingCounter(s) {
  const { m, t, w } = s, span = 2.2 * m.window;
  const x = (at) => w * 0.7 + ((at - t) / span) * w;
  const weight = 1 - (t - m.start(t)) / m.window;
  const former = m.former(t), current = m.admitted(m.start(t), t + 1);
  s.windows(x, t - 0.7 * span, t + 0.3 * span, true);
  s.ground();
  s.marks(m.decisions, x, { gone: (d) => t - m.window - d.at });
  s.add(rect(x(t - m.window), TOP, x(t) - x(t - m.window), BASE - TOP, "frame"));
  s.add(line(x(t), TOP - 6, x(t), BASE, "now"));
  s.title(`${former} × ${Math.round(weight * 100)} % + ${current} = ${(former * weight + current).toFixed(1)}`);
}

/** vessel is on the left; what was decided in the last seconds stands beside it. */
function vessel(s, words) {
  const left = 6, width = Math.min(170, s.w * 0.4), begin = left + width + 22;
  s.add(`<path d="M${left} ${TOP}V${BASE}H${f(left + width)}V${TOP}" class="vessel"/>`);
  s.label(left + width / 2, BASE + 16, words, "label strong");
  const x = (at) => s.w - 16 + ((at - s.t) / 6000) * (s.w - 16 - begin);
  return { left, width, begin, x, recent: s.m.decisions.filter((d) => s.t - d.at < 6000) };
}

function tokenBucket(s) {
  const { m, t } = s, level = m.capacity - m.used(t), whole = Math.floor(level + 1e-6);
  const v = vessel(s, `${level.toFixed(1)} tokens`);
  const height = BASE - TOP - 8, columns = Math.ceil(Math.sqrt((m.capacity * v.width) / height)), rows = Math.ceil(m.capacity / columns);
  const cell = Math.min(v.width / columns, height / rows);
  const place = (i) => ({ x: v.left + (v.width / columns) * ((i % columns) + 0.5), y: BASE - 3 - cell * (Math.floor(i / columns) + 0.5) });
  for (let i = 0; i < whole && i < m.capacity; i++) s.add(circle(place(i).x, place(i).y, cell * 0.4, "coin"));
  if (whole < m.capacity) { // the next one grows, and falls in when it is whole
    const to = place(whole), part = level - whole, fall = s.still ? 0 : part ** 4;
    s.add(circle(to.x, TOP - 8 + (to.y - TOP + 8) * fall, cell * 0.4 * (0.35 + 0.65 * part), "coin next"));
  }
  s.ground(v.begin);
  const top = place(Math.min(m.capacity - 1, whole));
  s.marks(v.recent, v.x, { from: () => top, left: v.begin });
  s.now(v.x(t));
  s.title(whole >= m.capacity ? "the bucket is full" : `a token every ${seconds(1 / m.rate)}`);
}

function leakyPolicing(s) {
  const { m, t } = s, level = m.used(t), height = BASE - TOP - 8;
  const v = vessel(s, `${level.toFixed(1)} of ${m.capacity}`);
  const surface = BASE - (level / m.capacity) * height, middle = v.left + v.width / 2;
  s.add(rect(v.left + 1, surface, v.width - 2, BASE - surface - 1, "level"));
  for (let i = 1; i < m.capacity && m.capacity <= 20; i++) s.add(line(v.left, BASE - (i / m.capacity) * height, v.left + 8, BASE - (i / m.capacity) * height, "tick"));
  if (level > 0 && !s.still) { // a drop leaves for each unit that drains
    const part = (level % 1 ? 1 - (level % 1) : 0);
    s.add(circle(v.left + v.width + 8, BASE - 12 + part * 22, 3.5 * (1 - part * 0.4), "coin"), line(v.left + v.width, BASE - 14, v.left + v.width + 8, BASE - 14, "tick"));
  }
  v.recent.slice(-50).forEach((d, i, all) => { // it falls in, or off the rim
    const at = all.findIndex((other) => other.at >= d.at - 1), p = s.still ? 1 : (t - d.at - (i - at) * APART) / FLIGHT;
    if (p <= 0 || p >= 1) return;
    const y = d.allowed ? TOP - 14 + (surface - TOP + 14) * p * p : TOP - 14 + 28 * Math.abs(p * 2 - 1);
    s.mark(d.allowed ? middle : middle + p * v.width * 0.8, y, d, false);
  });
  s.ground(v.begin);
  s.marks(v.recent, v.x, { left: v.begin });
  s.now(v.x(t));
  s.title(level > 0 ? `one drains every ${seconds(1 / m.rate)}` : "the bucket is empty");
}

function leakyShaping(s) {
  const { m, t, w } = s, ahead = Math.max(3000, m.depth), span = ahead * 1.4;
  const x = (at) => w * 0.24 + ((at - t) / span) * w;
  const starts = m.decisions.filter((d) => d.allowed);
  const waiting = starts.filter((d) => d.at + d.delayMs > t);
  const cell = Math.min(w, x(1 / m.rate) - x(0)), height = 46, y = BASE - height - 22;
  s.add(rect(x(t), TOP, x(t + m.depth) - x(t), BASE - TOP, "band"));
  s.ground();
  starts.forEach((d, i) => {
    const at = x(d.at + d.delayMs), begun = d.at + d.delayMs <= t, p = s.way(d, starts.length - i > 20 ? 0 : i % 10);
    if (at < -cell || p <= 0) return;
    s.add(rect(at, TOP - 14 + (y - TOP + 14) * p, Math.max(4, Math.min(34, cell - 4)), height, `job ${begun ? "started" : "waits"} ${d.source === "local" ? "by-local" : "by-redis"}`, 'rx="4"'));
  });
  s.marks(m.decisions.filter((d) => !d.allowed), x);
  s.now(x(t));
  s.label(x(t) / 2, BASE + 16, "started");
  s.title(waiting.length ? `${waiting.length} in the queue; the next starts in ${seconds(waiting[0].at + waiting[0].delayMs - t)}` : "the queue is empty");
}

function gcra(s) {
  const { m, t, w } = s, tolerance = m.depth, step = 1 / m.rate, { last } = m;
  const x = (at) => 30 + ((at - t) / tolerance) * (w - 80);
  const tat = last ? Math.max(t, last.at + last.resetAfterMs) : t;
  const y = 84, h = 44;
  s.add(rect(x(t), y, x(t + tolerance) - x(t), h, "band"));
  // One block per request that is ahead of its time; the newest come from above.
  const ahead = Math.ceil((tat - t) / step - 1e-6);
  const newest = m.decisions.filter((d) => d.allowed).slice(-ahead);
  for (let i = 0; i < ahead; i++) {
    const b = tat - i * step, a = Math.max(t, b - step), d = newest.at(-1 - i);
    const p = d ? s.way(d, newest.length - 1 - i) : 1;
    s.add(rect(x(a) + 1, TOP - 14 + (y - TOP + 14) * p, Math.max(1, x(b) - x(a) - 2), h, `job started ${d?.source === "local" ? "by-local" : "by-redis"}`, 'rx="3"'));
  }
  s.add(line(x(t + tolerance), TOP, x(t + tolerance), BASE, "border"), line(x(t), TOP, x(t), BASE, "now"));
  s.label(x(t), BASE + 16, "now", "label strong");
  s.label(x(t + tolerance), BASE + 16, `limit: ${seconds(tolerance)}`);
  s.add(`<path d="M${f(x(tat))} ${y - 3}l-6-11h12z" class="pointer"/>`);
  const recent = m.decisions.filter((d) => !d.allowed && t - d.at < 1500);
  if (recent.length) s.marks(recent.slice(-10), () => Math.min(w - 16, x(t + tolerance) + 16));
  s.title(tat > t ? `${seconds(tat - t)} ahead of the pace of one per ${seconds(step)}` : "on pace");
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

/** draw returns the drawing of a model at a time, with still without anything that flies. */
export function draw(m, t, width, still) {
  const stage = new Stage(m, t, width, still);
  drawings[m.algorithm.slug](stage);
  stage.denial();
  return stage.out;
}
