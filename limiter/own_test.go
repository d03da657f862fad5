package limiter_test

import (
	"context"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/redisproc"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
)

// goroutines is how many were started so far.
func goroutines() uint64 {
	s := []metrics.Sample{{Name: "/sched/goroutines-created:goroutines"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// TestLoneCallerMakesItsOwnCall: a caller that finds no other makes its call itself where
// the client keeps to deadlines, and leaves it to a goroutine where it does not. Not
// parallel, because it counts the goroutines of the whole process.
func TestLoneCallerMakesItsOwnCall(t *testing.T) {
	srv := redistest.Start(t)
	for _, c := range []struct {
		name        string
		opt         redis.Options
		least, most uint64 // of 200 decisions
		with        []limiter.Option
	}{
		{"keeps to deadlines", redis.Options{ContextTimeoutEnabled: true}, 0, 10, nil},
		{"with the client's defaults", redis.Options{}, 200, 1000, nil},
		{"without timeouts", redis.Options{ContextTimeoutEnabled: true, ReadTimeout: -2}, 200, 1000, nil},
		{"calls the user for each connection", redis.Options{ContextTimeoutEnabled: true, OnConnect: func(context.Context, *redis.Conn) error { return nil }}, 200, 1000, nil},
		// Who finds the library missing waits until another one has loaded it.
		{"with functions", redis.Options{ContextTimeoutEnabled: true}, 200, 1000, []limiter.Option{limiter.WithFunctions()}},
	} {
		_, rdb := behind(t, srv, c.opt)
		lim := newLimiter(t, rdb, limiter.GCRA(limiter.PerHour(10_000), 10_000), append(c.with, patient())...)
		ask := func() {
			if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Source != limiter.SourceRedis {
				t.Fatalf("%s: %+v, %v", c.name, res, err)
			}
		}
		for range 10 { // dials, and sends the script
			ask()
		}
		before := goroutines()
		for range 200 {
			ask()
		}
		if n := goroutines() - before; n < c.least || n > c.most {
			t.Errorf("%s: 200 decisions started %d goroutines, want %d to %d", c.name, n, c.least, c.most)
		}
	}
}

// leaver is a hook in which the caller of a command leaves, when it is set.
type leaver struct{ leave func() }

func (l *leaver) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *leaver) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (l *leaver) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if l.leave != nil {
			l.leave()
		}
		return next(ctx, cmd)
	}
}

