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
	a, srv := startDemo(t, demo.StartProcess, func(c *config) { c.budget = 5 * time.Second })
	p := openPage(t, path, a, srv, 1280, 1000)

	for _, alg := range algorithms {
		before := p.eval(fmt.Sprintf("document.querySelector('#card-%s .drawing').innerHTML", alg.Slug))
		p.click("#card-" + alg.Slug + " [data-do=attempt]")
		p.wait(number(alg.Slug, "allowed") + " === 1")
		p.wait(show(alg.Slug, "source") + ".startsWith('redis')")
		p.wait(fmt.Sprintf("document.querySelector('#card-%s .drawing').innerHTML !== %q", alg.Slug, before))
		p.click("#card-" + alg.Slug + " [data-do=burst]")
		p.wait(fmt.Sprintf("%s + %s === 11", number(alg.Slug, "allowed"), number(alg.Slug, "denied")))
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
	retry := "parseFloat(" + show("fixed-window", "retry") + ")"
	p.wait(retry + " > 0 || " + show("fixed-window", "retry") + " === 'now'")
	before := p.eval(retry)
	p.wait(fmt.Sprintf("!(%s >= %s)", retry, before))

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
		p.click("[data-action=restore]")
		p.wait(`document.querySelector("#redis").dataset.fault === "none"`)
		p.wait(closed + " && " + fromRedis)
	}
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

// TestFleetPanel: with the shared cooldown the same work costs fewer refusals.
func TestFleetPanel(t *testing.T) {
	path := chromium(t)
	redistest.Require(t)
	a, srv := startDemo(t, demo.StartProcess)
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
	p.click("#fleet-both")
	p.wait(`document.querySelector("#fleet-both").textContent === "Start both"`)
	for _, lane := range []string{"alone", "shared"} {
		p.click("[data-fleet=" + lane + "]")
		p.wait(fmt.Sprintf(`document.querySelector("[data-fleet=%s]").textContent.startsWith("Stop")`, lane))
		p.click("[data-fleet=" + lane + "]")
		p.wait(fmt.Sprintf(`document.querySelector("[data-fleet=%s]").textContent.startsWith("Start")`, lane))
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
	for _, scheme := range []string{"light", "dark"} {
		p.theme(scheme)
		if pale := p.eval(contrast); pale != "" {
			t.Errorf("%s: too little contrast:\n%s", scheme, pale)
		}
	}
}

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
