package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/limiter"
)

const (
	// minute is how many seconds the charts show.
	minute = 60
	// callers is how many goroutines of a process ask: enough that the offered rate
	// stays what it is while each decision takes the whole budget.
	callers = 4
	// offered is what is asked for, as a multiple of the limit.
	offered = 2.4
)

// second is what happened in one second.
type second struct {
	At       float64        `json:"at"` // its end, Unix time in milliseconds
	Admitted map[string]int `json:"admitted"`
	Denied   map[string]int `json:"denied"`
	Errors   int            `json:"errors"`
	// SlowestMs is of decisions, however they were made; 99 of 100 took at most P99Ms.
	SlowestMs float64 `json:"slowestMs"`
	P99Ms     float64 `json:"p99Ms"`
	// LateMs is how late the machine fired a timer, at most.
	LateMs float64 `json:"lateMs"`
	// Most is how many the published bound allowed in this second, after what was admitted
	// before it.
	Most int `json:"most"`
	// Plain is what a plain script did meanwhile.
	Plain plainSecond `json:"plain"`
	// Hanging is how many callers wait at its end, for longer than twice the budget.
	Hanging int `json:"hanging"`
	// Fault is what was wrong with Redis at its end.
	Fault fault `json:"fault"`
}

func newSecond() second {
	return second{Admitted: map[string]int{}, Denied: map[string]int{}}
}

// processState is one process as its limiter sees Redis.
type processState struct {
	Name    string        `json:"name"`
	Share   float64       `json:"share"`
	Claim   float64       `json:"claim"` // 0 while Redis decides
	Servers []serverState `json:"servers"`
}

type serverState struct {
	Breaker     string  `json:"breaker"`
	Since       float64 `json:"since"`             // Unix time in milliseconds
	RetryAt     float64 `json:"retryAt,omitempty"` // 0 unless open
	LastFailure string  `json:"lastFailure,omitempty"`
}

// process stands for a process: it shares nothing with the others but Redis.
type process struct {
	name  string
	rdb   *redis.Client
	lim   *limiter.Limiter
	claim float64 // of its last decision, if that was its own
}

// traffic is processes that share one limit, and are asked for more.
type traffic struct {
	limit     limiter.Limit
	processes []*process
	budget    time.Duration
	waiting   waiting
	plain     *plain

	mu      sync.Mutex
	current second
	past    []second
	took    times // by decisions
	late    times // of the machine's timers
	before  int   // admitted before the current second
	sums    sums
}

func newTraffic(cfg config, o *outage, prefix string) (*traffic, error) {
	t := &traffic{
		limit: limiter.TokenBucket(limiter.PerSecond(cfg.rate), cfg.burst), budget: cfg.budget,
		waiting: newWaiting(cfg.processes * callers), plain: newPlain(cfg, o, prefix),
	}
	t.reset()
	for i := range cfg.processes {
		p := &process{name: fmt.Sprint("process ", i+1), rdb: o.client()}
		var err error
		p.lim, err = limiter.New(p.rdb, t.limit,
			limiter.WithPrefix(prefix+":traffic"),
			limiter.WithProcess(p.name),
			limiter.WithBudget(cfg.budget),
			limiter.WithLogger(slog.New(slog.DiscardHandler)),
			// Those who press Restore want to see it; the default is up to 5 s.
			limiter.WithBreaker(breaker.Settings{OpenMax: time.Second}),
		)
		if err != nil {
			return nil, errors.Join(err, p.rdb.Close(), t.plain.close(), t.close())
		}
		t.processes = append(t.processes, p)
	}
	return t, nil
}

// close leaves the plain script to who made the traffic: it has to be closed earlier.
func (t *traffic) close() error {
	var errs []error
	for _, p := range t.processes {
		errs = append(errs, p.lim.Close(), p.rdb.Close())
	}
	return errors.Join(errs...)
}

// run asks at the offered rate until ctx ends.
func (t *traffic) run(ctx context.Context) {
	n := len(t.processes) * callers
	every := time.Duration(float64(n) * float64(time.Second) / (offered * float64(t.limit.Rate().N)))
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			// Spread, or all would ask at one instant.
			if sleepUntil(ctx, time.Now().Add(every*time.Duration(i)/time.Duration(n))) == nil {
				each(ctx, every, func() { t.call(ctx, i) })
			}
		})
		wg.Go(func() {
			if sleepUntil(ctx, time.Now().Add(every*time.Duration(i)/time.Duration(n))) == nil {
				each(ctx, every, func() { t.plain.call(ctx, i) })
			}
		})
	}
	wg.Go(func() {
		late(ctx, func(by time.Duration) {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.late.note(by)
		})
	})
	wg.Wait()
}

// each calls f once per interval until ctx ends, and leaves out what it is late for.
func each(ctx context.Context, every time.Duration, f func()) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f()
		}
	}
}

// call asks once for caller i.
func (t *traffic) call(ctx context.Context, i int) {
	p, start := t.processes[i%len(t.processes)], time.Now()
	t.waiting.set(i, start)
	defer t.waiting.set(i, time.Time{})
	// The program's end must not be counted as a fault.
	res, err := p.lim.Allow(context.WithoutCancel(ctx), "third-party-api")
	t.count(p, res, err, time.Since(start))
}

func (t *traffic) count(p *process, res limiter.Result, err error, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.sums.add(t.processes, p, res)
	}
	s := &t.current
	t.took.note(took)
	switch {
	case err != nil:
		s.Errors++
	case res.Allowed:
		s.Admitted[res.Source.String()]++
	default:
		s.Denied[res.Source.String()]++
	}
}

// cut ends the current second.
func (t *traffic) cut(now time.Time, f fault) second {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.current
	s.At, s.Fault = unixMs(now), f
	s.P99Ms, s.SlowestMs = t.took.cut()
	_, s.LateMs = t.late.cut()
	s.Plain = t.plain.cut(now)
	s.Hanging, _ = t.waiting.longer(now, 2*t.budget)
	s.Most = t.sums.bound(t.limit) - t.before
	t.current, t.before = newSecond(), t.sums.admitted
	t.past = append(t.past, s)
	t.past = t.past[max(0, len(t.past)-minute):]
	return s
}

func (t *traffic) history() []second {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]second{}, t.past...)
}

// totals are those since the last reset.
func (t *traffic) totals() totals {
	t.mu.Lock()
	defer t.mu.Unlock()
	return totals{t.sums.admitted, t.sums.bound(t.limit), t.took.p99(), t.late.p99()}
}

// emptied notes that Redis has lost its state.
func (t *traffic) emptied() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sums.emptied++
}

// reset forgets what happened. The limit stays used as it is.
func (t *traffic) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.current, t.past, t.before, t.sums = newSecond(), []second{}, 0, sums{last: time.Now()}
	t.took, t.late = nil, nil
}

// state reports without asking Redis.
func (t *traffic) state() []processState {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []processState
	for _, p := range t.processes {
		h := p.lim.Health()
		s := processState{Name: p.name, Share: h.Share, Claim: p.claim}
		for _, srv := range h.Servers {
			one := serverState{Breaker: srv.State.String(), Since: unixMs(srv.Since)}
			if !srv.RetryAt.IsZero() {
				one.RetryAt, one.LastFailure = unixMs(srv.RetryAt), srv.LastFailure.String()
			}
			s.Servers = append(s.Servers, one)
		}
		all = append(all, s)
	}
	return all
}
