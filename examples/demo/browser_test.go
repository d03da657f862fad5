package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/holdfast-go/holdfast/examples/internal/demo"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// TestCards presses every button of every card, in a real browser.
func TestCards(t *testing.T) {
	path := chromium(t)
	redistest.Require(t)
	// No decision is made without Redis because the machine is busy.
	a, srv := startDemo(t, demo.StartProcess, calm, func(c *config) { c.budget = 5 * time.Second })
	p := openPage(t, path, a, srv, 1280, 1000)

	for _, alg := range algorithms {
		// What changes back before anyone asks has changed too.
		p.eval(fmt.Sprintf(`(() => {
			const drawing = document.querySelector("#card-%[1]s .drawing"), before = drawing.innerHTML;
			new MutationObserver((_, watch) => {
				if (drawing.innerHTML === before) return;
				watch.disconnect();
				drawing.dataset.changed = "";
			}).observe(drawing, { subtree: true, childList: true, attributes: true, characterData: true });
		})()`, alg.Slug))
		p.click("#card-" + alg.Slug + " [data-do=attempt]")
		p.wait(number(alg.Slug, "allowed") + " === 1")
		p.wait(show(alg.Slug, "source") + ".startsWith('redis')")
		p.click("#card-" + alg.Slug + " [data-do=burst]")
		p.wait(fmt.Sprintf("%s + %s === 11", number(alg.Slug, "allowed"), number(alg.Slug, "denied")))
		p.wait(fmt.Sprintf(`document.querySelector("#card-%s .drawing").dataset.changed !== undefined`, alg.Slug))
	}
	// All at once: each waits for the end of its window.
	for _, alg := range algorithms {
		p.click("#card-" + alg.Slug + " [data-do=boundary]")
	}
	for _, alg := range algorithms {
		p.wait(show(alg.Slug, "result") + ".includes('admitted within')")
		said := p.eval(show(alg.Slug, "result"))
		if twice := strings.Contains(said, "10 + 10 = 20 admitted"); twice != (alg.Slug == "fixed-window") {
			t.Errorf("%s: %q", alg.Name, said)
		}
	}
	if got := p.eval(number("fixed-window", "allowed")); got != "20" {
		t.Errorf("%s allowed by the fixed window", got)
	}

	// A limit that denies for long enough to be seen counting down.
	p.click("#card-fixed-window details summary")
	for name, value := range map[string]string{"limit": "1", "seconds": "30"} {
		p.do(chromedp.SetValue(chromedp.CSS("#card-fixed-window-"+name), value))
	}
	p.click("#card-fixed-window [data-do=limit]")
	p.wait(`document.querySelector("#card-fixed-window summary").textContent === "Limit: 1 per 30 s"`)
	p.wait(show("fixed-window", "remaining") + ` === "1"`)
	for p.eval(number("fixed-window", "denied")) == "0" { // twice, or three times when a window ends
		had := p.eval(number("fixed-window", "allowed"))
		p.click("#card-fixed-window [data-do=attempt]")
		p.wait(fmt.Sprintf("%s > %s || %s > 0", number("fixed-window", "allowed"), had, number("fixed-window", "denied")))
	}
	p.wait(`document.querySelector("#card-fixed-window .drawing .why-text")?.textContent.startsWith("this window is full: the next begins in ")`)
	retry := "parseFloat(" + show("fixed-window", "retry") + ")"
	p.wait(retry + " > 0 || " + show("fixed-window", "retry") + " === 'now'")
	before := p.eval(retry)
	p.wait(fmt.Sprintf("!(%s >= %s)", retry, before))

	// The line of Go is that of the limit, and can be copied.
	const line = "lim, err := limiter.New(rdb, limiter.FixedWindow(limiter.Per(1, 30*time.Second)))"
	if got := p.eval(show("fixed-window", "code")); got != line {
		t.Errorf("the line is %s", got)
	}
	p.click("#card-fixed-window [data-do=copy]")
	p.wait(show("fixed-window", "result") + `.startsWith("The line is ")`)

	// A reset is of its own card only.
	others := p.eval(number("gcra", "allowed"))
	p.click("#card-fixed-window [data-do=reset]")
	p.wait(number("fixed-window", "allowed") + " === 0 && " + show("fixed-window", "retry") + " === '–'")
	if got := p.eval(number("gcra", "allowed")); got != others || got == "0" {
		t.Errorf("GCRA allowed %s, and %s after the reset of another card", others, got)
	}

	// What cannot be is said, at the field.
	p.do(chromedp.SetValue(chromedp.CSS("#card-fixed-window-limit"), "51"))
	p.click("#card-fixed-window [data-do=limit]")
	p.wait(`document.querySelector("#card-fixed-window-limit").getAttribute("aria-invalid") === "true"`)
	p.wait(`document.querySelector("#notice").textContent.includes("limit is 51: must be from 1 to 50")`)

	p.click("#reset")
	for _, alg := range algorithms {
		p.wait(fmt.Sprintf("%s === 0 && %s === 0", number(alg.Slug, "allowed"), number(alg.Slug, "denied")))
	}
	p.wait(`document.querySelector("#notice").hidden`)
}

