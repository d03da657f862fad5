package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/limiter/limitertest"
)

func newMulti(t *testing.T, parts ...limiter.Part) *limiter.Multi {
	t.Helper()
	m, err := limiter.NewMulti(parts...)
	must(t, err)
	return m
}

// layers are parts named a, b, c and so on, each with a prefix of its own.
func layers(t *testing.T, clients []redis.UniversalClient, limits []limiter.Limit, opts ...limiter.Option) []limiter.Part {
	var parts []limiter.Part
	for i, limit := range limits {
		name := string(rune('a' + i))
		parts = append(parts, limiter.Part{
			Name:    name,
			Limiter: newLimiter(t, clients[i%len(clients)], limit, append([]limiter.Option{limiter.WithPrefix(name)}, opts...)...),
			Key:     func(key string) string { return key + "@" + name },
		})
	}
	return parts
}

// TestMultiIsAllOrNothing: the request passes when every limit has room, else no
// limit is charged, and the result says which one denied.
func TestMultiIsAllOrNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, client func() *redis.Client) {
		rdb := client()
		second := newLimiter(t, rdb, limiter.TokenBucket(limiter.PerHour(1), 3), patient(), limiter.WithPrefix("second"))
		hour := newLimiter(t, rdb, limiter.FixedWindow(limiter.Per(5, 300*time.Hour)), patient(), limiter.WithPrefix("hour"))
		m := newMulti(t, limiter.Part{Name: "burst", Limiter: second}, limiter.Part{Name: "quota", Limiter: hour})
		ctx := t.Context()
		res, err := m.Allow(ctx, "k", limiter.Cost(2))
		must(t, err)
		if !res.Allowed || res.Denied != "" || res.Remaining != 1 || len(res.Parts) != 2 || res.Parts[0].Remaining != 1 || res.Parts[1].Remaining != 3 || res.Source != limiter.SourceRedis {
			t.Fatalf("%+v", res)
		}
		res, err = m.Allow(ctx, "k", limiter.Cost(3))
		must(t, err)
		if res.Allowed || res.Denied != "burst" || len(res.Parts) != 2 || res.RetryAfter != res.Parts[0].RetryAfter || res.Parts[1].Remaining != 3 || !res.Parts[1].Allowed || res.Limit != second.Limit() {
			t.Fatalf("%+v", res)
		}
		// The cache knows, and says whose limit it was.
		again, err := m.Allow(ctx, "k", limiter.Cost(3))
		must(t, err)
		if again.Allowed || again.Denied != "burst" || again.Source != limiter.SourceCache || len(again.Parts) != 1 || again.Parts[0].Name != "burst" {
			t.Fatalf("%+v", again)
		}
		if _, err := hour.AllowN(ctx, "k", 3); err != nil {
			t.Fatal(err)
		}
		res, err = m.Allow(ctx, "k", limiter.Cost(1))
		must(t, err)
		if res.Allowed || res.Denied != "quota" || left(t, second, "k") != 1 {
			t.Fatalf("%+v", res)
		}
		both, err := m.Allow(ctx, "k", limiter.Cost(2), limiter.Cost(1))
		must(t, err)
		if both.Allowed || both.Denied != "quota" && both.Denied != "burst" || both.RetryAfter < 100*time.Minute/2 {
			t.Fatalf("%+v", both)
		}
		look, err := m.Allow(ctx, "k", limiter.Cost(0), limiter.Cost(0))
		must(t, err)
		if !look.Allowed || look.Parts[0].Remaining != 1 || look.Parts[1].Remaining != 0 {
			t.Fatalf("%+v", look)
		}
		var sum uint64
		for _, n := range second.Health().Decisions {
			sum += n
		}
		if sum == 0 {
			t.Error("no decision was counted")
		}
	})
}

// TestConformanceMulti: a Multi is a limiter like any other.
func TestConformanceMulti(t *testing.T) {
	t.Parallel()
	a, b := redistest.Start(t), redistest.Start(t)
	var all atomic.Int64
	one, other := redistest.Client(t, a), redistest.Client(t, b)
	for name, clients := range map[string][2]*redis.Client{"one call": {one, one}, "two servers": {one, other}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limitertest.Run(t, func(t *testing.T, limit limiter.Limit) limiter.Allower {
				made := all.Add(1)
				var parts []limiter.Part
				for i, limit := range []limiter.Limit{limiter.FixedWindow(limiter.PerHour(1_000_000)), limit} {
					name := fmt.Sprint("c", made, "-", i)
					parts = append(parts, limiter.Part{Name: name, Limiter: newLimiter(t, clients[i], limit, patient(), limiter.WithPrefix(name)), Key: func(key string) string { return key + "@" + name }})
				}
				return newMulti(t, parts...)
			})
		})
	}
}

