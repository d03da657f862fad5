package limiter_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/sim"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/limiter/limitertest"
)

// hasty opens at the first failure and stays open until the test is over, or
// briefly.
func hasty(open time.Duration) limiter.Option {
	return limiter.WithBreaker(breaker.Settings{MinRequests: 1, FailureRatio: 0.01, OpenMin: open, OpenMax: open})
}

// unhurried leaves room for any hiccup of a busy machine. Clients that fail fast
// go with it.
func unhurried() limiter.Option { return limiter.WithBudget(patience) }

// patience is longer than any machine is too busy for.
const patience = time.Minute

// TestShareIsLearnt: processes count each other, keep the count through an
// outage, and are forgotten when they leave.
func TestShareIsLearnt(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	var lims []*limiter.Limiter
	for i := range 4 {
		lims = append(lims, newLimiter(t, redistest.Admin(t, srv), limiter.TokenBucket(limiter.PerHour(40), 40),
			limiter.WithProcess(fmt.Sprint("p", i)), limiter.WithEqualShare(1), hasty(time.Hour), unhurried()))
	}
	idle := newLimiter(t, redistest.Client(t, srv), good, limiter.WithProcess("idle"))
	again := newLimiter(t, redistest.Client(t, srv), good, limiter.WithProcess("p0"))
	count := func(want int) func() bool {
		return func() bool {
			agree := true
			for _, lim := range append(lims, again) {
				if _, err := lim.Peek(t.Context(), "k"); err != nil {
					t.Fatal(err)
				}
				agree = agree && lim.Health().Processes == want
			}
			return agree
		}
	}
	until(t, "four processes count each other", count(4))
	if h := idle.Health(); h.Processes != 1 || h.Share != 1 {
		t.Errorf("a limiter that decides nothing: %+v", h)
	}

	// One limiter of p0 closes, then p3 as a whole.
	must(t, again.Close())
	must(t, lims[3].Close())
	again, lims = lims[0], lims[:3]
	until(t, "three are left", count(3))

	must(t, srv.Kill())
	admitted := 0
	for _, lim := range lims {
		for range 40 {
			res, err := lim.Allow(t.Context(), "fresh")
			if err != nil || res.Source != limiter.SourceLocal {
				t.Fatalf("%+v, %v", res, err)
			}
			if res.Allowed {
				admitted++
			}
		}
	}
	if admitted != 39 {
		t.Errorf("three processes admitted %d of a burst of 40 on their own, want 3 × 13", admitted)
	}
}

// TestIdleLimiterRunsNothing: what the heartbeat costs rides on decisions.
func TestIdleLimiterRunsNothing(t *testing.T) {
	srv := redistest.Start(t)
	newLimiter(t, redistest.Client(t, srv), good)
	if n := redistest.Calls(t, srv, "evalsha"); n != 0 {
		t.Errorf("%d calls by a limiter that decided nothing", n)
	}
}

