package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/httpclient"
)

// caller calls the API through one client and prints what happens.
type caller struct {
	api    *api
	client *http.Client

	mu  sync.Mutex
	out io.Writer
}

func newCaller(a *api, base http.RoundTripper, out io.Writer) (*caller, error) {
	c := &caller{api: a, out: out}
	transport, err := httpclient.New(base,
		// Each route stands for an API of its own, with its own quota.
		httpclient.WithKey(func(r *http.Request) string { return r.URL.Path }),
		httpclient.WithLogger(slog.New(slog.DiscardHandler)),
		httpclient.WithHooks(httpclient.Hooks{Attempt: c.attempt, Wait: c.wait}),
	)
	c.client = &http.Client{Transport: transport}
	return c, err
}

func (c *caller) printf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintf(c.out, format, args...)
}

func (c *caller) attempt(_ context.Context, a httpclient.AttemptInfo) {
	if a.Request.URL.Path != crowded.path {
		c.printf("    attempt %d: %d\n", a.Number, a.Status)
	}
}

func (c *caller) wait(_ context.Context, w httpclient.WaitInfo) {
	if w.Request.URL.Path == crowded.path {
		return
	}
	why := w.Why.String()
	if w.Source != "" {
		why += ", " + w.Source
	}
	c.printf("    waits %v (%s)\n", round(w.For), why)
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }

// call sends one request and prints its outcome.
func (c *caller) call(ctx context.Context, r route) error {
	said := "nothing about when to come back"
	if h := r.header(); len(h) > 0 {
		var lines []string
		for _, name := range slices.Sorted(maps.Keys(h)) {
			lines = append(lines, name+": "+h[name])
		}
		said = strings.Join(lines, ", ")
	}
	c.printf("%v  (%d, %s)\n", r, r.status, said)
	start := time.Now()
	req, err := http.NewRequestWithContext(ctx, r.method, c.api.url+r.path, body(r.method))
	if err != nil {
		return err
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	outcome := fmt.Sprintf("%d after %v", resp.StatusCode, round(time.Since(start)))
	if e := httpclient.GaveUp(resp); e != nil {
		outcome += ", gave up: " + e.Reason.String()
		if e.Wait > 0 {
			outcome += ", retry in " + round(e.Wait).String()
		}
	}
	c.printf("    %s\n", outcome)
	return nil
}

func body(method string) io.Reader {
	if method == http.MethodPost {
		return strings.NewReader("an order")
	}
	return nil
}

// crowd calls one route from many goroutines: one 429 stops them all.
func (c *caller) crowd(ctx context.Context) error {
	const goroutines = 50
	c.printf("\n%d goroutines, one of which meets a 429 with Retry-After: 2\n", goroutines)
	if err := c.one(ctx, httpclient.Call{Attempts: 1}); err != nil {
		return err
	}
	start := time.Now()
	took := make([]time.Duration, goroutines)
	errs := make([]error, goroutines)
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Go(func() {
			errs[i] = c.one(ctx, httpclient.Call{})
			took[i] = time.Since(start)
		})
	}
	wg.Wait()
	first, last := took[0], took[0]
	for i, d := range took {
		if errs[i] != nil {
			return errs[i]
		}
		first, last = min(first, d), max(last, d)
	}
	c.api.mu.Lock()
	refused := min(c.api.calls[crowded.path], crowded.refusals)
	c.api.mu.Unlock()
	c.printf("    all were answered after %v to %v; the API had to reject %d request\n", round(first), round(last), refused)
	return nil
}

func (c *caller) one(ctx context.Context, call httpclient.Call) error {
	req, err := http.NewRequestWithContext(httpclient.WithCall(ctx, call), crowded.method, c.api.url+crowded.path, nil)
	if err != nil {
		return err
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