// TestMultiIsOneCall: parts on one server take one command, whatever their
// algorithms.
func TestMultiIsOneCall(t *testing.T) {
	srv := redistest.Start(t)
	m := newMulti(t, layers(t, []redis.UniversalClient{redistest.Client(t, srv)}, slow(1000), patient())...)
	if _, err := m.Allow(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	before := redistest.Calls(t, srv, "evalsha")
	for range 100 {
		res, err := m.Allow(t.Context(), "k")
		must(t, err)
		if len(res.Parts) != 7 {
			t.Fatalf("%+v", res)
		}
	}
	if calls := redistest.Calls(t, srv, "evalsha") - before; calls != 100 {
		t.Errorf("%d calls for 100 decisions of seven parts", calls)
	}
}

// wheres are the places in which a Multi can be decided.
func wheres() map[string]func(t *testing.T, limits []limiter.Limit) *limiter.Multi {
	return map[string]func(t *testing.T, limits []limiter.Limit) *limiter.Multi{
		"one call": func(t *testing.T, limits []limiter.Limit) *limiter.Multi {
			return newMulti(t, layers(t, []redis.UniversalClient{redistest.Client(t, redistest.Start(t))}, limits, patient(), limiter.WithoutDenialCache())...)
		},
		"two servers": func(t *testing.T, limits []limiter.Limit) *limiter.Multi {
			return newMulti(t, layers(t, []redis.UniversalClient{redistest.Client(t, redistest.Start(t)), redistest.Client(t, redistest.Start(t))}, limits, patient(), limiter.WithoutDenialCache())...)
		},
		"down": func(t *testing.T, limits []limiter.Limit) *limiter.Multi {
			var parts []limiter.Part
			for i, limit := range limits {
				parts = append(parts, limiter.Part{Name: fmt.Sprint(i), Limiter: down(t, limit, limiter.WithPrefix(fmt.Sprint("p", i)))})
			}
			return newMulti(t, parts...)
		},
	}
}

// TestMultiUnderLoad: of many callers at once exactly as many pass as the smallest
// limit admits, and what they gave back is there again.
func TestMultiUnderLoad(t *testing.T) {
	t.Parallel()
	for name, newIn := range wheres() {
		t.Run(name, func(t *testing.T) {
			m := newIn(t, []limiter.Limit{limiter.GCRA(limiter.PerHour(1), 300), of("fixed window")(100), limiter.TokenBucket(limiter.PerHour(1), 200)})
			var admitted, kept atomic.Int64
			var wg sync.WaitGroup
			for i := range 400 {
				wg.Go(func() {
					r, err := m.Reserve(t.Context(), "k")
					switch {
					case err != nil:
						t.Error(err)
					case r.Allowed:
						admitted.Add(1)
						if i%2 == 0 {
							if err := r.Cancel(t.Context()); err != nil {
								t.Error(err)
							}
						} else {
							kept.Add(1)
						}
					}
				})
			}
			wg.Wait()
			look, err := m.Allow(t.Context(), "k", limiter.Cost(0))
			must(t, err)
			for i, size := range []int{300, 100, 200} {
				used := size - look.Parts[i].Remaining
				if short := used - int(kept.Load()); short < 0 || short > 1 {
					t.Errorf("%d used of part %d, %d are kept", used, i, kept.Load())
				}
			}
			if name == "one call" && admitted.Load() < 100 {
				t.Errorf("%d admitted", admitted.Load())
			}
			for used := int(kept.Load()); used < 100; used++ {
				if res, err := m.Allow(t.Context(), "k"); err != nil || !res.Allowed {
					t.Fatalf("with %d of 100 used: %+v, %v", used, res, err)
				}
			}
			if res, err := m.Allow(t.Context(), "k"); err != nil || res.Allowed || res.Denied == "" {
				t.Errorf("beyond the limit: %+v, %v", res, err)
			}
		})
	}
}

// TestMultiInACluster: keys of one slot take one call, and others are given back
// when one denies; also when the client does not know of the cluster.
func TestMultiInACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), ReadTimeout: patience, WriteTimeout: patience})
	t.Cleanup(func() { _ = rdb.Close() })
	limits := []limiter.Limit{of("fixed window")(50), of("gcra")(20), of("sliding window log")(40)}
	parts := layers(t, []redis.UniversalClient{rdb}, limits, patient())
	apart := newMulti(t, parts...)
	for i := range parts {
		parts[i].Key = nil
	}
	same := newMulti(t, parts...)
	for key, m := range map[string]*limiter.Multi{"k": apart, "s": same} {
		for i := range 30 {
			res, err := m.Allow(t.Context(), key)
			must(t, err)
			if res.Allowed != (i < 20) || !res.Allowed && res.Denied != "b" {
				t.Fatalf("%s, request %d: %+v", key, i, res)
			}
		}
		look, err := m.Allow(t.Context(), key, limiter.Cost(0))
		must(t, err)
		if look.Parts[0].Remaining != 30 || look.Parts[2].Remaining != 20 {
			t.Errorf("%s: %+v", key, look)
		}
	}
}

