package main

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/holdfast-go/holdfast/examples/internal/demo"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

func TestMain(m *testing.M) {
	logging.Disable()
	redistest.VerifyNoLeaks(m)
}

// defaults are the program's but for a budget that a busy machine keeps, and a button Slow
// that is four times as slow as it.
func defaults() config {
	return config{addr: "localhost:0", processes: 4, rate: 100, burst: 20, budget: time.Second, slowBy: 4 * time.Second}
}

// calm is for tests that look at something else than the traffic, which computes more than they do.
func calm(c *config) { c.rate = 10 }

// startDemo runs everything but the listener, with a Redis that start starts.
func startDemo(t *testing.T, start func() (*demo.Redis, error), change ...func(*config)) (*app, *httptest.Server) {
	t.Helper()
	redis, err := start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(redis.Close)
	cfg := defaults()
	for _, f := range change {
		f(&cfg)
	}
	a, err := newApp(cfg, redis)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.close(); err != nil {
			t.Error(err)
		}
	})
	h, err := a.handler(true)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return a, srv
}
