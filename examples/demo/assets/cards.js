// The cards: one per algorithm.

import { act, announce, call, count, duration, el, now, text } from "./dom.js";
import { HEIGHT, draw } from "./draw.js";
import { Model } from "./model.js";

const still = matchMedia("(prefers-reduced-motion: reduce)");

const sources = { redis: "by Redis", local: "locally", cache: "from memory of a denial", lease: "from a lease" };

class Card {
  constructor(algorithm) {
    this.model = new Model(algorithm);
    this.seen = true;
    this.build(algorithm);
  }

  build(a) {
    const id = `card-${a.slug}`;
    const button = (name, label, what) => {
      const b = el("button", { type: "button", "data-do": name }, label, el("span", { class: "unseen" }, `: ${a.name}`));
      b.addEventListener("click", () => act(b, what));
      return b;
    };
    this.svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    this.svg.setAttribute("height", HEIGHT);
    this.svg.setAttribute("role", "img");
    this.svg.setAttribute("class", "drawing");
    new ResizeObserver(() => this.paint(now())).observe(this.svg);
    this.remaining = el("span", { class: "big", "data-show": "remaining" }, "–");
    this.capacity = el("span", { class: "of" });
    this.allowed = el("dd", { "data-show": "allowed" }, "0");
    this.denied = el("dd", { "data-show": "denied" }, "0");
    this.retry = el("dd", { "data-show": "retry" }, "–");
    this.source = el("dd", { "data-show": "source" }, "–");
    this.result = el("p", { class: "result", "data-show": "result" });
    this.code = el("code", { "data-show": "code" });
    this.fields = {};
    this.root = el("article", { class: "card", id, "aria-labelledby": `${id}-name` },
      el("h3", { id: `${id}-name` }, a.name),
      el("p", { class: "small about" }, a.about),
      this.svg,
      el("dl", { class: "facts" },
        el("div", {}, el("dt", {}, "Left"), el("dd", {}, this.remaining, this.capacity)),
        el("div", {}, el("dt", {}, "Allowed"), this.allowed),
        el("div", {}, el("dt", {}, "Denied"), this.denied),
        el("div", {}, el("dt", {}, "Retry after"), this.retry),
        el("div", {}, el("dt", {}, "Decided"), this.source)),
      el("div", { class: "buttons" },
        button("attempt", "Send request", () => this.attempt()),
        button("burst", "Burst 10", () => this.burst()),
        button("boundary", "Boundary burst", () => this.boundary()),
        button("reset", "Reset", () => this.reset())),
      this.result,
      el("div", { class: "line" }, this.code, button("copy", "Copy", () => this.copy())),
      this.settings(a, id));
  }

