package main

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience is for a slow machine that does other things too; nothing takes this long
// where it works.
const patience = 2 * time.Minute

// chromium returns the path of a browser, or skips the test, or fails it where there
// has to be one.
func chromium(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a browser")
	}
	names := []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"}
	if own := os.Getenv("HOLDFAST_CHROMIUM"); own != "" {
		names = []string{own}
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	why := "there is no chromium: " + strings.Join(names, ", ")
	if os.Getenv("HOLDFAST_REQUIRE_CHROMIUM") == "1" {
		t.Fatal(why)
	}
	t.Skip(why)
	return ""
}

// page is a browser with the demo's page open in it.
type page struct {
	*testing.T
	ctx context.Context
	app *app

	mu     sync.Mutex
	errors []string // of the console
}

// openPage starts a browser of the given size. The test fails if the page complains in
// the console.
func openPage(t *testing.T, path string, a *app, srv *httptest.Server, width, height int) *page {
	t.Helper()
	opts := append([]chromedp.ExecAllocatorOption{}, chromedp.DefaultExecAllocatorOptions[:]...)
	opts = append(opts, chromedp.ExecPath(path), chromedp.WindowSize(width, height), chromedp.UserDataDir(t.TempDir()),
		chromedp.WSURLReadTimeout(patience))
	if os.Geteuid() == 0 {
		opts = append(opts, chromedp.NoSandbox)
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	t.Cleanup(stop)
	p := &page{T: t, app: a}
	ctx, cancel := chromedp.NewContext(allocator, chromedp.WithListener(p.hear))
	p.ctx = ctx
	t.Cleanup(func() {
		// In order: the process is gone when this returns.
		if err := chromedp.Cancel(ctx); err != nil {
			t.Logf("the browser did not end in order: %v", err)
		}
		cancel()
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.errors) > 0 {
			t.Errorf("the console says:\n%s", strings.Join(p.errors, "\n"))
		}
	})
	p.do(chromedp.EmulateViewport(int64(width), int64(height)))
	for _, enable := range []cdp.Command[cdp.Empty, cdp.Empty]{log.Enable, runtime.Enable} {
		if _, err := chromedp.Call(ctx, enable, cdp.Empty{}); err != nil {
			t.Fatal(err)
		}
	}
	p.do(chromedp.Navigate(srv.URL))
	p.wait(`document.body.dataset.live === "true"`)
	return p
}

// hear collects what a console would show in red.
func (p *page) hear(event any) {
	var said string
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		said = fmt.Sprintf("%s %s:%d", e.ExceptionDetails.Text, e.ExceptionDetails.URL, e.ExceptionDetails.LineNumber+1)
		if e.ExceptionDetails.Exception != nil {
			said += " " + e.ExceptionDetails.Exception.Description
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			said = fmt.Sprint(e.Args)
		}
	case *log.EventEntryAdded:
		// Browsers report every status from 400 on.
		if e.Entry.Level == log.EntryLevelError {
			said = e.Entry.Text + " " + e.Entry.URL
		}
	}
	if said != "" {
		p.mu.Lock()
		p.errors = append(p.errors, said)
		p.mu.Unlock()
	}
}

func (p *page) do(steps ...chromedp.Action[chromedp.Void]) {
	p.Helper()
	// Not a context with a timeout: that of the first call would end the browser.
	if err := chromedp.Do(p.ctx, steps...); err != nil {
		p.Fatal(err)
	}
}

// run is for statements.
func (p *page) run(js string) {
	p.Helper()
	p.do(chromedp.Evaluate[chromedp.Void](js, chromedp.EvalAwaitPromise))
}

// wait polls until an expression is true.
func (p *page) wait(js string) {
	p.Helper()
	_, err := chromedp.Run(p.ctx, chromedp.Poll[bool]("Boolean("+js+")", chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(patience)))
	if err != nil {
		p.Fatalf("%v: never true: %s\nthe page says:\n%s", err, js, p.eval("document.body.innerText"))
	}
}

// eval returns what an expression is, as a string.
func (p *page) eval(js string) string {
	p.Helper()
	s, err := chromedp.Run(p.ctx, chromedp.Evaluate[string]("String("+js+")"))
	if err != nil {
		p.Fatalf("%v: %s", err, js)
	}
	return s
}

// click presses what a selector finds, where it is, by the mouse.
func (p *page) click(selector string) {
	p.Helper()
	p.wait(fmt.Sprintf("document.querySelector(%q) && !document.querySelector(%q).disabled", selector, selector))
	// In the middle: the bar stays over the upper end of the page.
	p.run(fmt.Sprintf("document.querySelector(%q).scrollIntoView({ block: 'center' })", selector))
	p.do(chromedp.Click(chromedp.CSS(selector)))
}

// theme is the scheme that the system prefers.
func (p *page) theme(scheme string) {
	p.Helper()
	p.media("prefers-color-scheme", scheme)
}

// media is what the system prefers.
func (p *page) media(feature, value string) {
	p.Helper()
	_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: feature, Value: value}},
	})
	if err != nil {
		p.Fatal(err)
	}
	p.wait(fmt.Sprintf(`matchMedia("(%s: %s)").matches`, feature, value))
}

// show is an expression for what a card shows.
func show(card, name string) string {
	return fmt.Sprintf("document.querySelector('#card-%s [data-show=%s]').textContent", card, name)
}

// number is show as a number.
func number(card, name string) string {
	return fmt.Sprintf("Number(%s.replace(',', ''))", show(card, name))
}
