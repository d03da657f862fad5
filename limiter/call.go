package limiter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/lua"
)

// errBudget says that Redis did not answer within the budget. Whether the call
// was or will be executed is unknown; it is never sent again.
var errBudget = errors.New("no answer within the budget")

// errUnsent is errBudget before the call was sent, which it now never will be.
var errUnsent = fmt.Errorf("not sent: %w", errBudget)

// errNoTurn is errUnsent for want of a place among the calls in flight. That
// says nothing about Redis which the calls in flight do not say themselves.
var errNoTurn = fmt.Errorf("too many calls in flight: %w", errUnsent)

// calls runs calls to Redis in goroutines of their own, because a client of
// go-redis heeds a deadline only where it was told to: the caller leaves when
// the budget ends, the call ends when the client lets go of it.
type calls struct {
	slots chan struct{}
	// stuck counts the slots whose callers have left. When all are, waiting for
	// one is in vain.
	stuck *atomic.Int64
}

func newCalls(max int) calls {
	return calls{slots: make(chan struct{}, max), stuck: new(atomic.Int64)}
}

// call is one request to Redis. Its owner is the caller, until it leaves; then
// the goroutine.
type call struct {
	run    func(ctx context.Context, c *call) error
	lua    *lua.Client
	ticket ticket // for those that send its nonce: without, a call counts as unsent
	err    error
	sent   time.Time // when its turn came

	done  chan struct{}
	gone  chan struct{}
	state atomic.Uint32
}

// The states of a call.
const (
	running uint32 = iota
	finished
	abandoned
)

var callPool = sync.Pool{New: func() any {
	return &call{done: make(chan struct{}, 1), gone: make(chan struct{})}
}}

func newCall(l *link, run func(context.Context, *call) error) *call {
	c := callPool.Get().(*call)
	c.run, c.lua, c.err, c.sent = run, l.lua, nil, time.Now()
	c.ticket.nonce = l.nonce.next(c.ticket.nonce[:0])
	c.ticket.state.Store(unsent)
	c.state.Store(running)
	return c
}

// release gives a call back that its caller did not leave.
func (c *call) release() {
	callPool.Put(c)
}

var timers = sync.Pool{New: func() any {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}}

// do runs c and waits for it, until the budget or ctx ends or the limiter is
// closed. After an error other than c's own, c must not be touched but for sent.
func (q calls) do(ctx context.Context, c *call, budget time.Duration, closed <-chan struct{}) error {
	deadline := time.Now().Add(budget)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		budget = time.Until(d) * 3 / 4
		deadline = time.Now().Add(budget)
	}
	timer := timers.Get().(*time.Timer)
	timer.Reset(budget)
	defer func() {
		timer.Stop()
		timers.Put(timer)
	}()

	select {
	case q.slots <- struct{}{}:
	default:
		if q.stuck.Load() >= int64(cap(q.slots)) {
			return errNoTurn
		}
		select {
		case q.slots <- struct{}{}:
		case <-timer.C:
			return errNoTurn
		case <-ctx.Done():
			return ctx.Err()
		case <-closed:
			return ErrClosed
		}
	}
	c.sent = time.Now()
	go q.run(&budgetCtx{Context: ctx, deadline: deadline, gone: c.gone}, c)

	var left error
	select {
	case <-c.done:
		return c.err
	case <-timer.C:
		left = errBudget
	case <-ctx.Done():
		left = ctx.Err()
	case <-closed:
		left = ErrClosed
	}
	q.stuck.Add(1)
	if c.state.CompareAndSwap(running, abandoned) {
		if left == errBudget && c.ticket.withdraw() {
			left = errUnsent
		}
		close(c.gone)
		return left
	}
	q.stuck.Add(-1)
	<-c.done
	return c.err
}

func (q calls) run(ctx *budgetCtx, c *call) {
	c.err = c.run(ctx, c)
	if c.state.CompareAndSwap(running, finished) {
		<-q.slots
		c.done <- struct{}{}
		return
	}
	q.stuck.Add(-1)
	<-q.slots
}

// drain waits until no call runs, and lets none start again.
func (q calls) drain() {
	for range cap(q.slots) {
		q.slots <- struct{}{}
	}
}

// budgetCtx carries the caller's values, the budget's deadline, and an end that
// costs no timer: the caller closes gone when it leaves.
type budgetCtx struct {
	context.Context
	deadline time.Time
	gone     <-chan struct{}
}

func (c *budgetCtx) Deadline() (time.Time, bool) { return c.deadline, true }
func (c *budgetCtx) Done() <-chan struct{}       { return c.gone }
func (c *budgetCtx) Err() error {
	select {
	case <-c.gone:
		return context.DeadlineExceeded
	default:
		return nil
	}
}