// TestHeartbeatIsRare: one heartbeat in two seconds, and one more after the
// number has changed, whatever the load.
func TestHeartbeatIsRare(t *testing.T) {
	srv := redistest.Start(t)
	lim := newLimiter(t, redistest.Client(t, srv), good, limiter.WithBudget(10*time.Second))
	const decisions = 2000
	start := time.Now()
	for range decisions {
		if _, err := lim.Allow(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
	}
	most := int64(4 + time.Since(start)/(2*time.Second))
	if n := redistest.Calls(t, srv, "evalsha"); n > decisions+most {
		t.Errorf("%d calls for %d decisions", n, decisions)
	}
}

// TestWarm: a process that knows from Redis that 30 of 100 are left admits its
// part of 30 when Redis is lost, not of 100.
func TestWarm(t *testing.T) {
	t.Parallel()
	for _, limit := range limitertest.Limits(limiter.PerHour(100)) {
		srv := redistest.Start(t)
		lim := newLimiter(t, redistest.Admin(t, srv), limit, limiter.WithShare(0.5), hasty(time.Hour), unhurried())
		if res, err := lim.AllowN(t.Context(), "k", 70); err != nil || res.Remaining != 30 {
			t.Fatalf("%+v, %v", res, err)
		}
		must(t, srv.Kill())
		admitted := 0
		for range 100 {
			res, err := lim.Allow(t.Context(), "k")
			if err != nil || res.Source != limiter.SourceLocal {
				t.Fatalf("%+v, %v", res, err)
			}
			if res.Allowed {
				admitted++
			}
		}
		if admitted != 15 {
			t.Errorf("%v: %d admitted with 30 left and half of the limit", limit, admitted)
		}
	}
}

// TestReconcile: what processes admit on their own is charged when Redis is
// back, once, and no more than the limit.
func TestReconcile(t *testing.T) {
	t.Parallel()
	for _, limit := range limitertest.Limits(limiter.PerHour(100)) {
		srv := redistest.Start(t)
		var lims []*limiter.Limiter
		for range 3 {
			lims = append(lims, newLimiter(t, redistest.Admin(t, srv), limit, limiter.WithShare(1.0/3), hasty(50*time.Millisecond), unhurried()))
		}
		must(t, srv.Kill())
		admitted := map[string]int{}
		for i, lim := range lims {
			for key, n := range map[string]int{"little": 3 + i, "much": 200} {
				for range n {
					if res, err := lim.Allow(t.Context(), key); err != nil || res.Source != limiter.SourceLocal {
						t.Fatalf("%+v, %v", res, err)
					} else if res.Allowed {
						admitted[key]++
					}
				}
			}
		}
		if admitted["little"] != 12 || admitted["much"] != 99 {
			t.Fatalf("%v: admitted %v", limit, admitted)
		}
		must(t, srv.Restart())
		others := 0
		until(t, "all have settled", func() bool {
			settled := true
			for _, lim := range lims {
				// Only what is charged shows that Redis can be.
				if _, err := lim.Allow(t.Context(), fmt.Sprint("other", others)); err != nil {
					t.Fatal(err)
				}
				others++
				h := lim.Health()
				settled = settled && h.Reconciled >= 2 && h.Owed == 0
			}
			return settled
		})
		for range 3 {
			for key, n := range admitted {
				res, err := lims[0].Peek(t.Context(), key)
				if err != nil || res.Source != limiter.SourceRedis || res.Remaining != 100-n {
					t.Errorf("%v: %d admitted of %q, then %+v, %v", limit, n, key, res, err)
				}
			}
		}
	}
}

// TestLostRepliesAreNotReconciled: the server has charged what it was asked, or
// will; charging it again on recovery would be twice.
func TestLostRepliesAreNotReconciled(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		rdb := r.Client("a", redis.Options{MaxRetries: -1})
		t.Cleanup(func() { _ = rdb.Close() })
		lim := newLimiter(t, rdb, limiter.FixedWindow(limiter.Per(1000, 24*time.Hour)), limiter.WithShare(1))
		const decisions = 3 // as many as are sent at once, and not kept waiting
		for range 2 {       // connections, at the second time
			for _, a := range together(decisions, func(i int) (limiter.Result, error) { return lim.Peek(t.Context(), fmt.Sprint("warm", i)) }) {
				must(t, a.err)
			}
		}
		if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Source != limiter.SourceRedis {
			t.Fatalf("%+v, %v", res, err)
		}
		r.Set(func(h *sim.Health) { h.Frozen = true })
		for _, a := range together(decisions, func(int) (limiter.Result, error) { return lim.Allow(t.Context(), "k") }) {
			if a.err != nil || a.res.Source != limiter.SourceLocal {
				t.Errorf("%+v, %v", a.res, a.err)
			}
		}
		if n := lim.Health().Owed; n != 0 {
			t.Errorf("%d keys are owed, though their decisions were sent", n)
		}
		r.Set(func(h *sim.Health) { h.Frozen = false })
		until(t, "Redis decides", func() bool {
			res, err := lim.Allow(t.Context(), "other")
			return err == nil && res.Source == limiter.SourceRedis
		})
		time.Sleep(time.Second)
		if res, err := lim.Peek(t.Context(), "k"); err != nil || res.Source != limiter.SourceRedis || res.Remaining < 1000-1-decisions {
			t.Errorf("%d decisions were charged more than once: %+v, %v", 1+decisions, res, err)
		}
	})
}