// TestOutagePanel breaks Redis in every way that there is a button for, and looks at
// what the page says of it.
func TestOutagePanel(t *testing.T) {
	t.Parallel()
	path := chromium(t)
	redistest.Require(t)
	a, srv := startDemo(t, demo.StartProcess)
	p := openPage(t, path, a, srv, 1280, 1000)

	const (
		chart    = `document.querySelector("#rate-chart")`
		breakers = `[...document.querySelectorAll("#processes .breaker")]`
		closed   = breakers + `.length === 4 && ` + breakers + `.every(b => b.dataset.state === "closed")`
		open     = breakers + `.some(b => b.dataset.state !== "closed")`
	)
	// The first number of the last second, and how many of it were local.
	admitted := `Number(` + chart + `.getAttribute("aria-label").match(/: (\d+) admitted/)?.[1])`
	local := `Number(` + chart + `.getAttribute("aria-label").match(/, (\d+) of them locally/)?.[1])`
	fromRedis := local + " === 0 && " + admitted + " > 50"
	p.wait(closed + " && " + fromRedis)
	for _, fault := range []struct{ action, state string }{{"kill", "killed"}, {"freeze", "frozen"}, {"slow", "slow"}} {
		before := p.eval(chart + ".innerHTML")
		p.click("[data-action=" + fault.action + "]")
		p.wait(fmt.Sprintf(`document.querySelector("#redis").dataset.fault === %q`, fault.state))
		p.wait(fmt.Sprintf(`document.querySelector("[data-action=%s]").getAttribute("aria-pressed") === "true"`, fault.action))
		// Traffic goes on, without Redis.
		p.wait(open + " && " + local + " > 50")
		p.wait(chart + ".querySelector('.fault') !== null && " + chart + ".innerHTML !== " + fmt.Sprintf("%q", before))
		if fault.action == "kill" {
			p.click("#card-gcra [data-do=attempt]")
			p.wait(show("gcra", "source") + ".startsWith('local')")
			p.wait(`document.querySelector("[data-action=freeze]").disabled`)
		}
		// What the plain script does meanwhile stands beside it.
		p.wait(map[string]string{"kill": cell("plain-errors") + " > 0", "freeze": cell("plain-hanging") + " > 0", "slow": cell("plain-answered") + " < " + cell("answered")}[fault.action])
		p.wait(`document.querySelector("#claims-note").textContent.includes(" decide alone. Their claims are ")`)
		p.click("[data-action=restore]")
		p.wait(`document.querySelector("#redis").dataset.fault === "none"`)
		p.wait(closed + " && " + fromRedis)
	}
	p.wait(`document.querySelector("#claims-note").textContent.startsWith("Redis decides for all processes.")`)
	// The page says what is, also when no button did it.
	if err := a.outage.srv.Kill(); err != nil {
		t.Fatal(err)
	}
	p.wait(`document.querySelector("#fault-text").textContent.startsWith("No button holds Redis back. ") && / decides for [0-3] of 4$/.test(document.querySelector("#redis-text").textContent)`)
	p.click("[data-action=restore]")
	p.wait(closed + " && " + fromRedis)
	p.wait(`document.querySelector("#fault-text").textContent.startsWith("Redis is up.") && document.querySelector("#redis-text").textContent === "Redis is up"`)
	// The bound is a line that no second is above, and the machine's lateness is told apart.
	p.wait(chart + `.querySelector(".bound").getAttribute("d").includes("h") && / the bound allowed \d+ /.test(` + chart + `.getAttribute("aria-label"))`)
	p.wait(`document.querySelectorAll("#slow-chart .late").length > 3 && document.querySelectorAll("#slow-chart .c-p99").length > 3 && document.querySelector("#p99-note").textContent.includes("timers of this machine")`)
	p.click("[data-action=flush-scripts]")
	p.wait(`document.querySelector("#fault-text").textContent.includes("scripts are flushed")`)
	if errors := p.eval(`document.querySelector("#errors-now").textContent`); errors != "0" {
		t.Errorf("%s errors", errors)
	}
	totals := a.traffic.totals()
	if totals.Admitted > totals.Bound {
		t.Errorf("%+v", totals)
	}
	p.click(".outage details summary")
	p.wait(`document.querySelectorAll("#seconds tr").length === 10 && document.querySelector("#seconds tr td").offsetHeight > 0`)
}

