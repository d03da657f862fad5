package limiter_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
)

// heard is what hooks were told.
type heard struct {
	mu        sync.Mutex
	decisions []limiter.DecisionInfo
	calls     []limiter.CallInfo
	changes   []breaker.Change
}

func (h *heard) hooks() limiter.Hooks {
	return limiter.Hooks{
		Decision: func(_ context.Context, d limiter.DecisionInfo) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.decisions = append(h.decisions, d)
		},
		Call: func(_ context.Context, c limiter.CallInfo) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.calls = append(h.calls, c)
		},
		BreakerChange: func(_ context.Context, c breaker.Change) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.changes = append(h.changes, c)
		},
	}
}

// take returns the decisions since it was last called.
func (h *heard) take() []limiter.DecisionInfo {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := h.decisions
	h.decisions = nil
	return out
}

func (h *heard) one(t *testing.T) limiter.DecisionInfo {
	t.Helper()
	all := h.take()
	if len(all) != 1 {
		t.Fatalf("told of %d decisions: %+v", len(all), all)
	}
	return all[0]
}

// TestHooksReceiveEachDecision: once, as the caller got it, whatever was asked; and not
// of looks.
func TestHooksReceiveEachDecision(t *testing.T) {
	rdb := redistest.Client(t, redistest.Start(t))
	ctx := t.Context()
	limit := limiter.FixedWindow(limiter.Per(3, 300*time.Hour))
	var h heard
	with := limiter.WithHooks(h.hooks())
	local, err := limiter.NewLocal(limit, with)
	must(t, err)
	subjects := map[string]interface {
		limiter.Allower
		Wait(context.Context, string, ...limiter.CallOption) (*limiter.Reservation, error)
		Reserve(context.Context, string, ...limiter.CallOption) (*limiter.Reservation, error)
		Peek(context.Context, string, ...limiter.Limit) (limiter.Result, error)
	}{
		"redis": newLimiter(t, rdb, limit, patient(), with),
		"lease": newLimiter(t, rdb, limit, patient(), with, limiter.WithPrefix("lease"), limiter.WithLease(1, time.Minute)),
		"split": newLimiter(t, rdb, limit, patient(), with, limiter.WithPrefix("split"), limiter.WithKeyShards(2)),
		"local": local,
	}
	for name, lim := range subjects {
		t.Run(name, func(t *testing.T) {
			h.take()
			check := func(n int, res limiter.Result, err error) {
				t.Helper()
				d := h.one(t)
				if d.Key != "k" || d.Cost != n || d.Result != res || !errors.Is(d.Err, err) || d.NotCharged || d.Took <= 0 || d.Took > time.Minute {
					t.Errorf("told %+v of %+v, %v", d, res, err)
				}
			}
			res, err := lim.AllowN(ctx, "k", 1)
			check(1, res, err)
			r, err := lim.Reserve(ctx, "k")
			must(t, err)
			check(1, r.Result, nil)
			for range 4 {
				res, err = lim.AllowN(ctx, "k", 1)
				check(1, res, err)
			}
			if res.Allowed {
				t.Error("nothing was denied")
			}
			_, err = lim.AllowN(ctx, "k", 99)
			check(99, limiter.Result{}, err)
			short, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			var late *limiter.WaitError
			if r, err := lim.Wait(short, "k"); !errors.As(err, &late) || r != nil {
				t.Fatal(r, err)
			}
			if told := h.take(); len(told) != 1 || told[0].Cost != 1 || told[0].Result.Allowed || told[0].Result.RetryAfter < late.RetryAfter {
				t.Errorf("told %+v of %+v", told, late)
			}
			if _, err := lim.Peek(ctx, "k"); err != nil {
				t.Fatal(err)
			}
			if more := h.take(); len(more) > 0 {
				t.Errorf("a look told %+v", more)
			}
		})
	}
	if len(h.calls) == 0 || slices.ContainsFunc(h.calls, func(c limiter.CallInfo) bool {
		return c.Class != breaker.ClassOK || c.Err != nil || c.Took <= 0 || !slices.Contains([]string{"holdfast", "lease", "split"}, c.Server)
	}) {
		t.Errorf("calls %+v", h.calls)
	}
}

