// The fleet panel: four workers and a third party that refuses, twice.

import { $, act, announce, call, count, el, plural, text } from "./dom.js";
import { SECONDS, frame, label, rect, rule, times } from "./chart.js";

class Lane {
  constructor(shared, quota) {
    this.shared = shared;
    this.quota = quota;
    this.seconds = [];
    this.name = shared ? "Shared cooldown" : "Each on its own";
    this.toggle = el("button", { type: "button", "data-fleet": shared ? "shared" : "alone" }, "Start", el("span", { class: "unseen" }, `: ${this.name}`));
    this.toggle.addEventListener("click", () => act(this.toggle, async () => {
      const running = !this.running;
      await call("POST", "/api/fleet", { shared, running });
      announce(`${this.name}: ${running ? "started" : "stopped"}.`);
    }));
    this.svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    this.svg.setAttribute("class", "chart");
    this.svg.setAttribute("role", "img");
    this.served = el("dd", { class: "big", "data-show": "served" }, "0");
    this.refused = el("dd", { class: "big refused", "data-show": "refused" }, "0");
    this.paused = el("dd", { class: "big", "data-show": "paused" }, "0 s");
    this.root = el("div", { class: "lane", id: shared ? "lane-shared" : "lane-alone" },
      el("div", { class: "lane-head" }, el("h3", {}, this.name), this.toggle),
      el("p", { class: "small" }, shared
        ? "The first 429 closes the gate for every worker, through Redis. Without Redis, each is on its own here too."
        : "Every worker learns of the quota by a 429 of its own."),
      el("dl", { class: "lane-facts" },
        el("div", {}, el("dt", {}, "Served"), this.served),
        el("div", {}, el("dt", {}, "Rejected with 429"), this.refused),
        el("div", {}, el("dt", {}, "Paused, last minute"), this.paused)),
      this.svg);
    new ResizeObserver(() => this.draw()).observe(this.svg);
  }

  update(fleet, add) {
    this.running = fleet.running;
    if (add) this.seconds = [...this.seconds, ...fleet.seconds].slice(-SECONDS);
    text(this.toggle.firstChild, fleet.running ? "Stop" : "Start");
    text(this.served, count(fleet.served));
    text(this.refused, count(fleet.refused));
    this.draw();
  }

  draw() {
    const rows = 4, row = 11, strip = rows * (row + 3) + 8;
    const f = frame(this.svg, 150 + strip, { top: 12, left: 60 });
    const most = this.quota + 8, bottom = f.height - f.bottom - strip, scale = (bottom - f.top) / most;
    const top = (worker) => bottom + 10 + worker * (row + 3);
    let out = "", paused = 0;
    for (let worker = 0; worker < rows; worker++) out += rect(f.left, top(worker), f.width - f.left - f.right, row, 'class="lane-row"') + label(f.left - 6, top(worker) + row - 1.5, `worker ${worker + 1}`, "end");
    this.seconds.forEach((s, i) => {
      const x = f.x(this.seconds.length - 1 - i) + 0.5, w = Math.max(1, f.step - 1.5);
      const served = Math.min(most, s.served) * scale, refused = Math.min(most - s.served, s.refused) * scale;
      out += rect(x, bottom - served, w, served, 'class="c-redis"');
      out += rect(x, bottom - served - refused - 1, w, refused, 'class="c-refused"');
      for (const p of s.pauses || []) {
        const begin = x - 0.5 + f.step * Math.max(0, 1 - (s.at - p.from) / 1000), end = x - 0.5 + f.step * Math.min(1, 1 - (s.at - p.until) / 1000);
        out += rect(begin, top(p.worker), end - begin, row, 'class="c-paused"');
        paused += p.until - p.from;
      }
    });
    out += rule(f, bottom, "axis") + label(f.left - 6, bottom + 4, "0", "end") + label(f.left - 6, bottom - this.quota * scale + 4, this.quota, "end") + times(f);
    this.svg.innerHTML = out;
    text(this.paused, `${(paused / 1000).toFixed(1)} s`);
    const n = this.seconds.length;
    const total = (name) => this.seconds.reduce((sum, s) => sum + s[name], 0);
    this.svg.setAttribute("aria-label", `${this.name}: ${total("served")} requests served and ${total("refused")} rejected in the last ${n} seconds; the workers paused for ${this.paused.textContent} together`);
  }
}

export class Fleets {
  constructor(root) {
    this.root = root;
    this.lanes = [];
    const both = $("fleet-both");
    both.addEventListener("click", () => act(both, async () => {
      const running = !this.lanes.every((l) => l.running);
      await call("POST", "/api/fleet", { running });
      announce(running ? "Both fleets are started." : "Both fleets are stopped.");
    }));
  }

  state({ fleets, quota, quotaMs }) {
    if (this.lanes.length === 0) {
      text($("fleet-lead"), `Four workers call somebody else’s API, which serves ${plural(quota, "request")} in ${quotaMs / 1000} seconds and answers 429 with Retry-After to the rest. They want more than that.`);
      for (const f of fleets) {
        const lane = new Lane(f.shared, quota);
        this.lanes.push(lane);
        this.root.append(lane.root);
      }
    }
    this.lanes.forEach((lane, i) => {
      lane.seconds = fleets[i].seconds;
      lane.update(fleets[i], false);
    });
    this.label();
  }

  update(fleets, add) {
    fleets.forEach((f, i) => this.lanes[i]?.update(f, add));
    this.label();
  }

  label() {
    text($("fleet-both"), this.lanes.every((l) => l.running) ? "Stop both" : "Start both");
  }
}