// TestCancelledLoneCaller: a caller who makes its call itself and is cancelled meanwhile has the answer of Redis, if there
// is one, and else the error of its context: nothing is decided for it without Redis.
func TestCancelledLoneCaller(t *testing.T) {
	t.Parallel()
	for _, answers := range []bool{true, false} {
		srv := redistest.Start(t)
		rdb, l := redistest.Client(t, srv), new(leaver)
		rdb.Options().ContextTimeoutEnabled = true
		rdb.AddHook(l)
		lim := newLimiter(t, rdb, limiter.GCRA(limiter.PerHour(10), 10), limiter.WithBudget(2*time.Second), limiter.WithShare(1))
		until(t, "Redis decides", func() bool { // dials, and sends the script
			res, err := lim.Allow(t.Context(), "k")
			return err == nil && res.Source == limiter.SourceRedis
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		l.leave = cancel
		if !answers {
			srv.Freeze()
		}
		before := lim.Health().Decisions[limiter.SourceLocal]
		res, err := lim.Allow(ctx, "k")
		l.leave = nil
		if answers && (err != nil || res.Source != limiter.SourceRedis) || !answers && (err != context.Canceled || res.Allowed || lim.Health().Decisions[limiter.SourceLocal] > before) {
			t.Errorf("answers %v: %+v, %v, %v", answers, res, err, lim.Health().Decisions)
		}
		srv.Thaw()
	}
}

// TestOwnCallEndsWithTheBudget: whatever happens to Redis, a caller that makes its call
// itself gets no error and is back when its budget ends, on the connection that it has and
// while it waits for one; and Redis decides again afterwards.
func TestOwnCallEndsWithTheBudget(t *testing.T) {
	t.Parallel()
	network := func(m faultproxy.Mode) func(*redisproc.Server, *faultproxy.Proxy, *redis.Client) {
		return func(_ *redisproc.Server, p *faultproxy.Proxy, _ *redis.Client) { p.Set(m) }
	}
	for name, begin := range map[string]func(*redisproc.Server, *faultproxy.Proxy, *redis.Client){
		"frozen":        func(srv *redisproc.Server, _ *faultproxy.Proxy, _ *redis.Client) { _ = srv.Freeze() },
		"killed":        func(srv *redisproc.Server, _ *faultproxy.Proxy, _ *redis.Client) { _ = srv.Kill() },
		"half-open":     network(faultproxy.Mode{HalfOpen: true}),
		"black hole":    network(faultproxy.Mode{BlackHole: true}),
		"slow by 1 s":   network(faultproxy.Mode{ReplyDelay: time.Second}),
		"slow by 60 ms": network(faultproxy.Mode{ReplyDelay: 60 * time.Millisecond}),
		"throttled":     network(faultproxy.Mode{BytesPerSecond: 10}),
		"must dial anew": func(_ *redisproc.Server, p *faultproxy.Proxy, _ *redis.Client) {
			p.Set(faultproxy.Mode{BlackHole: true})
			p.Reset()
		},
		"reset on connect": func(_ *redisproc.Server, p *faultproxy.Proxy, _ *redis.Client) {
			p.Set(faultproxy.Mode{Refuse: true})
			p.Reset()
		},
		"no connection is free": func(_ *redisproc.Server, p *faultproxy.Proxy, rdb *redis.Client) {
			go rdb.BLPop(context.Background(), 0, "nothing") // keeps the only one
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			proxy, rdb := behind(t, srv, redis.Options{ContextTimeoutEnabled: true, PoolSize: 1})
			lim := newLimiter(t, rdb, limiter.FixedWindow(limiter.Per(10_000, 24*time.Hour)), limiter.WithShare(1),
				limiter.WithBreaker(breaker.Settings{MinRequests: 4, OpenMin: 100 * time.Millisecond, OpenMax: 100 * time.Millisecond}))
			decided := func() bool {
				res, err := lim.Allow(t.Context(), "k")
				return err == nil && res.Source == limiter.SourceRedis
			}
			until(t, "a decision by Redis", decided)
			begin(srv, proxy, rdb)
			m := measured(t)
			locally := 0
			until(t, "twenty local decisions", func() bool {
				start := time.Now()
				res, err := lim.Allow(t.Context(), "k")
				if took := time.Since(start); err != nil || took > m.within(defaultBudget) {
					t.Fatalf("%+v, %v after %v", res, err, took)
				}
				if res.Source == limiter.SourceLocal {
					locally++
				}
				return locally == 20
			})
			switch name {
			case "killed":
				must(t, srv.Restart())
			case "frozen":
				must(t, srv.Thaw())
			case "no connection is free":
				must(t, redistest.Admin(t, srv).LPush(t.Context(), "nothing", "x").Err())
			default:
				proxy.Pass()
				proxy.Reset()
			}
			until(t, "Redis decides again", decided)
		})
	}
}

// TestOwnCallThatIsCancelled: who cancels gets the context's error, at the latest when the
// budget ends, and takes nobody else along.
func TestOwnCallThatIsCancelled(t *testing.T) {
	t.Parallel()
	proxy, rdb := behind(t, redistest.Start(t), redis.Options{ContextTimeoutEnabled: true})
	lim := newLimiter(t, rdb, limiter.GCRA(limiter.PerHour(10_000), 10_000), limiter.WithBudget(patience), limiter.WithShare(1))
	for range 3 {
		_, err := lim.Allow(t.Context(), "k")
		must(t, err)
	}
	proxy.Set(faultproxy.Mode{ReplyDelay: 300 * time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	res, err := lim.Allow(ctx, "k")
	// The answer may be there first: then it is the caller's.
	if err != context.Canceled && (err != nil || !res.Allowed) {
		t.Fatalf("%+v, %v", res, err)
	}
	proxy.Pass()
	until(t, "Redis decides", func() bool {
		res, err := lim.Allow(t.Context(), "k")
		must(t, err)
		return res.Source == limiter.SourceRedis
	})
	if state := stateOf(lim)(); state != breaker.Closed {
		t.Errorf("the breaker is %v", state)
	}
}
