package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
)

func TestMain(m *testing.M) { redistest.VerifyNoLeaks(m) }

func short() config {
	return config{workers: 4, rate: 100, burst: 20, length: 8 * time.Second, kill: 1500 * time.Millisecond, back: 5 * time.Second}
}

// outage runs the demonstration and checks that it shows what it is for.
func outage(t *testing.T) string {
	var out bytes.Buffer
	r, err := run(context.Background(), short(), &out)
	if err != nil {
		t.Fatal(err)
	}
	r.print(&out) // whether every decision was in time depends on the machine
	t.Log(out.String())
	if r.errors != 0 || r.admitted > r.bound() || r.local == 0 || r.redis == 0 || r.outages != 1 || r.transitions == 0 {
		t.Errorf("%+v", r)
	}
	if !strings.Contains(out.String(), "The limit held.") {
		t.Error("the verdict is another one")
	}
	return out.String()
}

func TestOutageEmbedded(t *testing.T) {
	t.Setenv("REDIS_URL", "")
	t.Setenv("PATH", "")
	t.Setenv("HOLDFAST_REDIS_SERVER", "")
	if out := outage(t); !strings.Contains(out, "embedded") {
		t.Error("the embedded server was not used")
	}
}

func TestOutageRealServer(t *testing.T) {
	redistest.Require(t)
	t.Setenv("REDIS_URL", "")
	if out := outage(t); strings.Contains(out, "embedded") {
		t.Error("the embedded server was used")
	}
}

// TestForeignServerIsNotKilled: the server of REDIS_URL is used and left alone.
func TestForeignServerIsNotKilled(t *testing.T) {
	srv := redistest.Start(t)
	t.Setenv("REDIS_URL", "redis://"+srv.Addr())
	cfg := short()
	cfg.length, cfg.kill, cfg.back = 2*time.Second, 500*time.Millisecond, time.Second
	var out bytes.Buffer
	r, err := run(context.Background(), cfg, &out)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "not ours to kill") || r.outages != 0 || r.redis == 0 {
		t.Errorf("%s%+v", out.String(), r)
	}
	if redistest.Calls(t, srv, "evalsha") == 0 {
		t.Error("the server was not used")
	}
}

func TestVerdictIsComputed(t *testing.T) {
	for name, spoil := range map[string]func(*report){
		"an error":         func(r *report) { r.errors = 1 },
		"too slow":         func(r *report) { r.slowest = time.Second },
		"too many":         func(r *report) { r.admitted = r.bound() + 1 },
		"never local":      func(r *report) { r.local = 0 },
		"unasked-for call": func(r *report) { r.apiCalls = r.admitted + 1 },
	} {
		r := &report{
			limit: fleetLimit(), workers: 4, budget: 50 * time.Millisecond, length: 20 * time.Second, slowest: time.Millisecond,
			outages: 1, transitions: 8, alone: [][]span{{{5 * time.Second, 12 * time.Second}}, nil, nil, nil}, admitted: 2000, apiCalls: 2000, redis: 3000, local: 1000,
		}
		if !r.print(&bytes.Buffer{}) {
			t.Fatal("a good run was called bad")
		}
		spoil(r)
		if r.print(&bytes.Buffer{}) {
			t.Errorf("%s: called good", name)
		}
	}
}

func TestBoundIsThePublishedOne(t *testing.T) {
	r := &report{limit: fleetLimit(), workers: 4, length: 20 * time.Second, outages: 1, transitions: 8}
	for range 4 {
		r.alone = append(r.alone, []span{{5 * time.Second, 12 * time.Second}})
	}
	r.alone[3] = []span{{5 * time.Second, 14 * time.Second}}
	// Reached for 13 of 20 s, alone for 3×7+9 s, and 1+1+8/4 bursts of 20.
	if got, want := r.bound(), int64(100*(13+30.0/4)+20*4); got < want-1 || got > want+1 {
		t.Errorf("the bound is %d, want %d", got, want)
	}
}

func TestBadFlags(t *testing.T) {
	for _, spoil := range []func(*config){
		func(c *config) { c.workers = 0 },
		func(c *config) { c.length = 0 },
		func(c *config) { c.back = c.kill },
		func(c *config) { c.back = c.length },
	} {
		c := short()
		spoil(&c)
		if err := c.validate(); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
}

func fleetLimit() limiter.Limit { return limiter.TokenBucket(limiter.PerSecond(100), 20) }
