// Package inbound decides on the requests of callers: what package middleware and the
// server of gRPC share. A request has a key, or is rejected for having none; it has a cost
// and a limit, and is decided on; and it may hold a permit while it is served. What callers
// are answered is the matter of the two packages.
package inbound

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/internal/configerr"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/semaphore"
)

// Missing says what becomes of a request without a key. Packages have types of their own
// with these values.
type Missing uint8

// What becomes of a request without a key.
const (
	MissingRejected        Missing = iota // NoKey
	MissingUnauthenticated                // Unauthenticated
	MissingShared                         // all of them share one key
)

// Problem says why a request is not served. The zero value is that it is.
type Problem uint8

// The problems.
const (
	Denied          Problem = iota + 1 // by the limit, or as all permits are held
	NoKey                              // by MissingRejected
	Unauthenticated                    // by MissingUnauthenticated
	KeyFailed                          // the key function returned an error
	Invalid                            // the cost or the key cannot be used
	Unavailable                        // the limiter is closed, or Redis is unavailable
	Canceled
	Expired // the deadline
	Failed  // for another reason
	Problems
)

// ProblemOf says what an error of a limiter means for the request.
func ProblemOf(err error) Problem {
	switch {
	case errors.Is(err, limiter.ErrCostExceedsLimit), errors.Is(err, limiter.ErrInvalidCost), errors.Is(err, limiter.ErrInvalidKey):
		return Invalid
	// Before the context's errors: the cause may be the end of the budget for Redis.
	case errors.Is(err, limiter.ErrUnavailable), errors.Is(err, limiter.ErrClosed):
		return Unavailable
	case errors.Is(err, context.Canceled):
		return Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return Expired
	}
	return Failed
}

// Reason says to its sender why what was sent, such as "request" or "call", is not served. Keys
// and causes are not in it.
func (p Problem) Reason(what string, err error) string {
	switch {
	case p == NoKey || p == Unauthenticated:
		return "the " + what + " has no rate-limit key"
	case errors.Is(err, limiter.ErrCostExceedsLimit):
		return "the " + what + " costs more than the limit can ever admit"
	case errors.Is(err, limiter.ErrInvalidCost):
		return "the cost of the " + what + " is negative"
	case p == Invalid:
		return "the rate-limit key of the " + what + " cannot be used"
	case p == Unavailable:
		return "the rate limiter is unavailable"
	case p == Canceled || p == Expired:
		return "the " + what + " ended before the rate limiter had answered"
	}
	return "the rate limiter failed"
}

// Decision is what was decided on a request.
type Decision struct {
	Key     string // long ones are hashed; "" is none
	Result  limiter.Result
	Parts   []limiter.PartResult // of a Multi
	Policy  string               // that denied; "" is none
	Problem Problem
	Err     error // why there is no decision
	// Reservation has what was taken, by Rules with Reserves. It is nil without a decision.
	Reservation *limiter.Reservation
}

// Rules say how requests of type R are decided. Check must be called before the first
// decision; then Rules are safe for concurrent use.
type Rules[R any] struct {
	Allower limiter.Allower
	Key     Key[R]
	Missing Missing
	Cost    func(context.Context, R) int // nil is 1
	// Tiers is the limit of a request, or that of each part of a Multi. A nil function, and a
	// zero Limit, are the limiter's own.
	Tiers    []func(context.Context, R) limiter.Limit
	Policy   string // the name of the limit
	Reserves bool   // what a request takes may be given back

	Semaphore       semaphore.Acquirer // nil is no bound
	SemaphorePolicy string             // its name

	multi    *limiter.Multi
	tiered   tiered
	reserver reserver
}

// tiered is an Allower that takes a limit per call.
type tiered interface {
	Allow(ctx context.Context, key string, opts ...limiter.CallOption) (limiter.Result, error)
}

// reserver is an Allower that takes units back.
type reserver interface {
	Reserve(ctx context.Context, key string, opts ...limiter.CallOption) (*limiter.Reservation, error)
}

// New returns rules with their defaults.
func New[R any](allower limiter.Allower, key Key[R]) Rules[R] {
	return Rules[R]{Allower: allower, Key: key, Policy: "default", SemaphorePolicy: "concurrency"}
}

