// The panel of waiting: the same callers in turn, and each for itself.

import { $, act, announce, call, duration, el, now, plural, text } from "./dom.js";

const still = matchMedia("(prefers-reduced-motion: reduce)");
const HEIGHT = 132, MOVE = 350;

/** served are the numbers of waiters, from 0, in the order in which they were served. */
const served = (waiters) => waiters.map((w, n) => ({ n, at: w.served })).filter((w) => w.at).sort((a, b) => a.at - b.at).map((w) => w.n);

/** overtaken counts those before whom a later one was served that is not critical. */
export function overtaken(waiters) {
  const order = served(waiters);
  return order.filter((n, place) => order.slice(0, place).some((other) => other > n && !waiters[other].critical)).length;
}

class Lane {
  constructor({ inTurn }) {
    this.inTurn = inTurn;
    this.name = inTurn ? "In turn: Wait" : "Each for itself: sleep, ask again";
    this.svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    this.svg.setAttribute("class", "chart");
    this.svg.setAttribute("role", "img");
    this.svg.setAttribute("height", HEIGHT);
    this.overtaken = el("dd", { class: "big", "data-show": "overtaken" }, "–");
    this.longest = el("dd", { class: "big", "data-show": "longest" }, "–");
    this.served = el("dd", { class: "big", "data-show": "served" }, "0");
    this.root = el("div", { class: "lane", id: inTurn ? "line-turn" : "line-each" },
      el("h3", {}, this.name),
      el("p", { class: "small" }, inTurn
        ? "Callers of a key stand in line. One asks for all; the critical one goes first."
        : "Every caller sleeps for RetryAfter and asks again. All come back at once, and one of them is lucky."),
      el("dl", { class: "lane-facts" },
        el("div", {}, el("dt", {}, "Served"), this.served),
        el("div", {}, el("dt", {}, "Overtaken"), this.overtaken),
        el("div", {}, el("dt", {}, "Longest wait"), this.longest)),
      this.svg);
    new ResizeObserver(() => this.draw(now())).observe(this.svg);
  }

  update({ waiters }) {
    this.waiters = waiters;
    const order = served(waiters), over = overtaken(waiters);
    text(this.served, order.length);
    text(this.overtaken, order.length ? over : "–");
    this.overtaken.classList.toggle("refused", over > 0);
    text(this.longest, order.length ? duration(Math.max(...order.map((n) => waiters[n].served - waiters[n].arrived))) : "–");
    this.svg.setAttribute("aria-label", `${this.name}: served in the order ${order.map((n) => n + 1).join(", ") || "–"}; ${plural(over, "caller")} overtaken`);
    this.draw(now());
  }

  /** moves says whether a caller is on its way now. */
  moves(t) { return this.waiters?.some((w) => t - w.arrived < MOVE || t - w.served < MOVE); }

  draw(t) {
    const { waiters, svg } = this;
    if (!waiters) return;
    const width = Math.max(240, svg.clientWidth || 240), step = width / waiters.length, r = Math.min(15, step * 0.44);
    svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const order = served(waiters), x = (i) => (i + 0.5) * step, arrived = 36, done = 98;
    const part = (at) => (still.matches ? 1 : 1 - (1 - Math.max(0, Math.min(1, (t - at) / MOVE))) ** 3);
    let out = `<text x="0" y="12" class="label">arrived</text><text x="0" y="${HEIGHT - 4}" class="label">served, the first on the left</text>`;
    out += `<path d="M0 ${(arrived + done) / 2}H${width}" class="border"/>`;
    waiters.forEach((w, n) => {
      if (!w.arrived) return;
      const place = order.indexOf(n), p = w.served ? part(w.served) : 0;
      const cx = x(n) + (place < 0 ? 0 : (x(place) - x(n)) * p), cy = (w.served ? arrived + (done - arrived) * p : arrived - 24 * (1 - part(w.arrived)));
      const passed = place >= 0 && order.slice(0, place).some((other) => other > n && !waiters[other].critical);
      out += `<g class="waiter ${w.critical ? "critical" : ""} ${passed ? "passed" : ""}"><circle cx="${cx.toFixed(1)}" cy="${cy.toFixed(1)}" r="${r.toFixed(1)}"/>` +
        `<text x="${cx.toFixed(1)}" y="${(cy + 4.5).toFixed(1)}" text-anchor="middle" class="label">${n + 1}</text></g>`;
    });
    svg.innerHTML = out;
  }
}

export class Lines {
  constructor(root) {
    this.root = root;
    this.lanes = [];
    const start = $("wait-start");
    start.addEventListener("click", () => act(start, async () => {
      const { lines } = await call("POST", "/api/wait", {});
      announce(lines.map((l) => `${l.inTurn ? "In turn" : "Each for itself"}: ${plural(overtaken(l.waiters), "caller")} overtaken.`).join(" "));
    }));
    this.frame = this.frame.bind(this);
    requestAnimationFrame(this.frame);
  }

  state({ lines }) {
    if (this.lanes.length === 0) {
      for (const line of lines) {
        const lane = new Lane(line);
        this.lanes.push(lane);
        this.root.append(lane.root);
      }
    }
    for (const line of lines) this.update(line);
  }

  update(line) { this.lanes.find((l) => l.inTurn === line.inTurn)?.update(line); }

  frame() {
    requestAnimationFrame(this.frame);
    const t = now();
    for (const lane of this.lanes) if (!still.matches && lane.moves(t - 60)) lane.draw(t);
  }
}
