package limiter

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/redislink"
)

// TestBoundsOfOptions: the least and the most that each takes, and what is next to them.
func TestBoundsOfOptions(t *testing.T) {
	tiny := math.SmallestNonzeroFloat64
	for name, c := range map[string]struct{ good, bad []Option }{
		"budget":      {[]Option{WithBudget(time.Millisecond), WithBudget(time.Minute)}, []Option{WithBudget(time.Millisecond - 1), WithBudget(time.Minute + 1)}},
		"share":       {[]Option{WithShare(tiny), WithShare(1)}, []Option{WithShare(0), WithShare(1.0000001), WithShare(math.NaN()), WithShare(-1)}},
		"equal share": {[]Option{WithEqualShare(tiny), WithEqualShare(1)}, []Option{WithEqualShare(0), WithEqualShare(1.0000001), WithEqualShare(math.NaN())}},
		"expected":    {[]Option{WithExpectedProcesses(1), WithExpectedProcesses(redislink.MaxProcesses)}, []Option{WithExpectedProcesses(0), WithExpectedProcesses(redislink.MaxProcesses + 1)}},
		"process":     {[]Option{WithProcess("a"), WithProcess(strings.Repeat("a", 64))}, []Option{WithProcess(""), WithProcess(strings.Repeat("a", 65))}},
		"lease":       {[]Option{WithLease(1, time.Millisecond), WithLease(1, time.Hour)}, []Option{WithLease(0, time.Second), WithLease(1, time.Millisecond-1), WithLease(1, time.Hour+1)}},
		"limit for":   {nil, []Option{WithLimitFor(nil)}},
		"peer count":  {nil, []Option{WithPeerCount(nil)}},
	} {
		for i, o := range c.good {
			if _, err := newConfig([]Option{o}); err != nil {
				t.Errorf("%s, %d: %v", name, i, err)
			}
		}
		for i, o := range c.bad {
			if _, err := newConfig([]Option{o}); !errors.Is(err, ErrInvalidConfig) {
				t.Errorf("%s, %d is taken: %v", name, i, err)
			}
		}
	}
}

// TestWhatOptionsSet: each sets what it says, and hooks are added to those before.
func TestWhatOptionsSet(t *testing.T) {
	var calls, changes, decisions int
	hooks := WithHooks(Hooks{
		Decision:      func(context.Context, DecisionInfo) { decisions++ },
		Call:          func(_ context.Context, info CallInfo) { calls += int(info.Took) },
		BreakerChange: func(context.Context, breaker.Change) { changes++ },
	})
	log := slog.New(slog.DiscardHandler)
	c, err := newConfig([]Option{WithFunctions(), WithoutDenialCache(), WithLogger(log), WithProcess("a"), hooks, hooks, WithHooks(Hooks{})})
	if err != nil {
		t.Fatal(err)
	}
	c.Decision(t.Context(), DecisionInfo{})
	c.Link.OnCall(t.Context(), redislink.Call{Took: 3})
	c.Link.OnChange(t.Context(), breaker.Change{})
	if !c.Link.Functions || !c.AskAgain || c.Link.Logger != log || c.Link.Process != "a" || decisions != 2 || calls != 6 || changes != 2 {
		t.Errorf("%+v; %d, %d, %d", c, decisions, calls, changes)
	}
	if c, err = newConfig[Option](nil); err != nil || c.Link.Functions || c.AskAgain || c.KeyShards != 1 || c.EqualShare != 0.5 || c.Decision != nil || c.Link.OnCall != nil {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestFewerUnitsHere: as many as there are, of those that not only critical calls may have, and none where there is none.
func TestFewerUnitsHere(t *testing.T) {
	for _, headroom := range []float64{0, 0.4} {
		var opts []LocalOption
		want := 10
		if headroom > 0 {
			opts, want = append(opts, WithCriticalHeadroom(headroom)), 6
		}
		for asked := 1; asked <= 12; asked++ {
			lim, err := NewLocal(FixedWindow(PerHour(10)), opts...)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := lim.AllowN(t.Context(), "k", 2); err != nil {
				t.Fatal(err)
			}
			for i, n := range []int{min(asked, want-2), min(asked, max(0, want-2-asked))} {
				if res, err := lim.Allow(t.Context(), "k", AtMost(asked)); err != nil || res.Admitted != n || res.Allowed != (n > 0) {
					t.Errorf("headroom %v, at most %d, call %d: %+v, %v; want %d", headroom, asked, i, res, err, n)
				}
			}
		}
	}
}

// TestClientsOfParts: those that cannot be compared are different ones; and the hook of any part is called.
func TestClientsOfParts(t *testing.T) {
	t.Parallel()
	type foreign struct {
		redis.UniversalClient
		_ []int // cannot be compared
	}
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Protocol: 2})
	defer rdb.Close()
	made := func(client redis.UniversalClient, prefix string, opts ...Option) *Limiter {
		lim, err := New(client, FixedWindow(PerHour(5)), append(opts, WithPrefix(prefix), WithLogger(slog.New(slog.DiscardHandler)))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = lim.Close() })
		return lim
	}
	odd := foreign{UniversalClient: rdb}
	hook := WithHooks(Hooks{Decision: func(context.Context, DecisionInfo) {}})
	a, b, c, d := made(rdb, "a"), made(rdb, "b", hook), made(odd, "c"), made(odd, "d")
	for _, x := range []struct {
		one, two *Limiter
		same     bool
	}{{a, b, true}, {a, c, false}, {c, a, false}, {c, d, false}, {a, a, true}} {
		if sameClient(x.one, x.two) != x.same {
			t.Errorf("the same client %v", !x.same)
		}
	}
	for name, x := range map[string]struct {
		parts    []*Limiter
		observed bool
	}{"none": {[]*Limiter{a, c, d}, false}, "the first": {[]*Limiter{b, a}, true}, "the last": {[]*Limiter{a, b}, true}} {
		var parts []Part
		for i, lim := range x.parts {
			parts = append(parts, Part{Name: string(rune('a' + i)), Limiter: lim})
		}
		m, err := NewMulti(parts...)
		if err != nil || m.observed != x.observed {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
	// A block of a Multi says which parts it could not tell.
	shared := func(key string) string { return key }
	for name, x := range map[string]struct {
		key  func(string) string
		says []string
	}{"both": {nil, []string{`part "one"`, `part "two"`}}, "one of its own": {shared, []string{`part "one"`}}} {
		m, err := NewMulti(Part{Name: "one", Limiter: a}, Part{Name: "two", Limiter: b, Key: x.key})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			err = m.Block(t.Context(), "k", time.Hour)
			for _, part := range []string{`part "one"`, `part "two"`} {
				want := part == x.says[0] || len(x.says) > 1
				if !errors.Is(err, ErrUnavailable) || strings.Contains(err.Error(), part) != want {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
	for _, lim := range []*Limiter{a, b} {
		if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Allowed || res.RetryAfter < 50*time.Minute {
			t.Errorf("%+v, %v", res, err)
		}
	}
}
