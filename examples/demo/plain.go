package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// plainScript is the limiter that one finds when one searches for it: a counter per second.
var plainScript = redis.NewScript(`
local count = redis.call("INCR", KEYS[1])
if count == 1 then
  redis.call("PEXPIRE", KEYS[1], 1000)
end
return count <= tonumber(ARGV[1])
`)

// plainSecond is what the callers of a plain script got in one second.
type plainSecond struct {
	Admitted int `json:"admitted"`
	Denied   int `json:"denied"`
	Errors   int `json:"errors"`
	// Hanging is how many callers wait at its end, for longer than twice the budget.
	Hanging int `json:"hanging"`
	// SlowestMs is of the answers, and of those that hang so far.
	SlowestMs float64 `json:"slowestMs"`
}

// plain is what the outage panel compares with: as many callers, at the same pace, that run a
// script by go-redis with its default options, and nothing between them and Redis.
type plain struct {
	rdb    *redis.Client
	key    string
	rate   int
	budget time.Duration

	waiting waiting

	mu      sync.Mutex
	current plainSecond
}

func newPlain(cfg config, o *outage, prefix string) *plain {
	return &plain{
		rdb: o.client(), key: prefix + ":plain", rate: cfg.rate, budget: cfg.budget,
		waiting: newWaiting(cfg.processes * callers),
	}
}

// call asks once for caller i. The program's end must not be counted as an error.
func (p *plain) call(ctx context.Context, i int) {
	start := time.Now()
	p.waiting.set(i, start)
	defer p.waiting.set(i, time.Time{})
	allowed, err := plainScript.Run(context.WithoutCancel(ctx), p.rdb, []string{p.key}, p.rate).Bool()
	if errors.Is(err, redis.Nil) { // false, by Lua's way to answer
		err = nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.current
	s.SlowestMs = max(s.SlowestMs, ms(time.Since(start)))
	switch {
	case err != nil:
		s.Errors++
	case allowed:
		s.Admitted++
	default:
		s.Denied++
	}
}

// cut ends the current second.
func (p *plain) cut(now time.Time) plainSecond {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.current
	p.current = plainSecond{}
	var longest time.Duration
	s.Hanging, longest = p.waiting.longer(now, 2*p.budget)
	s.SlowestMs = max(s.SlowestMs, ms(longest))
	return s
}

// close ends the calls that hang too: they lose their connections.
func (p *plain) close() error { return p.rdb.Close() }

// waiting knows since when each caller waits.
type waiting struct {
	mu    sync.Mutex
	since []time.Time // zero for who does not
}

func newWaiting(callers int) waiting { return waiting{since: make([]time.Time, callers)} }

func (w *waiting) set(i int, since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since[i] = since
}

// longer returns how many wait for longer than d, and the longest time of them.
func (w *waiting) longer(now time.Time, d time.Duration) (n int, longest time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, since := range w.since {
		if age := now.Sub(since); !since.IsZero() && age > d {
			n, longest = n+1, max(longest, age)
		}
	}
	return n, longest
}