  /** settings is the form for the limit. */
  settings(a, id) {
    const field = (name, label, max) => {
      const input = el("input", { type: "number", id: `${id}-${name}`, min: 1, max, required: true, inputmode: "numeric" });
      this.fields[name] = input;
      return el("div", {}, el("label", { for: `${id}-${name}` }, label), input);
    };
    const apply = el("button", { type: "submit", "data-do": "limit" }, "Set limit", el("span", { class: "unseen" }, `: ${a.name}`));
    const form = el("form", { novalidate: true }, field("limit", "Requests", 50), field("seconds", "per seconds", 30));
    if (!a.window) form.append(field("burst", a.slug.startsWith("leaky") ? "Capacity" : "Burst", 50));
    form.append(apply);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      act(apply, () => this.change());
    });
    this.summary = el("summary", {}, "Limit");
    return el("details", { class: "settings" }, this.summary, form);
  }

  say(message, over = false) {
    text(this.result, message);
    this.result.classList.toggle("over", over);
  }

  async attempt() {
    let decision;
    try {
      decision = await call("POST", "/api/attempt", { algorithm: this.model.algorithm.slug });
    } catch (error) {
      decision = error.problem.decision;
      if (!decision) throw error;
    }
    const by = sources[decision.source] || decision.source;
    let words = decision.allowed ? `Allowed ${by} in ${duration(decision.tookMs)}` : `Denied ${by}; retry after ${duration(decision.retryAfterMs)}`;
    if (decision.delayMs > 0) words += `, to start in ${duration(decision.delayMs)}`;
    this.say(`${words}.`);
    announce(`${this.model.algorithm.name}: ${words}, ${decision.remaining} left.`);
  }

  async burst() {
    const b = await call("POST", "/api/burst", { algorithm: this.model.algorithm.slug });
    this.say(`${b.allowed} of ${b.sent} at once were allowed.`);
    announce(`${this.model.algorithm.name}: ${b.allowed} of ${b.sent} allowed, ${b.denied} denied.`);
  }

  async boundary() {
    try {
      const b = await call("POST", "/api/boundary", { algorithm: this.model.algorithm.slug });
      const words = b.onTime && b.alike
        ? `${b.before} + ${b.after} = ${b.admitted} admitted within ${duration(b.spanMs)}: ${(b.admitted / b.limit).toFixed(1)} × the limit of ${b.limit}.`
        : "The machine was too busy for it. Try again.";
      this.say(words, b.onTime && b.alike && b.admitted > 1.5 * b.limit);
      announce(`${this.model.algorithm.name}: ${words}`);
    } finally {
      this.edge = undefined;
    }
  }

  async reset() {
    const done = await call("POST", "/api/reset", { algorithm: this.model.algorithm.slug });
    announce(`${this.model.algorithm.name}: ${done.redis ? "reset" : "the page has forgotten; Redis could not be reached"}.`);
  }

  /** copy hands over the line of Go, or marks it where the browser does not allow that. */
  async copy() {
    try {
      await navigator.clipboard.writeText(this.code.textContent);
      this.say("The line is copied.");
    } catch {
      getSelection().selectAllChildren(this.code);
      this.say("The line is selected: copy it with the keyboard.");
    }
    announce(this.result.textContent);
  }

  /** go is the line that makes this limiter. */
  go() {
    const { limit, seconds, burst } = this.model.settings;
    const rate = seconds === 1 ? `limiter.PerSecond(${limit})` : `limiter.Per(${limit}, ${seconds}*time.Second)`;
    return `lim, err := limiter.New(rdb, limiter.${this.model.algorithm.func}(${rate}${burst ? `, ${burst}` : ""}))`;
  }

  async change() {
    const body = { algorithm: this.model.algorithm.slug };
    for (const [name, input] of Object.entries(this.fields)) {
      body[name] = input.valueAsNumber;
      input.removeAttribute("aria-invalid");
    }
    try {
      await call("PUT", "/api/limit", body);
    } catch (error) {
      const wrong = this.fields[error.problem.field];
      if (wrong) {
        wrong.setAttribute("aria-invalid", "true");
        wrong.focus();
      }
      throw error;
    }
    this.say("The limit is set.");
    announce(`${this.model.algorithm.name}: the limit is now ${this.words()}.`);
  }

  words() {
    const { limit, seconds, burst } = this.model.settings;
    const rate = `${limit} per ${seconds === 1 ? "second" : `${seconds} s`}`;
    return burst ? `${rate}, ${this.model.algorithm.slug.startsWith("leaky") ? "capacity" : "burst"} ${burst}` : rate;
  }

  update(card) {
    const before = JSON.stringify(this.model.settings);
    this.model.update(card);
    if (card.fresh && card.decisions.length === 0) this.say("");
    if (JSON.stringify(this.model.settings) !== before) {
      for (const [name, input] of Object.entries(this.fields)) input.value = this.model.settings[name];
      text(this.summary, `Limit: ${this.words()}`);
      text(this.code, this.go());
    }
    const t = now();
    text(this.allowed, count(this.model.allowed));
    text(this.denied, count(this.model.denied));
    const { last } = this.model;
    text(this.source, last ? `${last.source}, ${duration(last.tookMs)}` : "–");
    this.source.dataset.source = last ? last.source : "";
    this.svg.setAttribute("aria-label", this.model.words(t));
    this.paint(t);
  }

  /** paint shows what moves with time. */
  paint(t, time = performance.now()) {
    const m = this.model;
    this.painted = time;
    text(this.remaining, m.remaining(t));
    text(this.capacity, ` of ${m.capacity}`);
    const wait = m.retryIn(t);
    text(this.retry, wait > 0 ? `${Math.max(0.1, wait / 1000).toFixed(1)} s` : m.last && !m.last.allowed ? "now" : "–");
    if (this.edge) this.say(this.edge > t ? `Waiting for the window’s end: ${((this.edge - t) / 1000).toFixed(1)} s` : "Sending around the border …");
    const width = this.svg.clientWidth || 320;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.svg.innerHTML = draw(m, t, width, still.matches);
  }
}

/** Cards are all of them, and the clock by which they move. */
export class Cards {
  constructor(root) {
    this.root = root;
    this.cards = new Map();
    this.visible = new IntersectionObserver((entries) => {
      for (const e of entries) this.cards.get(e.target.id.slice("card-".length)).seen = e.isIntersecting;
    });
    this.painted = 0;
    this.frame = this.frame.bind(this);
    requestAnimationFrame(this.frame);
  }

  state({ algorithms, cards }) {
    if (this.cards.size === 0) {
      for (const a of algorithms) {
        const card = new Card(a);
        this.cards.set(a.slug, card);
        this.root.append(card.root);
        this.visible.observe(card.root);
      }
      this.root.append(legend());
    }
    for (const c of cards) this.update(c);
  }

  update(card) { this.cards.get(card.algorithm).update(card); }

  border({ algorithm, at }) { this.cards.get(algorithm).edge = at; }

  frame(time) {
    requestAnimationFrame(this.frame);
    if (time - this.painted < (still.matches ? 500 : 40)) return;
    this.painted = time;
    const t = now();
    for (const card of this.cards.values()) {
      const moves = !card.model.quiet(t) || card.edge;
      // The borders of windows move also where nothing is counted: slowly.
      if (card.seen && (moves || card.model.algorithm.window && time - card.painted > 250)) card.paint(t, time);
    }
  }
}

function legend() {
  const sample = (inner) => {
    const s = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    s.setAttribute("viewBox", "0 0 12 12");
    s.setAttribute("class", "swatch");
    s.setAttribute("aria-hidden", "true");
    s.innerHTML = inner;
    return s;
  };
  return el("aside", { class: "card legend", "aria-label": "How to read the drawings" },
    el("h3", {}, "How to read them"),
    el("ul", {},
      el("li", {}, sample('<circle cx="6" cy="6" r="4" class="m-redis"/>'), "allowed by Redis"),
      el("li", {}, sample('<path d="M6 1l5 5l-5 5l-5-5z" class="m-local"/>'), "allowed locally, without Redis"),
      el("li", {}, sample('<path d="M2 2l8 8m0-8l-8 8" class="m-denied"/>'), "denied")),
    el("p", { class: "small" }, el("b", {}, "Boundary burst"), " resets the card, waits for a window’s end, and sends 10 requests just before it and 10 just after. The fixed window lets all 20 through: twice its limit within a moment. The others don’t."),
    el("p", { class: "small" }, "Drawings follow from what the limiter answered: Remaining, ResetAfter and Delay of each result."));
}