// cell is an expression for a number of the comparison with a plain script.
func cell(of string) string {
	return fmt.Sprintf(`Number(document.querySelector("#compare [data-of=%s]").textContent.replace(",", ""))`, of)
}

// TestLinePanel: the page says how many were overtaken; see TestInTurn for how many those are.
func TestLinePanel(t *testing.T) {
	t.Parallel()
	path := chromium(t)
	redistest.Require(t)
	a, srv := startDemo(t, demo.StartProcess, calm, func(c *config) { c.budget = 5 * time.Second })
	p := openPage(t, path, a, srv, 1280, 1000)
	p.click("#wait-start")
	for _, id := range []string{"line-turn", "line-each"} {
		p.wait(fmt.Sprintf(`document.querySelector("#%s [data-show=served]").textContent === "12"`, id))
		p.wait(fmt.Sprintf(`document.querySelectorAll("#%s .waiter").length === 12 && document.querySelectorAll("#%s .waiter.critical").length === 1`, id, id))
	}
	p.wait(`document.querySelector("#announce").textContent.startsWith("In turn: ")`) // at the end of both
	for i, id := range []string{"line-turn", "line-each"} {
		want := overtaken(a.lines[i].state().Waiters)
		if got := p.eval(fmt.Sprintf(`document.querySelector("#%s [data-show=overtaken]").textContent`, id)); got != fmt.Sprint(want) {
			t.Errorf("%s: %s of %d were overtaken: %+v", id, got, want, a.lines[i].state())
		}
		p.wait(fmt.Sprintf(`document.querySelector("#announce").textContent.includes(": %d caller")`, want))
	}
	p.click("#reset")
	p.wait(`document.querySelectorAll(".waiter").length === 0`)
}

// TestFleetPanel: with the shared cooldown the same work costs fewer refusals.
func TestFleetPanel(t *testing.T) {
	path := chromium(t)
	redistest.Require(t)
	a, srv := startDemo(t, demo.StartProcess, calm)
	p := openPage(t, path, a, srv, 1280, 1000)
	of := func(lane, what string) string {
		return fmt.Sprintf(`Number(document.querySelector("#lane-%s [data-show=%s]").textContent)`, lane, what)
	}
	p.click("#fleet-both")
	p.wait(`document.querySelector("#fleet-both").textContent === "Stop both"`)
	p.wait(of("alone", "refused") + " >= 12")
	alone, shared := p.eval(of("alone", "refused")), p.eval(of("shared", "refused"))
	p.wait(fmt.Sprintf("%s < %s && %s > 0", shared, alone, of("shared", "served")))
	p.wait(`document.querySelectorAll("#lane-alone .chart .c-refused").length > document.querySelectorAll("#lane-shared .chart .c-refused").length / 2`)
	for _, lane := range []string{"alone", "shared"} { // each row with a pause is a worker
		p.wait(fmt.Sprintf(`new Set([...document.querySelectorAll("#lane-%s .c-paused")].map(e => e.getAttribute("y"))).size === 4`, lane))
	}
	p.click("#fleet-both")
	p.wait(`document.querySelector("#fleet-both").textContent === "Start both"`)
	for _, lane := range []string{"alone", "shared"} {
		p.click("[data-fleet=" + lane + "]")
		p.wait(fmt.Sprintf(`document.querySelector("[data-fleet=%s]").textContent.startsWith("Stop")`, lane))
		p.click("[data-fleet=" + lane + "]")
		p.wait(fmt.Sprintf(`document.querySelector("[data-fleet=%s]").textContent.startsWith("Start")`, lane))
	}
}