// TestHooksOfAMulti: each part's limiter hears of its own part, also that the request
// would have passed there.
func TestHooksOfAMulti(t *testing.T) {
	srv := redistest.Start(t)
	rdb := redistest.Client(t, srv)
	for _, apart := range []bool{false, true} {
		var user, all heard
		clients := []redis.UniversalClient{rdb}
		prefix := "near"
		if apart {
			clients, prefix = append(clients, redistest.Client(t, srv)), "apart"
		}
		of := func(h *heard, i, n int) *limiter.Limiter {
			return newLimiter(t, clients[i%len(clients)], limiter.FixedWindow(limiter.Per(n, 300*time.Hour)), patient(), limiter.WithHooks(h.hooks()), limiter.WithPrefix(prefix+string(rune('a'+i))))
		}
		m := newMulti(t, limiter.Part{Name: "all", Limiter: of(&all, 0, 9), Key: func(string) string { return "everybody" }}, limiter.Part{Name: "user", Limiter: of(&user, 1, 1), Key: func(key string) string { return strings.TrimPrefix(key, "nobody") }})
		res, err := m.Allow(t.Context(), "k")
		must(t, err)
		if a, u := all.one(t), user.one(t); a.Key != "everybody" || u.Key != "k" || a.Result != res.Parts[0].Result || u.Result != res.Parts[1].Result || a.NotCharged || u.NotCharged || a.Took <= 0 {
			t.Errorf("apart %v: %+v, %+v", apart, a, u)
		}
		res, err = m.Allow(t.Context(), "k")
		must(t, err)
		if a, u := all.one(t), user.one(t); res.Allowed || !a.NotCharged || !a.Result.Allowed || u.NotCharged || u.Result.Allowed {
			t.Errorf("apart %v: %+v, %+v", apart, a, u)
		}
		// From the cache, only the part that denied was asked.
		res, err = m.Allow(t.Context(), "k")
		must(t, err)
		if len(res.Parts) != 1 || len(all.take()) != 0 || user.one(t).Result.Source != limiter.SourceCache {
			t.Errorf("apart %v: %+v", apart, res)
		}
		if _, err = m.Allow(t.Context(), "nobody"); !errors.Is(err, limiter.ErrInvalidKey) {
			t.Error(err)
		}
		if d := user.one(t); !errors.Is(d.Err, limiter.ErrInvalidKey) || len(all.take()) != 0 {
			t.Errorf("told %+v", d)
		}
	}
}

func TestHooksOfPermitsAndSamples(t *testing.T) {
	rdb := redistest.Client(t, redistest.Start(t))
	var h heard
	with := limiter.WithHooks(h.hooks())
	c := newSemaphore(t, rdb, 1, patient(), with)
	slot := acquire(t, c, "k")
	if d := h.one(t); d.Key != "k" || d.Cost != 1 || !d.Result.Allowed || d.Result != slot.Result {
		t.Errorf("told %+v", d)
	}
	if s, err := c.TryAcquire(t.Context(), "k"); err != nil || s.Allowed || h.one(t).Result != s.Result {
		t.Errorf("%+v, %v", s, err)
	}
	must(t, slot.Release())
	if _, err := c.Acquire(t.Context(), "k"); err != nil || !h.one(t).Result.Allowed {
		t.Error(err)
	}
	s := newSampled(t, rdb, limiter.PerSecond(5), with)
	res, err := s.Allow(t.Context(), "k")
	must(t, err)
	if d := h.one(t); d.Result != res || d.Cost != 1 {
		t.Errorf("told %+v of %+v", d, res)
	}
}

// TestHooksInAnOutage: of calls that failed, of the breaker, and of refusals.
func TestHooksInAnOutage(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	var h heard
	lim := newLimiter(t, redistest.Client(t, srv), limiter.GCRA(limiter.PerSecond(1), 1), limiter.WithFallback(fallback.Closed), limiter.WithHooks(h.hooks()))
	must(t, srv.Kill())
	until(t, "the breaker opens", func() bool {
		_, err := lim.Allow(t.Context(), "k")
		return errors.Is(err, limiter.ErrUnavailable) && lim.Health().Servers[0].State == breaker.Open
	})
	must(t, lim.Close())
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.decisions {
		if !errors.Is(d.Err, limiter.ErrUnavailable) || d.Result.Source != limiter.SourceClosed || d.Result.RetryAfter <= 0 {
			t.Fatalf("told %+v", d)
		}
	}
	if len(h.decisions) < 10 || len(h.calls) < 10 || !h.calls[0].Class.Failure() || h.calls[0].Err == nil || len(h.changes) == 0 || h.changes[0].To != breaker.Open {
		t.Errorf("%d decisions, calls %+v, changes %+v", len(h.decisions), h.calls, h.changes)
	}
}

// TestHooksAreAdded: those of several options are all called, in order.
func TestHooksAreAdded(t *testing.T) {
	rdb := redistest.Client(t, redistest.Start(t))
	var order []string
	named := func(name string) limiter.HooksOption {
		return limiter.WithHooks(limiter.Hooks{Decision: func(context.Context, limiter.DecisionInfo) { order = append(order, name) }})
	}
	for name, open := range map[string]func(...limiter.HooksOption) (limiter.Allower, error){
		"limiter": func(h ...limiter.HooksOption) (limiter.Allower, error) {
			return limiter.New(rdb, good, quiet(), h[0], h[1], h[2], h[3])
		},
		"local": func(h ...limiter.HooksOption) (limiter.Allower, error) {
			return limiter.NewLocal(good, h[0], h[1], h[2], h[3])
		},
	} {
		order = nil
		l, err := open(limiter.WithHooks(limiter.Hooks{}), named("a"), limiter.WithHooks(limiter.Hooks{}), named("b"))
		must(t, err)
		if _, err := l.AllowN(t.Context(), "k", 1); err != nil {
			t.Fatal(err)
		}
		must(t, l.(io.Closer).Close())
		if want := []string{"a", "b"}; !slices.Equal(order, want) {
			t.Errorf("%s: %v, want %v", name, order, want)
		}
	}
}
