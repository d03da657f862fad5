package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/limiter"
)

const (
	// waiters is how many callers wait for one key at once. The last one is critical.
	waiters = 12
	// waitersApart is the time between two arrivals.
	waitersApart = 80 * time.Millisecond
	// waitersClosed is how long the key is blocked from the first arrival on: until all stand
	// in line.
	waitersClosed = 1500 * time.Millisecond
	// waitersPatience is how long the callers wait at most.
	waitersPatience = 30 * time.Second
)

// waitersLimit lets four of them go in each second.
var waitersLimit = limiter.GCRA(limiter.PerSecond(4), 1)

// waiter is one caller of a line.
type waiter struct {
	Critical bool    `json:"critical"`
	Arrived  float64 `json:"arrived"` // Unix time in milliseconds; 0 before that
	Served   float64 `json:"served"`  // 0 until then
}

// line is callers that wait for one limit: in turn, by Limiter.Wait, or each for itself, by
// sleeping for RetryAfter and asking again.
type line struct {
	inTurn bool
	rdb    *redis.Client
	lim    *limiter.Limiter
	hub    *hub
	asked  chan struct{} // after a decision; holds one

	mu      sync.Mutex
	waiters []waiter
}

// lineState is a line as the page sees it, its waiters by arrival.
type lineState struct {
	InTurn  bool     `json:"inTurn"`
	Waiters []waiter `json:"waiters"`
}

func newLine(inTurn bool, rdb *redis.Client, prefix string, budget time.Duration, h *hub) (*line, error) {
	l := &line{inTurn: inTurn, rdb: rdb, hub: h, asked: make(chan struct{}, 1)}
	l.reset()
	var err error
	l.lim, err = limiter.New(l.rdb, waitersLimit,
		limiter.WithPrefix(fmt.Sprintf("%s:line:%v", prefix, inTurn)),
		limiter.WithProcess("page"), limiter.WithShare(1),
		limiter.WithBudget(budget),
		limiter.WithLogger(slog.New(slog.DiscardHandler)),
		limiter.WithHooks(limiter.Hooks{Decision: func(context.Context, limiter.DecisionInfo) {
			select {
			case l.asked <- struct{}{}:
			default:
			}
		}}),
	)
	if err != nil {
		return nil, errors.Join(err, l.rdb.Close())
	}
	return l, nil
}

func (l *line) close() error { return errors.Join(l.lim.Close(), l.rdb.Close()) }

// run lets all of them come and wait, and returns when they are served or ctx ends.
func (l *line) run(ctx context.Context) {
	l.reset()
	var wg sync.WaitGroup
	defer wg.Wait()
	come := func(i int) {
		l.change(func() { l.waiters[i].Arrived = unixMs(time.Now()) })
		if l.wait(ctx, i == waiters-1) == nil {
			l.change(func() { l.waiters[i].Served = unixMs(time.Now()) })
		}
	}
	// Without Redis the process blocks it by itself. A caller that finds no line asks before it
	// stands in one: the others come when the first one has asked.
	_ = l.lim.Block(ctx, visitor, waitersClosed)
	for len(l.asked) > 0 {
		<-l.asked
	}
	wg.Go(func() { come(0) })
	select {
	case <-l.asked:
	case <-ctx.Done():
		return
	}
	for i := 1; i < waiters; i++ {
		if sleepUntil(ctx, time.Now().Add(waitersApart)) != nil {
			return
		}
		wg.Go(func() { come(i) })
	}
}

// wait returns nil when the caller may go on.
func (l *line) wait(ctx context.Context, critical bool) error {
	if l.inTurn {
		if critical {
			ctx = limiter.Critical(ctx)
		}
		_, err := l.lim.Wait(ctx, visitor)
		return err
	}
	for {
		res, err := l.lim.Allow(ctx, visitor)
		if err != nil || res.Allowed {
			return err
		}
		if err := sleepUntil(ctx, time.Now().Add(res.RetryAfter)); err != nil {
			return err
		}
	}
}

func (l *line) change(f func()) {
	l.mu.Lock()
	f()
	state := l.stateLocked()
	l.mu.Unlock()
	l.hub.publish("line", state)
}

func (l *line) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiters = make([]waiter, waiters)
	l.waiters[waiters-1].Critical = true
}

func (l *line) stateLocked() lineState {
	return lineState{l.inTurn, append([]waiter{}, l.waiters...)}
}

func (l *line) state() lineState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stateLocked()
}

// doWait runs both lines at once, and answers at their end.
func (a *app) doWait(w http.ResponseWriter, r *http.Request) error {
	var in struct{}
	if err := decode(w, r, &in); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), waitersPatience)
	defer cancel()
	defer context.AfterFunc(a.ctx, cancel)()
	all := a.runLines(ctx)
	if all == nil {
		return broken(http.StatusConflict, "waiters", waiters, "are waiting already; wait for their end")
	}
	writeJSON(w, map[string]any{"lines": all})
	return nil
}

// runLines returns nil when they run already.
func (a *app) runLines(ctx context.Context) (all []lineState) {
	if !a.linesBusy.TryLock() {
		return nil
	}
	defer a.linesBusy.Unlock()
	var wg sync.WaitGroup
	for _, l := range a.lines {
		wg.Go(func() { l.run(ctx) })
	}
	wg.Wait()
	for _, l := range a.lines {
		all = append(all, l.state())
	}
	return all
}
