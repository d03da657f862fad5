package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

// output is what a program has printed so far.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// TestRun: the program says what to open, that answers, and the end leaves nothing,
// not even with a page that listens.
func TestRun(t *testing.T) {
	redistest.Require(t)
	t.Setenv("REDIS_URL", "")
	ctx, stop := context.WithCancel(t.Context())
	var out output
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, defaults(), &out) }()
	line := regexp.MustCompile(`Open (http://localhost:\d+) in a browser`)
	until(t, "it says what to open", func() bool { return line.MatchString(out.String()) })
	url := line.FindStringSubmatch(out.String())[1]
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	page, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode != 200 || !strings.Contains(string(page), "<h1>Holdfast</h1>") {
		t.Errorf("%d %s", resp.StatusCode, page)
	}
	events, err := client.Get(url + "/api/events")
	if err != nil {
		t.Fatal(err)
	}
	defer events.Body.Close()
	redis := regexp.MustCompile(`redis-server at (\S+)`).FindStringSubmatch(out.String())
	if redis == nil {
		t.Fatal(out.String())
	}
	stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("it does not end")
	}
	if c, err := net.DialTimeout("tcp", redis[1], time.Second); err == nil {
		_ = c.Close()
		t.Error("its Redis is still there")
	}
}

// TestPortIsTaken: the next free one is used, and said.
func TestPortIsTaken(t *testing.T) {
	first, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	port := first.Addr().(*net.TCPAddr).Port
	for _, host := range []string{"localhost", "127.0.0.1"} {
		var out bytes.Buffer
		ls, got, err := listen(fmt.Sprintf("%s:%d", host, port), &out)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range ls {
			_ = l.Close()
		}
		if got <= port || !strings.Contains(out.String(), fmt.Sprintf("Port %d is taken by another program; the page is at port %d instead.", port, got)) {
			t.Errorf("%s: port %d, %q", host, got, out.String())
		}
	}
}

func TestBadFlags(t *testing.T) {
	t.Setenv("REDIS_URL", "")
	for want, spoil := range map[string]func(*config){
		"processes is 0":        func(c *config) { c.processes = 0 },
		"processes is 9":        func(c *config) { c.processes = 9 },
		"rate is 1":             func(c *config) { c.rate = 1 },
		"burst is 0":            func(c *config) { c.burst = 0 },
		"budget is 1ms":         func(c *config) { c.budget = time.Millisecond },
		`addr is "8080"`:        func(c *config) { c.addr = "8080" },
		`addr is "localhost:x"`: func(c *config) { c.addr = "localhost:x" },
		`addr is "[::1]:70000"`: func(c *config) { c.addr = "[::1]:70000" },
	} {
		c := defaults()
		spoil(&c)
		if err := run(t.Context(), c, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	for url, want := range map[string]string{"http://x": "REDIS_URL", "unix:///tmp/redis.sock": "must be a TCP address"} {
		t.Setenv("REDIS_URL", url)
		if err := run(t.Context(), defaults(), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// TestBoundary: windows end by the clock of Redis.
func TestNextBorder(t *testing.T) {
	at := time.UnixMilli(1_000_000_000_100) // 1 s after a multiple of 3 s, and 100 ms
	for _, c := range []struct{ ahead, wait time.Duration }{
		{0, 1900 * time.Millisecond},
		{500 * time.Millisecond, 1400 * time.Millisecond},
		{1900 * time.Millisecond, 3 * time.Second},
		{-1200 * time.Millisecond, 100 * time.Millisecond},
	} {
		if got := nextBorder(at, 3*time.Second, c.ahead).Sub(at); got != c.wait {
			t.Errorf("%v ahead: in %v, want %v", c.ahead, got, c.wait)
		}
	}
}