// TestDenials: every drawing says what a denied request lacked, and when that is there.
func TestDenials(t *testing.T) {
	t.Parallel()
	path := chromium(t)
	redistest.Require(t)
	a, srv := startDemo(t, demo.StartProcess, calm, func(c *config) { c.budget = 5 * time.Second })
	for _, c := range a.cards { // a limit that denies for as long as the test looks
		s := settings{Limit: 1, Seconds: 30}
		if !c.Window {
			s.Burst = 1
		}
		if err := c.change(s); err != nil {
			t.Fatal(err)
		}
	}
	p := openPage(t, path, a, srv, 1280, 1000)
	for slug, why := range map[string]string{
		"fixed-window":    "this window is full: the next begins in ",
		"sliding-log":     "no room: the oldest leaves in ",
		"sliding-counter": "no room: the former window weighs less in ",
		"token-bucket":    "no token: next in ",
		"leaky-policing":  "it is full: room in ",
		"leaky-shaping":   "the queue is full: a place in ",
		"gcra":            "too far ahead of the pace: again in ",
	} {
		p.click("#card-" + slug + " [data-do=burst]") // which also brings it into view
		// What is left of the wait becomes less. A window may begin meanwhile: then there is a denial in that.
		p.wait(fmt.Sprintf(`(() => {
			const card = document.querySelector("#card-%s"), seen = (window.seen ??= {next: performance.now() + 2000});
			if (!card.querySelector(".why-text")?.textContent.startsWith(%q)) {
				if (performance.now() > seen.next) {
					seen.next = performance.now() + 2000;
					card.querySelector("[data-do=burst]").click();
				}
				seen.width = undefined;
				return false;
			}
			const width = Number(card.querySelector(".why-left").getAttribute("width"));
			return width < (seen.width ??= width);
		})()`, slug, why))
		p.eval("delete window.seen")
	}
	// Buttons stay where they are while the words around them change.
	const places = `[...document.querySelectorAll(".card")].map(c => [...c.querySelectorAll(".buttons button")].map(b =>
		(b.getBoundingClientRect().top - c.getBoundingClientRect().top).toFixed(1)).join(" ")).join()`
	before := p.eval(places)
	p.run(`document.querySelectorAll("[data-show=source]").forEach(e => { e.textContent = "cache, under 0.1 ms" })`) // is the longest
	if after := p.eval(places); after != before {
		t.Errorf("buttons moved for the longest words:\n%s\n%s", before, after)
	}
	if p.eval(`[...document.querySelectorAll(".facts")].some(f => f.scrollWidth > f.clientWidth)`) != "false" {
		t.Error("the longest words do not fit into a card")
	}
	p.click("#reset")
	p.wait(number("gcra", "denied") + " === 0")
	if after := p.eval(places); after != before {
		t.Errorf("buttons moved:\n%s\n%s", before, after)
	}
}

// TestEveryone: the page can be used by keyboard alone, on a phone, in both themes.
func TestEveryone(t *testing.T) {
	path := chromium(t)
	redistest.Require(t)
	a, srv := startDemo(t, demo.StartProcess)
	p := openPage(t, path, a, srv, 360, 740)
	if over := p.eval(`document.documentElement.scrollWidth - 360`); over != "0" {
		t.Errorf("%s pixels too wide for a phone", over)
	}
	// The faults stay in sight; nothing is cut off that can not be scrolled.
	p.run(`document.querySelector("footer").scrollIntoView()`)
	if top := p.eval(`document.querySelector("[data-action=kill]").getBoundingClientRect().top`); strings.HasPrefix(top, "-") {
		t.Errorf("the faults are at %s at the end of the page", top)
	}
	p.run("scrollTo(0, 0)")
	whole := func(when string) {
		if cut := p.eval(cutOff); cut != "" {
			t.Errorf("cut off on a phone %s:\n%s", when, cut)
		}
	}
	whole("at first")
	for range 3 { // the link to the content, the reset, the first fault
		p.do(chromedp.KeyEvent(kb.Tab))
	}
	if got := p.eval(`document.activeElement.dataset.action`); got != "kill" {
		t.Fatalf("the third stop is %q", got)
	}
	if got := p.eval(`getComputedStyle(document.activeElement).outlineStyle`); got == "none" {
		t.Error("the focus is not to be seen")
	}
	p.do(chromedp.KeyEvent(kb.Enter))
	p.wait(`document.querySelector("#redis").dataset.fault === "killed"`)
	p.wait(`document.querySelector("#announce").textContent === "Redis is killed."`)
	p.do(chromedp.KeyEvent(kb.Tab)) // over those that can't be pressed now
	if got := p.eval(`document.activeElement.dataset.action`); got != "restore" {
		t.Fatalf("the next stop is %q", got)
	}
	p.do(chromedp.KeyEvent(" "))
	p.wait(`document.querySelector("#redis").dataset.fault === "none"`)

	unnamed := p.eval(`[...document.querySelectorAll("button, input, svg[role=img]")].filter(e =>
		!(e.textContent.trim() || e.getAttribute("aria-label") || e.labels?.length)).map(e => e.outerHTML).join()`)
	if unnamed != "" {
		t.Errorf("without a name: %s", unnamed)
	}
	// As while something is wrong and something was denied: most colours are on the page.
	p.run(`document.querySelector("[data-action=slow]").click()`)
	p.run(`document.querySelectorAll("[data-do=burst]").forEach(b => { b.click(); }); document.querySelectorAll("details").forEach(d => { d.open = true; })`)
	p.wait(`document.querySelector("#redis").dataset.fault === "slow"`)
	p.wait(show("gcra", "result") + " !== ''")
	p.run(`document.querySelectorAll("[data-do=burst]").forEach(b => { b.click(); })`)
	p.wait(`document.querySelector(".why-text") !== null`)
	whole("after a denial")
	for _, scheme := range []string{"light", "dark"} {
		p.theme(scheme)
		if pale := p.eval(contrast); pale != "" {
			t.Errorf("%s: too little contrast:\n%s", scheme, pale)
		}
	}
}

