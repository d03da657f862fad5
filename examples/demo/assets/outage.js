// The outage panel: buttons for faults, and what becomes of the traffic.

import { $, act, announce, call, count, duration, el, now, text } from "./dom.js";
import { SECONDS, faults, frame, gutter, hatch, rect, rule, steps, times } from "./chart.js";

const sum = (o) => Object.values(o).reduce((a, b) => a + b, 0);
const own = (o) => sum(o) - (o.redis || 0) - (o.cache || 0);

const words = ["No processes", "One process", ...["Two", "Three", "Four", "Five", "Six", "Seven", "Eight"].map((n) => `${n} processes`)];

const stories = (budget) => ({
  none: "Redis is up. It decides every request.",
  killed: "Redis is dead. Nobody waits for it: each process decides alone, within its claim on the limit.",
  frozen: `Redis accepts connections and says nothing. After ${budget} each decision is made without it; soon it is not even asked.`,
  slow: `Redis takes 200 ms for each answer. That is over the budget of ${budget}, so it is treated as down.`,
});

const done = {
  kill: "Redis is killed.", freeze: "Redis is frozen.", slow: "Redis is slowed by 200 milliseconds.",
  "flush-scripts": "All scripts are flushed. The next decision sends its own again.", restore: "Redis is restored.",
};

export class Outage {
  constructor() {
    this.seconds = [];
    for (const button of document.querySelectorAll("[data-action]")) {
      button.addEventListener("click", () => act(button, async () => {
        const { action } = button.dataset;
        await call("POST", "/api/outage", { action });
        announce(done[action]);
        if (action === "flush-scripts") text($("fault-text"), done[action]);
      }));
    }
    new ResizeObserver(() => this.draw()).observe($("rate-chart"));
  }

  /** alone is which processes decide without Redis. */
  alone() {
    return this.all.filter((p) => p.claim > 0);
  }

  /** redis shows what is wrong with it now. */
  redis({ fault, kind, whyNoFlush }) {
    for (const button of document.querySelectorAll("[data-action]")) {
      const { action } = button.dataset;
      const pressed = { killed: "kill", frozen: "freeze", slow: "slow" }[fault] === action;
      if (button.hasAttribute("aria-pressed")) button.setAttribute("aria-pressed", pressed);
      const off = (fault === "killed" && ["freeze", "slow", "flush-scripts"].includes(action)) ||
        (action === "flush-scripts" && (whyNoFlush || fault === "frozen"));
      button.disabled = Boolean(off);
      if (action === "restore") button.classList.toggle("primary", fault !== "none");
    }
    const alone = this.alone().length;
    let story = fault === "none" && alone > 0
      ? `No button holds Redis back. ${alone} of ${this.all.length} processes decide alone until it answers their next try.`
      : stories(duration(this.traffic.budgetMs))[fault];
    if (kind === "foreign") story += " The buttons act on a proxy in front of your server, never on the server itself.";
    if (story !== this.story) text($("fault-text"), story); // what a button did stays to be read
    this.story = story;
    $("fault-text").dataset.fault = fault;
    $("flush-text").hidden = !whyNoFlush;
    text($("flush-text"), whyNoFlush ? `Flush scripts is off: ${whyNoFlush}` : "");
  }

  state({ traffic, processes }) {
    this.traffic = traffic;
    this.seconds = traffic.seconds;
    text($("outage-lead"), `${words[processes.length]} share a limit of ${count(traffic.rate)} requests a second and are asked for ${count(traffic.offered)}. Break the Redis between them and watch what gets through.`);
    this.processes(processes);
    this.show(traffic.totals);
  }

  second({ second, totals, processes }) {
    this.seconds = [...this.seconds, second].slice(-SECONDS);
    this.processes(processes);
    this.show(totals);
  }

  show(totals) {
    const { seconds, traffic } = this;
    const last = seconds.at(-1);
    text($("rate-now"), last ? count(sum(last.admitted)) : "–");
    text($("rate-note"), `in a second; the limit is ${count(traffic.rate)}`);
    text($("p99-now"), seconds.length ? duration(totals.p99Ms) : "–");
    text($("p99-note"), `budget ${duration(traffic.budgetMs)}; timers of this machine are ${duration(totals.lateMs)} late`);
    const slowest = seconds.reduce((a, b) => (b.slowestMs > a.slowestMs ? b : a), { slowestMs: 0 });
    text($("slow-now"), seconds.length ? duration(slowest.slowestMs) : "–");
    text($("slow-note"), seconds.length ? `In that second a bare timer of this machine, which waits for no Redis, was late by up to ${duration(slowest.lateMs)}.` : "");
    text($("errors-now"), seconds.reduce((n, s) => n + s.errors, 0));
    text($("total-now"), count(totals.admitted));
    text($("total-note"), `at most ${count(totals.bound)} by the published bound`);
    this.sources();
    this.draw();
    this.table();
  }

