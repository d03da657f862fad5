package limiter

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/chain"
)

// Hooks are functions that a limiter calls outside its locks. Those that are nil are
// not called, and cost nothing. They must be safe for concurrent use and return soon:
// Decision is called by the one who asked, before the answer is returned. They must not
// call the limiter's Close, which waits for the call that they belong to. The zero value
// calls nothing.
type Hooks struct {
	// Decision is called once for each decision, after it was made: one for each time
	// that Wait asks, one for each part of a Multi that was asked, by the hooks of the
	// part's limiter. A look, which is a cost of 0, is none.
	Decision func(context.Context, DecisionInfo)
	// Call is called after each call to Redis, which may decide for many callers, or be
	// about something else than decisions. The callers may have left it long before.
	Call func(CallInfo)
	// BreakerChange is called once per change of a circuit breaker's state, in order.
	BreakerChange func(breaker.Change)
	// Start is called by the constructor, with a function that reports the limiter's
	// state, for those who ask for it now and then. What Start returns, if it is not
	// nil, is called by Close. A Local, which has no such state, calls neither.
	Start func(health func() Health) (stop func())
}

// DecisionInfo is a decision that was made, or could not be.
type DecisionInfo struct {
	Key  string // as the caller passed it
	Cost int
	// Result is the zero value when Err is not nil, but for ErrUnavailable outside of
	// a Multi.
	Result Result
	Err    error
	// Spared says that the request had room here, but was denied by another part of a
	// Multi, so that nothing was charged.
	Spared bool
	// Took is how long the decision took: of a part that of the whole Multi, and of
	// Concurrency.Acquire with the time in the queue.
	Took time.Duration
}

// CallInfo is a call to Redis.
type CallInfo struct {
	// Shard is the server, by the name that it has in Health.
	Shard string
	Class breaker.Class
	Err   error // nil when Class is breaker.ClassOK
	Took  time.Duration
}

// and returns hooks that call first those of h and then those of next.
func (h Hooks) and(next Hooks) Hooks {
	out := Hooks{
		Decision:      chain.Two(h.Decision, next.Decision),
		Call:          chain.One(h.Call, next.Call),
		BreakerChange: chain.One(h.BreakerChange, next.BreakerChange),
		Start:         h.Start,
	}
	switch {
	case h.Start == nil:
		out.Start = next.Start
	case next.Start != nil:
		out.Start = func(health func() Health) func() {
			stop, stopNext := h.Start(health), next.Start(health)
			return func() {
				invoke(stop)
				invoke(stopNext)
			}
		}
	}
	return out
}

func invoke(f func()) {
	if f != nil {
		f()
	}
}

// observes reports whether somebody wants to know of a decision on n units.
func (h *Hooks) observes(n int) bool { return h.Decision != nil && n != 0 }

// decided tells of a decision that was begun at start.
func (h *Hooks) decided(ctx context.Context, key string, n int, res Result, err error, start time.Time) {
	h.Decision(ctx, DecisionInfo{Key: key, Cost: n, Result: res, Err: err, Took: time.Since(start)})
}

// watch decides, and tells of it.
func (h *Hooks) watch(ctx context.Context, judge decider, s *spec, key string, n int, rc *receipt) (Result, error) {
	start := time.Now()
	res, err := judge(ctx, s, key, n, rc)
	h.decided(ctx, key, n, res, err, start)
	return res, err
}
