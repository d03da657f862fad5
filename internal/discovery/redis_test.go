package discovery_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/discovery"
	"github.com/holdfast-go/holdfast/internal/sim"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/retry"
)

// TestProcessesOfOneRedis keep one quota together, under the prefix of their own; after Close none counts as one of them.
func TestProcessesOfOneRedis(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		rdb := r.Client("p", redis.Options{MaxRetries: -1, ContextTimeoutEnabled: true})
		defer rdb.Close()
		of := func(opts ...limiter.RedisOption) *discovery.Discovery {
			t.Helper()
			d, err := discovery.New(rdb, opts...)
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		admitted := func(d *discovery.Discovery) bool {
			t.Helper()
			res, err := d.AllowN(t.Context(), "k", 1)
			if err != nil {
				t.Error(err)
			}
			return res.Allowed
		}
		a, b, apart := of(), of(), of(limiter.WithPrefix("apart"))
		if !admitted(a) {
			t.Error("the first request is denied")
		}
		a.Observe(t.Context(), "k", []retry.Quota{{Name: "q", Limit: 5, Remaining: 4, Reset: time.Hour, Window: time.Hour}}, false, time.Now())
		for i := range 10 {
			if got := admitted([]*discovery.Discovery{a, b}[i%2]); got != (i < 4) {
				t.Errorf("request %d of two processes: %v", i, got)
			}
		}
		if !admitted(apart) {
			t.Error("another prefix has learnt of it")
		}
		for _, d := range []*discovery.Discovery{a, b, apart} { // each says that it is alive
			time.Sleep(3 * time.Second)
			admitted(d)
			time.Sleep(time.Second)
		}
		for _, prefix := range []string{discovery.Prefix, "apart"} {
			if len(r.Members(prefix+":v1:peers")) == 0 {
				t.Errorf("%s counts none", prefix)
			}
		}
		for _, d := range []*discovery.Discovery{a, b, apart} {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
		for _, prefix := range []string{discovery.Prefix, "apart"} {
			if got := r.Members(prefix + ":v1:peers"); len(got) != 0 {
				t.Errorf("%s, after Close: %v", prefix, got)
			}
		}
		n := r.Commands()
		a.Observe(t.Context(), "k", []retry.Quota{{Name: "q", Limit: 7, Remaining: 4, Reset: time.Hour, Window: time.Hour}}, false, time.Now())
		if !admitted(a) || r.Commands() != n {
			t.Error("it asks Redis after Close, or stops requests")
		}
		if _, err := discovery.New(rdb, limiter.WithBudget(-1)); !errors.Is(err, limiter.ErrInvalidConfig) {
			t.Errorf("a budget below 0: %v", err)
		}
	})
}