  /** sources adds up who decided. */
  sources() {
    const by = { redis: 0, local: 0, cache: 0 };
    for (const s of this.seconds) {
      for (const of of [s.admitted, s.denied]) {
        for (const [name, n] of Object.entries(of)) by[name] = (by[name] || 0) + n;
      }
    }
    const all = sum(by) || 1, width = 300;
    let x = 0, out = hatch("hatch-sources");
    for (const [name, paint] of [["redis", 'class="c-redis"'], ["local", 'fill="url(#hatch-sources)"'], ["cache", 'class="c-cache"']]) {
      const w = (by[name] / all) * width;
      out += rect(x, 0, w, 12, paint);
      x += w;
    }
    $("source-bar").setAttribute("viewBox", `0 0 ${width} 12`);
    $("source-bar").setAttribute("preserveAspectRatio", "none");
    $("source-bar").innerHTML = out;
    text($("source-note"), `Redis ${count(by.redis)} · local ${count(by.local)} · remembered denials ${count(by.cache)}`);
  }

  draw() {
    if (!this.traffic) return;
    this.drawRates();
    this.drawSlowest();
    this.drawPlain();
  }

  drawRates() {
    const { seconds, traffic } = this, node = $("rate-chart");
    const f = frame(node, node.clientWidth < 480 ? 230 : 290, {});
    const up = Math.max(1.5 * traffic.rate, ...seconds.map((s) => Math.max(sum(s.admitted), Math.min(2.2 * traffic.rate, 1.05 * s.most))));
    const down = Math.max(traffic.offered - traffic.rate, ...seconds.map((s) => sum(s.denied)));
    const scale = (f.height - f.top - f.bottom) / (up + down), zero = f.top + up * scale;
    let out = hatch("hatch-rate") + faults(f, seconds, f.height - f.bottom, true);
    seconds.forEach((s, i) => {
      const x = f.x(seconds.length - 1 - i) + 0.5, w = Math.max(1, f.step - 1.5);
      const local = own(s.admitted) * scale, redis = (sum(s.admitted)) * scale - local;
      out += rect(x, zero - redis, w, redis, 'class="c-redis"') + rect(x, zero - redis - local, w, local, 'fill="url(#hatch-rate)"');
      out += rect(x, zero + 1, w, sum(s.denied) * scale, 'class="c-denied"');
    });
    const limit = zero - traffic.rate * scale;
    out += rule(f, zero, "axis") + rule(f, limit, "limit") + steps(f, seconds.map((s) => zero - Math.min(up, s.most) * scale), "bound");
    out += gutter(f, limit, traffic.rate, "limit") + gutter(f, zero, "0") + gutter(f, zero + down * scale * 0.6, "denied") + times(f);
    node.innerHTML = out;
    const last = seconds.at(-1);
    const most = Math.max(0, ...seconds.map((s) => sum(s.admitted)));
    node.setAttribute("aria-label", last
      ? `Requests per second: ${sum(last.admitted)} admitted in the last second, ${own(last.admitted)} of them locally, and ${sum(last.denied)} denied; at most ${most} admitted in a second of the last ${seconds.length}; the limit is ${traffic.rate}, and the bound allowed ${last.most} in the last second`
      : "Requests per second: no data yet");
  }

  drawSlowest() {
    const { seconds, traffic } = this, node = $("slow-chart");
    const f = frame(node, 92, { top: 8 });
    // One that the machine held up must not flatten the others.
    const most = Math.min(2.5 * traffic.budgetMs, Math.max(1.4 * traffic.budgetMs, ...seconds.map((s) => s.slowestMs)));
    const bottom = f.height - f.bottom, scale = (bottom - f.top) / most;
    let out = faults({ ...f, top: f.top + 14 }, seconds, bottom, false);
    seconds.forEach((s, i) => {
      const x = f.x(seconds.length - 1 - i) + 0.5, w = Math.max(1, f.step - 1.5), height = (ms) => Math.max(1, Math.min(most, ms) * scale);
      out += rect(x, bottom - height(s.slowestMs), w, height(s.slowestMs), 'class="c-slowest"');
      out += rect(x, bottom - height(s.p99Ms), w, height(s.p99Ms), 'class="c-p99"');
      out += `<path d="M${x.toFixed(1)} ${(bottom - height(s.lateMs)).toFixed(1)}h${w.toFixed(1)}" class="late"/>`;
    });
    const budget = bottom - traffic.budgetMs * scale;
    out += rule(f, bottom, "axis") + rule(f, budget, "limit") + gutter(f, budget, `${traffic.budgetMs} ms`, "budget") + gutter(f, bottom, "0") + times(f);
    node.innerHTML = out;
    const worst = (name) => duration(Math.max(0, ...seconds.map((s) => s[name])));
    node.setAttribute("aria-label", `Time of a decision: in each of the last ${seconds.length} seconds 99 of 100 took at most ${worst("p99Ms")}, and the slowest ${worst("slowestMs")}; the budget is ${traffic.budgetMs} ms; a timer of this machine was late by up to ${worst("lateMs")}`);
  }