// TestReducedMotion: who prefers it gets drawings in which nothing flies.
func TestReducedMotion(t *testing.T) {
	t.Parallel()
	path := chromium(t)
	a, srv := alone(t, calm)
	p := openPage(t, path, a, srv, 1280, 1000)
	p.run(`Promise.all([import("/draw.js"), import("/model.js")]).then(([{ draw }, { Model }]) => {
		window.drawn = (slug, still) => {
			const m = new Model({ slug, name: slug, window: !/bucket|leaky|gcra/.test(slug) });
			const d = { at: 6_000_500, allowed: true, n: 1, remaining: 9, retryAfterMs: 0, resetAfterMs: 500, delayMs: 0, source: "redis", claim: 0 };
			m.update({ settings: { limit: 2, seconds: 1, burst: 10 }, allowed: 1, denied: 0, fresh: true, decisions: [d] });
			return draw(m, d.at + 1, 400, still);
		};
	})`)
	for _, alg := range algorithms {
		moving, still := p.eval(fmt.Sprintf("drawn(%q, false)", alg.Slug)), p.eval(fmt.Sprintf("drawn(%q, true)", alg.Slug))
		if moving == still {
			t.Errorf("%s: a request that has just come is drawn as one that stands still", alg.Name)
		}
	}
	p.media("prefers-reduced-motion", "reduce")
	p.click("#card-token-bucket [data-do=attempt]")
	p.wait(number("token-bucket", "allowed") + " === 1")
	if tops := p.eval(`[...document.querySelectorAll("#card-token-bucket .m-redis")].map(e => e.getAttribute("cy")).join()`); tops != "161.0" {
		t.Errorf("the request is at %s right away, want on the ground", tops)
	}
}

// cutOff lists what reaches beyond a phone, or beyond its own box.
const cutOff = `[...document.querySelectorAll("button, dt, dd, h2, h3, p, .drawing text")].filter((e) => {
	const r = e.getBoundingClientRect();
	return r.width > 0 && !e.closest(".unseen, .skip") && (r.left < 0 || r.right > 360.5 || e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0 && !e.querySelector(".unseen"));
}).map((e) => e.outerHTML).join("\n")`

// contrast lists the texts whose colour is too near to what is behind them, by WCAG's
// measure.
const contrast = `(() => {
	const parse = (s) => { const m = s.match(/[\d.]+/g).map(Number); return { rgb: m.slice(0, 3), a: m.length > 3 ? m[3] : 1 }; };
	const light = (rgb) => { const [r, g, b] = rgb.map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
	const behind = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.a === 1) return c.rgb; } return [255, 255, 255]; };
	const found = new Set();
	for (const e of document.querySelectorAll("body *")) {
		const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
		if (!own || e.closest("noscript, [hidden], button:disabled") || e.checkVisibility?.() === false) continue;
		const style = getComputedStyle(e);
		const ink = parse(e instanceof SVGElement ? style.fill : style.color).rgb;
		const [a, b] = [light(ink), light(behind(e))].sort((x, y) => y - x);
		const ratio = (a + 0.05) / (b + 0.05);
		if (ratio < 4.5) found.add(ratio.toFixed(2) + " " + e.tagName + "." + e.getAttribute("class") + ": " + e.textContent.trim().slice(0, 40));
	}
	return [...found].join("\n");
})()`