// Check returns which of the rules is not valid.
func (r *Rules[R]) Check() error {
	if configerr.IsNil(r.Allower) {
		return configerr.New("allower", "nil", "must not be nil")
	}
	r.multi, _ = r.Allower.(*limiter.Multi)
	r.tiered, _ = r.Allower.(tiered)
	r.reserver, _ = r.Allower.(reserver)
	switch {
	case r.Key.Err != nil:
		return r.Key.Err
	case r.Key.Of == nil:
		return configerr.New("key", "the zero value", "must be made by one of the functions that return a Key")
	case len(r.Tiers) > 0 && r.tiered == nil && r.multi == nil:
		return configerr.New("tier", "a function", "needs a limiter that takes a limit per call, such as limiter.Limiter")
	case len(r.Tiers) > 1 && r.multi == nil:
		return configerr.New("tier", fmt.Sprintf("%d functions", len(r.Tiers)), "must be one function for a limiter that is no Multi")
	case len(r.Tiers) > 0 && r.multi != nil && !r.fitTiers():
		return configerr.New("tier", fmt.Sprintf("%d functions", len(r.Tiers)), "must be one function for each part of the Multi")
	case r.Reserves && r.reserver == nil:
		return configerr.New("counted", "a function", "needs a limiter that takes units back, such as limiter.Limiter")
	case r.Semaphore != nil && configerr.IsNil(r.Semaphore):
		return configerr.New("semaphore", "nil", "must not be a nil pointer")
	case r.Missing > MissingShared:
		return configerr.New("missing key", uint8(r.Missing), "must be one of the constants")
	}
	for _, name := range []string{r.Policy, r.SemaphorePolicy} {
		if !Printable(name) {
			return configerr.New("policy", name, "must be printable ASCII and not empty")
		}
	}
	return nil
}

// fitTiers reports whether there are as many tiers as the Multi has parts. The Multi says so
// before it finds that the key is empty, or that a part cannot have this limit.
func (r *Rules[R]) fitTiers() bool {
	opts := []limiter.CallOption{limiter.Cost(0)}
	for range r.Tiers {
		opts = append(opts, limiter.GCRA(limiter.PerSecond(1), 1))
	}
	_, err := r.multi.Allow(context.Background(), "", opts...)
	broken, ok := errors.AsType[*configerr.Error](err)
	return !ok || broken.Field != "limits"
}

// Printable reports whether s is printable ASCII and not empty.
func Printable(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// Decide finds the key of a request and decides on it.
func (r *Rules[R]) Decide(ctx context.Context, req R) (d Decision) {
	key, err := r.Key.Of(ctx, req)
	switch {
	case err == nil:
	case !errors.Is(err, ErrNoKey):
		return Decision{Problem: KeyFailed, Err: err}
	case r.Missing == MissingShared:
		key = Shared
	case r.Missing == MissingUnauthenticated:
		return Decision{Problem: Unauthenticated, Err: err}
	default:
		return Decision{Problem: NoKey, Err: err}
	}
	d.Key = Short(key)
	cost := 1
	if r.Cost != nil {
		cost = r.Cost(ctx, req)
	}
	d.Err = r.ask(ctx, req, cost, &d)
	switch {
	case d.Err != nil:
		d.Problem, d.Parts = ProblemOf(d.Err), nil
	case cost == 0:
		d.Policy = "" // a peek is not denied
	case !d.Result.Allowed:
		d.Problem = Denied
	}
	return d
}

// ask fills in what the limiter answers.
func (r *Rules[R]) ask(ctx context.Context, req R, cost int, d *Decision) (err error) {
	var all limiter.MultiResult
	switch opts := r.options(ctx, req, cost); {
	case r.Reserves:
		if d.Reservation, err = r.reserver.Reserve(ctx, d.Key, opts...); err == nil {
			all = limiter.MultiResult{Result: d.Reservation.Result, Denied: d.Reservation.Denied, Parts: d.Reservation.Parts}
		}
	case r.multi != nil:
		all, err = r.multi.Allow(ctx, d.Key, opts...)
	case opts != nil:
		all.Result, err = r.tiered.Allow(ctx, d.Key, opts...)
	default:
		all.Result, err = r.Allower.AllowN(ctx, d.Key, cost)
	}
	d.Result, d.Policy, d.Parts = all.Result, all.Denied, all.Parts
	if err == nil && !d.Result.Allowed && r.multi == nil {
		d.Policy = r.Policy
	}
	return err
}

// options are those of the call for a request, or nil where a cost is all there is to say.
func (r *Rules[R]) options(ctx context.Context, req R, cost int) []limiter.CallOption {
	if r.multi == nil && !r.Reserves && len(r.Tiers) == 0 {
		return nil
	}
	opts := make([]limiter.CallOption, 1, 1+len(r.Tiers))
	opts[0] = limiter.Cost(cost)
	for _, tier := range r.Tiers {
		var l limiter.Limit
		if tier != nil {
			l = tier(ctx, req)
		}
		opts = append(opts, l)
	}
	return opts
}

// Acquire takes a permit for a request that is to be served, if there is a bound. The permit,
// if it is not nil, must be released when the request was served.
func (r *Rules[R]) Acquire(ctx context.Context, d *Decision) *semaphore.Permit {
	if r.Semaphore == nil || d.Problem != 0 {
		return nil
	}
	permit, err := r.Semaphore.TryAcquire(ctx, d.Key)
	switch {
	case err != nil:
		d.Err, d.Problem = err, ProblemOf(err)
	case !permit.Allowed:
		d.Problem, d.Policy = Denied, r.SemaphorePolicy
		d.Result.Allowed, d.Result.RetryAfter = false, permit.RetryAfter
	default:
		return permit
	}
	return nil
}