  /** drawPlain shows what those get that have only Redis. */
  drawPlain() {
    const { seconds, traffic } = this, node = $("plain-chart");
    const f = frame(node, 190, {});
    const up = Math.max(1.3 * traffic.rate, ...seconds.map((s) => s.plain.admitted));
    const down = Math.max(0.6 * traffic.rate, ...seconds.map((s) => s.plain.errors + s.plain.hanging));
    const scale = (f.height - f.top - f.bottom) / (up + down), zero = f.top + up * scale;
    let out = faults(f, seconds, f.height - f.bottom, true);
    seconds.forEach(({ plain }, i) => {
      const x = f.x(seconds.length - 1 - i) + 0.5, w = Math.max(1, f.step - 1.5);
      out += rect(x, zero - plain.admitted * scale, w, plain.admitted * scale, 'class="c-redis"');
      out += rect(x, zero + 1, w, plain.errors * scale, 'class="c-refused"');
      out += rect(x + 0.5, zero + 1.5 + plain.errors * scale, w - 1, plain.hanging * scale, 'class="c-hanging"');
    });
    const limit = zero - traffic.rate * scale;
    out += rule(f, zero, "axis") + rule(f, limit, "limit") + gutter(f, limit, traffic.rate, "limit") + gutter(f, zero, "0") + times(f);
    node.innerHTML = out;
    const last = seconds.at(-1);
    node.setAttribute("aria-label", last
      ? `The plain script in the last second: ${last.plain.admitted} admitted, ${last.plain.errors} errors, ${last.plain.hanging} callers that hang`
      : "The plain script: no data yet");
    if (last) this.compare(last);
  }

  compare(last) {
    const { plain } = last;
    const values = {
      answered: count(sum(last.admitted) + sum(last.denied)), "plain-answered": count(plain.admitted + plain.denied),
      admitted: count(sum(last.admitted)), "plain-admitted": count(plain.admitted),
      errors: count(last.errors), "plain-errors": count(plain.errors),
      hanging: count(last.hanging), "plain-hanging": count(plain.hanging),
      slowest: duration(last.slowestMs), "plain-slowest": duration(plain.slowestMs),
    };
    for (const cell of document.querySelectorAll("#compare [data-of]")) {
      const { of } = cell.dataset;
      text(cell, values[of]);
      cell.classList.toggle("refused", /errors|hanging/.test(of) && values[of] !== "0");
    }
  }

  table() {
    const rows = this.seconds.slice(-10).reverse().map((s, ago) => el("tr", {},
      el("th", { scope: "row" }, String(ago)),
      ...[sum(s.admitted) - own(s.admitted), own(s.admitted), sum(s.denied), s.errors].map((n) => el("td", {}, count(n))),
      el("td", {}, duration(s.p99Ms)), el("td", {}, duration(s.slowestMs)), el("td", {}, { none: "up" }[s.fault] || s.fault)));
    $("seconds").replaceChildren(...rows);
  }

  /** claims shows how the limit is divided, by claims where a process decides alone. */
  claims(all) {
    const alone = this.alone(), total = alone.reduce((n, p) => n + p.claim, 0), width = 1000;
    let x = 0, out = hatch("hatch-claims");
    all.forEach((p) => {
      const part = (p.claim || p.share) * width;
      out += rect(x, 0, part - 3, 16, p.claim ? 'fill="url(#hatch-claims)"' : 'class="c-denied"');
      x += part;
    });
    $("claims").setAttribute("viewBox", `0 0 ${width} 16`);
    $("claims").setAttribute("preserveAspectRatio", "none");
    $("claims").innerHTML = out;
    const said = alone.length === 0
      ? "Redis decides for all processes. Without it, each would have a claim on a part of the limit."
      : `${alone.length} of ${all.length} processes decide alone. Their claims are ${Math.round(total * 100)} % of the limit together; they never add up to more than all of it.`;
    text($("claims-note"), said);
    $("claims").setAttribute("aria-label", `Claims: ${all.map((p) => `${p.name} ${Math.round(p.claim * 100)} %`).join(", ")}`);
  }

  processes(all) {
    this.all = all;
    this.claims(all);
    const root = $("processes");
    while (root.children.length < all.length) {
      root.append(el("li", {}, el("b", {}), el("span", { class: "breaker" }, el("span", { class: "unseen" }, "breaker "), el("span")), el("span", { class: "small" })));
    }
    all.forEach((p, i) => {
      const [name, breaker, note] = root.children[i].children;
      // One server here; in a cluster there are as many as masters.
      const worst = p.servers.find((s) => s.breaker !== "closed") || p.servers[0];
      text(name, p.name);
      breaker.dataset.state = worst.breaker;
      text(breaker.lastChild, worst.breaker);
      const wait = Math.max(0, (worst.retryAt || 0) - now());
      text(note, `${p.claim ? "claim" : "share"} ${Math.round((p.claim || p.share) * 100)} %${worst.breaker !== "open" ? "" : wait >= 50 ? `, next try in ${(wait / 1000).toFixed(1)} s` : ", next try is due"}`);
    });
  }
}