// TestMultiReserve: critical calls pass where others are kept off, in one call and
// in the fallback.
func TestMultiReserve(t *testing.T) {
	onBoth(t, func(t *testing.T, client func() *redis.Client) {
		rdb := client()
		user := newLimiter(t, rdb, of("gcra")(10), patient(), limiter.WithPrefix("user"), limiter.WithCriticalHeadroom(0.5))
		all := newLimiter(t, rdb, of("fixed window")(8), patient(), limiter.WithPrefix("all"), limiter.WithCriticalHeadroom(0.25))
		m := newMulti(t, limiter.Part{Name: "user", Limiter: user}, limiter.Part{Name: "all", Limiter: all})
		ctx, critical := t.Context(), limiter.Critical(t.Context())
		for i, want := range []struct {
			ctx     context.Context
			allowed bool
			denied  string
		}{
			{ctx, true, ""}, {ctx, true, ""}, {ctx, true, ""}, {ctx, true, ""}, {ctx, true, ""}, {ctx, false, "user"},
			{critical, true, ""}, {critical, true, ""}, {critical, true, ""}, {critical, false, "all"},
		} {
			res, err := m.Allow(want.ctx, "k")
			must(t, err)
			if res.Allowed != want.allowed || res.Denied != want.denied {
				t.Fatalf("call %d: %+v, want %v, %q", i, res, want.allowed, want.denied)
			}
		}
	})
}

