package limitertest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/limiter"
)

// Fake stands in for a limiter in tests of the code that uses one: Answer decides each call.
// It has the methods Allow, AllowN, Wait and Reserve of limiter.Limiter, needs no Redis, and
// never sleeps. The zero value admits everything. It is safe for concurrent use; Answer is
// called by one goroutine at a time, and may call Calls, which has this call already.
// It checks neither key nor cost: an empty key, which a limiter rejects, reaches Answer.
//
// To test with the real rules in virtual time, use limiter.NewLocal within testing/synctest.
type Fake struct {
	// Answer returns the decision on a call. Nil admits every call.
	Answer func(Call) (limiter.Result, error)

	answering sync.Mutex // while Answer decides
	mu        sync.Mutex
	calls     []Call
}

// Call is a call of a Fake.
type Call struct {
	// Number is 1 for the first call of the Fake.
	Number int
	// Key and Cost are what the caller asks for; without a limiter.Cost it is 1. Of a
	// limiter.AtMost it is its number, all of which is admitted unless Answer sets Result.Admitted.
	Key  string
	Cost int
	// Limit is that of this call alone, or the zero value.
	Limit limiter.Limit
}

// Admitted is the Result of a request that is admitted by Redis.
func Admitted() limiter.Result { return limiter.Result{Allowed: true} }

// Denied is the Result of a request that Redis denies, and that may come again after a time.
func Denied(retryAfter time.Duration) limiter.Result {
	return limiter.Result{RetryAfter: retryAfter}
}

// Calls returns the calls so far, in order.
func (f *Fake) Calls() []Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

func (f *Fake) answer(ctx context.Context, c Call) (limiter.Result, error) {
	if err := ctx.Err(); err != nil {
		return limiter.Result{}, err
	}
	f.answering.Lock()
	defer f.answering.Unlock()
	f.mu.Lock()
	c.Number = len(f.calls) + 1
	f.calls = append(f.calls, c)
	f.mu.Unlock()
	if f.Answer == nil {
		return limiter.Result{Allowed: true, Admitted: c.Cost}, nil
	}
	res, err := f.Answer(c)
	if res.Allowed && res.Admitted == 0 {
		res.Admitted = c.Cost
	}
	return res, err
}

func callOf(key string, opts []limiter.CallOption) Call {
	c := Call{Key: key, Cost: 1}
	for _, o := range opts {
		switch o := o.(type) {
		case limiter.Cost:
			c.Cost = int(o)
		case limiter.AtMost:
			c.Cost = int(o)
		case limiter.Limit:
			c.Limit = o
		}
	}
	return c
}

// Allow returns what Answer does, or the error of a context that has ended.
func (f *Fake) Allow(ctx context.Context, key string, opts ...limiter.CallOption) (limiter.Result, error) {
	return f.answer(ctx, callOf(key, opts))
}

// AllowN returns what Answer does for a Call with the Cost n.
func (f *Fake) AllowN(ctx context.Context, key string, n int) (limiter.Result, error) {
	return f.answer(ctx, Call{Key: key, Cost: n})
}

// Wait returns what Answer does, at once: a denial as a *limiter.WaitError, as for a caller
// whose context leaves too little time.
func (f *Fake) Wait(ctx context.Context, key string, opts ...limiter.CallOption) (*limiter.Reservation, error) {
	r, err := f.Reserve(ctx, key, opts...)
	if err == nil && !r.Allowed {
		return nil, &limiter.WaitError{RetryAfter: r.RetryAfter}
	}
	return r, err
}

// Reserve returns a reservation with the Result that Answer returns. Nothing is given back by
// settling it.
func (f *Fake) Reserve(ctx context.Context, key string, opts ...limiter.CallOption) (*limiter.Reservation, error) {
	res, err := f.answer(ctx, callOf(key, opts))
	if err != nil {
		return nil, err
	}
	return &limiter.Reservation{Result: res}, nil
}