// TestUnsentIsOwed: a client of default options tries to dial for longer than
// the budget; what was decided meanwhile was never sent, and is owed.
func TestUnsentIsOwed(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		rdb := r.Client("a", redis.Options{})
		t.Cleanup(func() { _ = rdb.Close() })
		r.SetPath("a", func(p *sim.Path) { p.Refused = true })
		lim := newLimiter(t, rdb, limiter.FixedWindow(limiter.Per(1000, 24*time.Hour)), limiter.WithShare(1), limiter.WithBreaker(breaker.Settings{MinRequests: 1000, ConsecutiveFailures: 1000}))
		for range 5 {
			began := time.Now()
			if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Source != limiter.SourceLocal || time.Since(began) != defaultBudget {
				t.Fatalf("after %v: %+v, %v", time.Since(began), res, err)
			}
		}
		if n := lim.Health().Owed; n != 1 {
			t.Fatalf("%d keys are owed", n)
		}
		r.SetPath("a", func(p *sim.Path) { p.Refused = false })
		until(t, "the debt is settled", func() bool {
			_, err := lim.Allow(t.Context(), "other")
			return err == nil && lim.Health().Reconciled == 1
		})
		if res, err := lim.Peek(t.Context(), "k"); err != nil || res.Source != limiter.SourceRedis || res.Remaining != 995 {
			t.Errorf("5 were admitted, then %+v, %v", res, err)
		}
	})
}

// TestLogsAnOutageOnce: one line when it begins and one when it is over, however
// many decisions and probes there were between them; what changed, why and since when;
// and no key in either.
func TestLogsAnOutageOnce(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	var mu sync.Mutex
	var log bytes.Buffer
	logger := slog.New(slog.NewJSONHandler(writerFunc(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return log.Write(p)
	}), nil))
	var calls atomic.Int64
	lim := newLimiter(t, redistest.Admin(t, srv), good, limiter.WithLogger(logger), hasty(20*time.Millisecond), unhurried(), limiter.WithPrefix("shop"), limiter.WithShare(1),
		limiter.WithHooks(limiter.Hooks{Call: func(context.Context, limiter.CallInfo) { calls.Add(1) }}))
	made := time.Now()
	const key = "somebody@example.com"
	must(t, srv.Kill())
	until(t, "several probes", func() bool {
		_, err := lim.Allow(t.Context(), key)
		return err != nil || calls.Load() > 5
	})
	must(t, srv.Restart())
	until(t, "Redis decides", func() bool {
		res, err := lim.Allow(t.Context(), key)
		return err == nil && res.Source == limiter.SourceRedis
	})
	must(t, lim.Close())
	mu.Lock()
	defer mu.Unlock()
	if strings.Contains(log.String(), key) {
		t.Errorf("a key in\n%s", log.String())
	}
	type line struct {
		Time                                         time.Time
		Level, Msg, Breaker, From, To, Cause, Policy string
		Since                                        time.Time
		OpenFor                                      time.Duration `json:"open_for"`
		Outage                                       time.Duration
	}
	var lines []line
	for dec := json.NewDecoder(bytes.NewReader(log.Bytes())); dec.More(); {
		var l line
		must(t, dec.Decode(&l))
		lines = append(lines, l)
	}
	if len(lines) != 2 {
		t.Fatalf("logged:\n%s", log.String())
	}
	down, up := lines[0], lines[1]
	if down.Level != "WARN" || down.Msg != "holdfast: redis circuit opened; falling back" || down.Breaker != "shop" || down.From != "closed" || down.To != "open" ||
		down.Cause != "unavailable" || down.Policy != "local" || down.OpenFor <= 0 || down.Since.After(made) || down.Since.IsZero() {
		t.Errorf("when it began: %+v", down)
	}
	// The line is written a moment after the change.
	if up.Level != "INFO" || up.Msg != "holdfast: redis circuit closed" || up.Breaker != "shop" || up.From != "half-open" || up.To != "closed" ||
		up.Since.Before(made) || up.Since.After(down.Time) || up.Outage <= 0 || up.Since.Add(up.Outage).After(up.Time) {
		t.Errorf("when it was over: %+v", up)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