// TestMultiWaits: for the slowest of those that deny.
func TestMultiWaits(t *testing.T) {
	onBoth(t, func(t *testing.T, client func() *redis.Client) {
		rdb := client()
		fastOne := newLimiter(t, rdb, limiter.GCRA(limiter.Per(1, 10*time.Millisecond), 1), patient(), limiter.WithPrefix("fast"))
		slowOne := newLimiter(t, rdb, limiter.LeakyBucketShaping(limiter.Per(1, 60*time.Millisecond), 3), patient(), limiter.WithPrefix("slow"))
		m := newMulti(t, limiter.Part{Name: "fast", Limiter: fastOne}, limiter.Part{Name: "slow", Limiter: slowOne})
		start := time.Now()
		for range 3 {
			if res, err := m.Wait(t.Context(), "k"); err != nil || !res.Allowed || len(res.Parts) != 2 {
				t.Fatalf("%+v, %v", res, err)
			}
		}
		if took := time.Since(start); took < 120*time.Millisecond {
			t.Errorf("three starts at 60 ms took %v", took)
		}
		hourly := newLimiter(t, rdb, limiter.LeakyBucketShaping(limiter.PerHour(1), 3), patient(), limiter.WithPrefix("hourly"))
		m = newMulti(t, limiter.Part{Name: "fast", Limiter: fastOne}, limiter.Part{Name: "hourly", Limiter: hourly})
		if _, err := m.Wait(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := m.Wait(ctx, "k")
		var wait *limiter.WaitError
		if !errors.As(err, &wait) {
			t.Errorf("a wait that cannot be met: %v", err)
		}
	})
}

// TestMultiPolicies: a part that fails closed denies, and nobody else is charged;
// one that fails open lets its part pass.
func TestMultiPolicies(t *testing.T) {
	local := down(t, of("fixed window")(5), limiter.WithPrefix("local"))
	open := down(t, of("fixed window")(1), limiter.WithPrefix("open"), limiter.WithFallback(fallback.Open))
	closed := down(t, of("fixed window")(5), limiter.WithPrefix("closed"), limiter.WithFallback(fallback.Closed))
	m := newMulti(t, limiter.Part{Name: "local", Limiter: local}, limiter.Part{Name: "open", Limiter: open})
	for i := range 6 {
		res, err := m.Allow(t.Context(), "k")
		must(t, err)
		if res.Allowed != (i < 5) || !res.Allowed && res.Denied != "local" {
			t.Fatalf("request %d: %+v", i, res)
		}
	}
	m = newMulti(t, limiter.Part{Name: "local", Limiter: local}, limiter.Part{Name: "closed", Limiter: closed})
	if res, err := m.Allow(t.Context(), "other"); !errors.Is(err, limiter.ErrUnavailable) || !strings.Contains(err.Error(), `"closed"`) || res.Allowed {
		t.Errorf("%+v, %v", res, err)
	}
	if got := left(t, local, "other"); got != 5 {
		t.Errorf("%d remaining: the part before the closed one was charged", got)
	}
}

// TestBadMultis: what cannot be several limits for one request.
func TestBadMultis(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = rdb.Close() })
	a := newLimiter(t, rdb, good, limiter.WithPrefix("a"))
	b := newLimiter(t, rdb, good, limiter.WithPrefix("b"))
	sameAsA := newLimiter(t, rdb, limiter.FixedWindow(limiter.PerHour(7)), limiter.WithPrefix("a"))
	for want, parts := range map[string][]limiter.Part{
		"is 0: must be at least 1": nil,
		"must not be empty":        {{Limiter: a}},
		"must not be nil":          {{Name: "a"}},
		"for one part only":        {{Name: "a", Limiter: a}, {Name: "a", Limiter: b}},
		"prefix of its own":        {{Name: "a", Limiter: a}, {Name: "b", Limiter: sameAsA}},
		"share their count":        {{Name: "a", Limiter: a}, {Name: "b", Limiter: a}},
	} {
		if _, err := limiter.NewMulti(parts...); !errors.Is(err, limiter.ErrInvalidConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	m := newMulti(t, limiter.Part{Name: "a", Limiter: a}, limiter.Part{Name: "b", Limiter: b})
	for _, c := range []struct {
		key  string
		opts []limiter.CallOption
		want error
	}{
		{"k", costs([]int{1, 2, 3}), limiter.ErrInvalidConfig},
		{"", costs([]int{1}), limiter.ErrInvalidKey},
		{"k", costs([]int{1, -1}), limiter.ErrInvalidCost},
		{"k", costs([]int{1, 1 << 30}), limiter.ErrCostExceedsLimit},
		{"k", []limiter.CallOption{good}, limiter.ErrInvalidConfig},
		{"k", []limiter.CallOption{good, good, good}, limiter.ErrInvalidConfig},
		{"k", []limiter.CallOption{good, limiter.GCRA(limiter.PerSecond(0), 1)}, limiter.ErrInvalidConfig},
		{"k", []limiter.CallOption{limiter.AtMost(1), limiter.AtMost(1)}, limiter.ErrInvalidConfig},
		{"k", []limiter.CallOption{limiter.AtMost(1), limiter.Cost(1)}, limiter.ErrInvalidConfig},
		{"k", []limiter.CallOption{limiter.AtMost(-1)}, limiter.ErrInvalidCost},
	} {
		if res, err := m.Allow(t.Context(), c.key, c.opts...); !errors.Is(err, c.want) || res.Allowed {
			t.Errorf("%q, %v: %+v, %v", c.key, c.opts, res, err)
		}
		if r, err := m.Wait(t.Context(), c.key, c.opts...); !errors.Is(err, c.want) || r != nil {
			t.Errorf("waiting, %q, %v: %+v, %v", c.key, c.opts, r, err)
		}
	}
	must(t, b.Close())
	if _, err := m.Allow(t.Context(), "k"); !errors.Is(err, limiter.ErrClosed) || !strings.Contains(err.Error(), `part "b"`) {
		t.Errorf("with a closed limiter: %v", err)
	}
}

// TestMultiGivesBackLocally: in an outage, a part that fails leaves nothing charged to the
// others, neither here nor in Redis afterwards.
func TestMultiGivesBackLocally(t *testing.T) {
	srv := redistest.Start(t)
	proxy, rdb := behind(t, srv, redis.Options{MaxRetries: -1, DialerRetries: 1})
	limit := limiter.GCRA(limiter.Per(10, 300*time.Hour), 10)
	local := newLimiter(t, rdb, limit, unhurried(), hasty(50*time.Millisecond), limiter.WithShare(1), limiter.WithPrefix("a"))
	strict := newLimiter(t, rdb, limit, unhurried(), hasty(50*time.Millisecond), limiter.WithFallback(fallback.Closed), limiter.WithPrefix("b"))
	m := newMulti(t, limiter.Part{Name: "local", Limiter: local}, limiter.Part{Name: "strict", Limiter: strict})
	cutOff(t, proxy, local)
	for range 3 {
		if res, err := m.AllowN(t.Context(), "k", 2); !errors.Is(err, limiter.ErrUnavailable) {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	if res, err := local.Peek(t.Context(), "k"); err != nil || res.Remaining != 10 {
		t.Errorf("locally: %+v, %v", res, err)
	}
	proxy.Pass()
	untilCharged(t, local)
	if res, err := local.Peek(t.Context(), "k"); err != nil || res.Source != limiter.SourceRedis || res.Remaining != 10 {
		t.Errorf("by Redis: %+v, %v", res, err)
	}
}

// costs are the options of a Multi for costs of its parts.
func costs(of []int) (opts []limiter.CallOption) {
	for _, n := range of {
		opts = append(opts, limiter.Cost(n))
	}
	return opts
}
