// The page: takes events from the server and hands them to its parts.

import { $, act, announce, call, setClock, text } from "./dom.js";
import { Cards } from "./cards.js";
import { Outage } from "./outage.js";
import { Fleets } from "./fleet.js";
import { Lines } from "./line.js";

const cards = new Cards($("cards"));
const outage = new Outage();
const fleets = new Fleets($("fleets"));
const lines = new Lines($("lines"));

const faults = { none: "is up", killed: "is killed", frozen: "is frozen", slow: "is slow" };

let redis;

function showRedis(now) {
  redis = now;
  const kinds = { process: "Redis", embedded: "Embedded Redis", foreign: "Your Redis" };
  $("redis").dataset.fault = redis.fault;
  // No button says so of one that ends by itself.
  const alone = redis.fault === "none" && outage.alone().length;
  text($("redis-text"), `${kinds[redis.kind]} ${alone ? `decides for ${outage.all.length - alone} of ${outage.all.length}` : faults[redis.fault]}`);
  text($("server"), `Redis: ${redis.what}.`);
  outage.redis(redis);
}

function connect() {
  const source = new EventSource("/api/events");
  const on = (name, handle) => source.addEventListener(name, (event) => handle(JSON.parse(event.data)));
  on("state", (state) => {
    document.body.dataset.live = "true";
    setClock(state.now);
    cards.state(state);
    outage.state(state);
    fleets.state(state);
    lines.state(state);
    showRedis(state.redis);
  });
  on("card", (card) => cards.update(card));
  on("boundary", (border) => cards.border(border));
  on("fault", showRedis);
  on("fleets", (all) => fleets.update(all, false));
  on("line", (line) => lines.update(line));
  on("second", (live) => {
    outage.second(live);
    showRedis(redis);
    fleets.update(live.fleets, true);
  });
  source.addEventListener("error", () => {
    delete document.body.dataset.live;
    $("redis").dataset.fault = "lost";
    text($("redis-text"), "not connected");
    // A refused stream is closed for good; a broken one the browser opens again.
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, 3000);
  });
}

$("reset").addEventListener("click", () => act($("reset"), async () => {
  const done = await call("POST", "/api/reset", {});
  announce(done.redis ? "All counters are reset." : "The page has forgotten; Redis could not be told.");
}));

text($("curl"), `curl -i ${location.origin}/api/attempt \\
  -H 'Content-Type: application/json' -d '{"algorithm":"gcra"}'`);

connect();
