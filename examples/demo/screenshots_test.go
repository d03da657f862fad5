package main

import (
	"bytes"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/holdfast-go/holdfast/examples/internal/demo"
)

// TestScreenshots writes those of the README into the folder HOLDFAST_SCREENSHOTS: a
// minute in which Redis is killed and comes back.
func TestScreenshots(t *testing.T) {
	dir := os.Getenv("HOLDFAST_SCREENSHOTS")
	if dir == "" {
		t.Skip("HOLDFAST_SCREENSHOTS names no folder")
	}
	path := chromium(t)
	a, srv := startDemo(t, demo.StartRedis, func(c *config) { c.budget, c.slowBy = 50*time.Millisecond, 200*time.Millisecond })
	p := openPage(t, path, a, srv, 1280, 1000)
	killed := &film{acts: map[int]func(){
		4:  func() { p.run("document.querySelector('[data-action=kill]').click()") },
		20: func() { p.run("document.querySelector('[data-action=restore]').click()") },
	}}
	p.click("#reset") // without what the browser's start did to the machine
	for _, step := range []struct {
		at   int
		what func()
	}{
		{1, func() { p.click("#fleet-both") }},
		{14, func() { killed.take(p, a, 30, "#slow-chart") }},
		{50, func() { p.click("[data-action=kill]") }},
		{56, func() {}},
	} {
		deadline := time.Now().Add(90 * time.Second)
		for len(a.traffic.history()) < step.at {
			if time.Now().After(deadline) {
				t.Fatal("the seconds don't pass")
			}
			time.Sleep(100 * time.Millisecond)
		}
		step.what()
	}
	const most = 600 << 10
	animated := filepath.Join(dir, "demo-kill.png")
	if err := killed.write(animated, 500*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if file, err := os.Stat(animated); err != nil || file.Size() > most {
		t.Errorf("%v: %d bytes, want at most %d", err, file.Size(), most)
	}
	for _, alg := range algorithms {
		p.run("document.querySelector('#card-" + alg.Slug + " [data-do=burst]').click()")
	}
	p.run("document.querySelector('#card-fixed-window [data-do=boundary]').click()")
	p.wait(show("fixed-window", "result") + ".includes('admitted')")
	for _, alg := range algorithms[1:] {
		p.run("document.querySelector('#card-" + alg.Slug + " [data-do=burst]').click()")
	}
	p.wait(number("gcra", "denied") + " >= 5")
	p.run("scrollTo(0, 0); document.activeElement.blur()")
	for _, shot := range []struct {
		name  string
		width int64
		dark  bool
		until string // what is at the bottom; empty for the whole page
	}{
		{"demo-light", 1280, false, "#card-fixed-window"},
		{"demo-dark", 1280, true, "#card-fixed-window"},
		{"demo-phone", 390, false, ".tiles"},
		{"whole-light", 1280, false, ""},
		{"whole-dark", 1280, true, ""},
		{"whole-phone", 390, true, ""},
	} {
		if shot.until == "" && os.Getenv("HOLDFAST_SCREENSHOTS_WHOLE") == "" {
			continue
		}
		scheme := "light"
		if shot.dark {
			scheme = "dark"
		}
		p.do(chromedp.EmulateViewport(shot.width, 1000))
		p.theme(scheme)
		if shot.until != "" {
			bottom, err := chromedp.Run(p.ctx, chromedp.Evaluate[float64](fmt.Sprintf("document.querySelector(%q).getBoundingClientRect().bottom", shot.until)))
			if err != nil {
				t.Fatal(err)
			}
			p.do(chromedp.EmulateViewport(shot.width, int64(bottom)+10))
		}
		// Two frames: what watches sizes draws in the first.
		p.run("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")
		take := chromedp.CaptureScreenshot()
		if shot.until == "" {
			take = chromedp.FullScreenshot(100)
		}
		shown, err := chromedp.Run(p.ctx, take)
		if err != nil {
			t.Fatal(err)
		}
		if err := writeSmall(filepath.Join(dir, shot.name+".png"), shown); err != nil {
			t.Fatal(err)
		}
	}
}

// writeSmall packs a picture into its commonest colours.
func writeSmall(path string, picture []byte) error {
	img, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, pack(img, commonColours(img))); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}
