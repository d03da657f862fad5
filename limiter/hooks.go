package limiter

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/breaker"
)

// Hooks are functions that a limiter calls outside its locks. Those that are nil are
// not called, and cost nothing. They must be safe for concurrent use and return soon:
// Decision, and often Call, are called on the goroutine of the caller, before the answer is
// returned. They must not call the limiter's Close, which waits for the call that they
// belong to, and must not panic: often no caller is there to recover, and the program ends.
// The zero value calls nothing.
type Hooks struct {
	// Decision is called once for each decision, after it was made: once for each time
	// that Wait asks, and once for each part of a Multi that was asked, by the hooks of
	// the part's limiter. A peek, which has a cost of 0, is not reported.
	Decision func(context.Context, DecisionInfo)
	// Call is called after each call to Redis, which may decide for many callers, or be
	// about something else than decisions. The callers may have left long before, so the
	// context belongs to none of them and never ends.
	Call func(context.Context, CallInfo)
	// BreakerChange is called once for each change of a circuit breaker's state, in
	// order, with a context that never ends.
	BreakerChange func(context.Context, breaker.Change)
}

// DecisionInfo is a decision that was made, or could not be.
type DecisionInfo struct {
	Key  string // as the caller passed it
	Cost int
	// Result is the zero value when Err is not nil, except for ErrUnavailable outside of
	// a Multi.
	Result Result
	Err    error
	// NotCharged says that this part of a Multi had room for the request, but another
	// part denied it, so nothing was charged.
	NotCharged bool
	// Took is how long the decision took: of a part that of the whole Multi, and of
	// Semaphore.Acquire with the time in the queue.
	Took time.Duration
}

// CallInfo is a call to Redis.
type CallInfo struct {
	// Server is the server, by the name that it has in Health.
	Server string
	// Class is that of the call itself when it ended, which may be long after its callers have left. The
	// breaker counts what they saw: for a call that had no connection within the budget that is
	// breaker.ClassUnavailable, which becomes the Cause of a breaker.Change, where Class is
	// breaker.ClassSlow if the client gave up later because of the deadline.
	Class breaker.Class
	Err   error // nil when Class is breaker.ClassOK
	Took  time.Duration
}

// decisionHook is a Hooks.Decision, or nil.
type decisionHook func(context.Context, DecisionInfo)

// observes reports whether the hook is to be called for a decision on n units.
func (h decisionHook) observes(n int) bool { return h != nil && n != 0 }

// begin returns the start of a decision on n units, or the zero time if the hook is not to
// be called for it.
func (h decisionHook) begin(n int) (start time.Time) {
	if h.observes(n) {
		start = time.Now()
	}
	return start
}

// decided calls the hook for a decision that was begun at start. It has a frame of its own: what the hook is
// called with would make the stack of each caller larger.
//
//go:noinline
func (h decisionHook) decided(ctx context.Context, start time.Time, key string, n int, res *Result, err error) {
	h(ctx, DecisionInfo{Key: key, Cost: n, Result: *res, Err: err, Took: time.Since(start)})
}
