package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/middleware"
)

// history is how many decisions a card remembers for its drawing.
const history = 200

// visitor is the one key that all cards are asked for.
const visitor = "visitor"

// decision is what was said to one request.
type decision struct {
	At           float64 `json:"at"` // Unix time in milliseconds
	Allowed      bool    `json:"allowed"`
	Cost         int     `json:"n"`
	Remaining    int     `json:"remaining"`
	RetryAfterMs float64 `json:"retryAfterMs"`
	ResetAfterMs float64 `json:"resetAfterMs"`
	DelayMs      float64 `json:"delayMs"`
	Source       string  `json:"source"`
	Claim        float64 `json:"claim"` // on the limit, of a process that decided alone
	TookMs       float64 `json:"tookMs"`
}

func newDecision(res limiter.Result, n int, took time.Duration) decision {
	return decision{
		At: unixMs(time.Now()), Allowed: res.Allowed, Cost: n, Remaining: res.Remaining,
		RetryAfterMs: ms(res.RetryAfter), ResetAfterMs: ms(res.ResetAfter), DelayMs: ms(res.Delay),
		Source: res.Source.String(), Claim: res.Claim, TookMs: ms(took),
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func unixMs(t time.Time) float64 { return float64(t.UnixMicro()) / 1000 }

// card is one algorithm with its limit and what it has decided.
type card struct {
	algorithm
	lim   *limiter.Limiter
	rdb   *redis.Client // for its clock
	limit func(http.Handler) http.Handler
	hub   *hub
	tasks sync.WaitGroup // questions about the clock that may not be answered yet

	mu       sync.Mutex
	set      settings
	allowed  int
	denied   int
	recent   []decision
	said     limiter.Result // the last one
	boundary bool           // a boundary burst is under way
}

// cardState is a card as the page sees it.
type cardState struct {
	Algorithm string     `json:"algorithm"`
	Settings  settings   `json:"settings"`
	Allowed   int        `json:"allowed"`
	Denied    int        `json:"denied"`
	Decisions []decision `json:"decisions"`
	// Fresh says that Decisions are all that count, not just the latest.
	Fresh bool `json:"fresh"`
}

func newCard(a algorithm, rdb *redis.Client, prefix string, budget time.Duration, h *hub) (*card, error) {
	c := &card{algorithm: a, rdb: rdb, hub: h, set: a.start(), recent: []decision{}}
	var err error
	c.lim, err = limiter.New(rdb, a.make(c.set),
		limiter.WithPrefix(prefix+":cards"),
		// All cards are one process, and there is no other: without Redis it has all.
		limiter.WithProcess("page"), limiter.WithShare(1),
		limiter.WithBudget(budget),
		limiter.WithLogger(slog.New(slog.DiscardHandler)),
	)
	if err != nil {
		return nil, err
	}
	c.limit, err = middleware.New(remembers{c}, middleware.KeyFunc(func(*http.Request) (string, error) { return visitor, nil }),
		middleware.WithPolicy(a.Slug),
		middleware.WithCost(func(r *http.Request) int { return askedBy(r).n }),
		middleware.WithHook(func(_ context.Context, d middleware.Decision) {
			if a := askedBy(d.Request); a.n > 0 && d.Err == nil {
				a.decided = c.record(d.Result, newDecision(d.Result, a.n, time.Since(a.start)))
			}
		}),
		middleware.WithResponder(denied),
	)
	if err != nil {
		return nil, errors.Join(err, c.lim.Close())
	}
	return c, nil
}

// remembers is a card's limiter that, asked for nothing, repeats what it said last: the
// headers of a burst are those of its end.
type remembers struct{ *card }

func (r remembers) AllowN(ctx context.Context, key string, n int) (limiter.Result, error) {
	if n > 0 {
		return r.lim.AllowN(ctx, key, n)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	res := r.said
	res.Allowed = true
	return res, nil
}

// record keeps decisions, the last of which is that of res, and shows them. It returns
// the last one.
func (c *card) record(res limiter.Result, ds ...decision) *decision {
	c.mu.Lock()
	c.said = res
	for _, d := range ds {
		if d.Allowed {
			c.allowed++
		} else {
			c.denied++
		}
	}
	c.recent = append(c.recent, ds...)
	c.recent = c.recent[max(0, len(c.recent)-history):]
	state := c.stateLocked(ds, false)
	c.hub.publish("card", state)
	c.mu.Unlock()
	return &ds[len(ds)-1]
}

func (c *card) stateLocked(ds []decision, fresh bool) cardState {
	return cardState{Algorithm: c.Slug, Settings: c.set, Allowed: c.allowed, Denied: c.denied, Decisions: ds, Fresh: fresh}
}

func (c *card) state() cardState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stateLocked(append([]decision{}, c.recent...), true)
}

func (c *card) settings() settings {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.set
}

// capacity is the largest cost that can be asked for.
func (c *card) capacity() int { return c.lim.Limit().Burst() }

// change sets another limit. What was counted stays, except with a window of another
// length, which starts afresh.
func (c *card) change(s settings) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.lim.SetLimit(c.make(s)); err != nil {
		return err
	}
	if c.Window && s.Seconds != c.set.Seconds {
		c.recent = []decision{}
	}
	c.set = s
	c.hub.publish("card", c.stateLocked(append([]decision{}, c.recent...), true))
	return nil
}

// reset forgets everything. The error says that Redis could not be reached.
func (c *card) reset(ctx context.Context) error {
	err := c.lim.Reset(ctx, visitor)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.allowed, c.denied, c.recent = 0, 0, []decision{}
	c.hub.publish("card", c.stateLocked(c.recent, true))
	return err
}

// burst sends n requests at once and returns what was said to each.
func (c *card) burst(ctx context.Context, n int) ([]decision, error) {
	results := make([]limiter.Result, n)
	ds := make([]decision, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			start := time.Now()
			results[i], errs[i] = c.lim.Allow(ctx, visitor)
			ds[i] = newDecision(results[i], 1, time.Since(start))
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	// As they were decided: who came later found less, or nothing.
	slices.SortStableFunc(ds, func(a, b decision) int { return order(a.Allowed, b.Allowed, a.Remaining, b.Remaining) })
	slices.SortStableFunc(results, func(a, b limiter.Result) int { return order(a.Allowed, b.Allowed, a.Remaining, b.Remaining) })
	c.record(results[n-1], ds...)
	return ds, nil
}

// order puts those that were admitted first, by what they left.
func order(aAllowed, bAllowed bool, aLeft, bLeft int) int {
	switch {
	case aAllowed && !bAllowed:
		return -1
	case bAllowed && !aAllowed:
		return 1
	}
	return bLeft - aLeft
}

// begin starts a boundary burst, unless one is under way.
func (c *card) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	free := !c.boundary
	c.boundary = true
	return free
}

func (c *card) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.boundary = false
}

func (c *card) close() error { return c.lim.Close() }
