package limiter

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/lua"
)

// link is what every limiter that lives in Redis has: the client, a breaker per
// server, the number of processes alive, and what runs in the background.
type link struct {
	config
	rdb   redis.UniversalClient
	lua   *lua.Client
	names *lua.Namer

	shards     *shards
	slots      *slotMap // of a cluster
	peers      *peers
	background *background
	nonce      nonces

	denied   sync.Once // logs missing permissions once
	evalOnly sync.Once // logs once that functions are not allowed

	closing sync.Once
	closed  chan struct{}
	stop    func() // of Hooks.Start; nil is none
}

// newLink checks the client and the options. queue is nil for what makes no
// decisions in batches.
func newLink(rdb redis.UniversalClient, opts []Option, queue newQueue) (*link, error) {
	if isNil(rdb) {
		return nil, &ConfigError{"client", "nil", "must be a go-redis client"}
	}
	c, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	if err := c.fits(rdb); err != nil {
		return nil, err
	}
	l := &link{
		config:     c,
		rdb:        rdb,
		lua:        lua.NewClient(bounded(rdb, c.budget)),
		names:      lua.NewNamer(c.prefix),
		peers:      newPeers(c.prefix, c.process),
		background: newBackground(),
		nonce:      newNonces(),
		closed:     make(chan struct{}),
	}
	if c.functions {
		l.lua.UseFunctions(rdb)
	}
	l.shards, err = l.newShards(queue)
	return l, err
}

// isNil also catches a nil pointer in an interface.
func isNil(rdb redis.UniversalClient) bool {
	if rdb == nil {
		return true
	}
	v := reflect.ValueOf(rdb)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// bounded returns the client with the budget for its socket timeouts where the
// client can do that: a reply that comes later is of no use, and its
// connection is better dropped than waited on. The connections stay shared with
// the caller's client.
func bounded(rdb redis.UniversalClient, budget time.Duration) lua.Doer {
	c, ok := rdb.(*redis.Client)
	if !ok {
		return rdb
	}
	return c.WithTimeout(budget)
}

// close ends what runs in the background, waits for calls under way, and says
// good-bye. last is what has to be told to Redis before that.
func (l *link) close(last func()) {
	l.closing.Do(func() {
		close(l.closed)
		invoke(l.stop)
		l.background.close()
		for _, sh := range l.shards.list() {
			if sh.batches != nil {
				sh.batches.drain()
			}
		}
		if last != nil {
			last()
		}
		l.goodbye()
		for _, sh := range l.shards.list() {
			sh.calls.drain()
		}
	})
}

// start tells the hooks where to ask for the limiter's state.
func (l *link) start(health func() Health) {
	if l.hooks.Start != nil {
		l.stop = l.hooks.Start(health)
	}
}

func (l *link) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}

// watchTopology keeps the map of a cluster's slots up to date.
func (l *link) watchTopology(class breaker.Class, now time.Time) {
	if l.slots == nil {
		return
	}
	if class != breaker.ClassOK {
		l.slots.hurry()
	}
	if l.slots.turn.due(now, slotRefresh) {
		l.background.start(l.slots.refresh)
	}
}

// settle classifies a call's error and reports it to the breaker.
func (l *link) settle(ctx context.Context, sh *shard, permit breaker.Permit, err error, took time.Duration) breaker.Class {
	class := classify(ctx, err, took, l.budget)
	permit.Done(class, took)
	l.called(sh, class, err, took)
	if class == breaker.ClassPermission {
		l.denied.Do(func() {
			l.logger.Error("holdfast: Redis refuses the limiter's commands; falling back", "prefix", l.prefix, "policy", l.policy.String(), "error", err)
		})
	}
	if l.functions {
		if inUse, why := l.lua.Functions(); !inUse {
			l.evalOnly.Do(func() {
				l.logger.Warn("holdfast: functions cannot be used; using EVALSHA", "prefix", l.prefix, "error", why)
			})
		}
	}
	return class
}

// called tells of a call to Redis.
func (l *link) called(sh *shard, class breaker.Class, err error, took time.Duration) {
	if l.hooks.Call != nil {
		l.hooks.Call(CallInfo{Shard: sh.name, Class: class, Err: err, Took: took})
	}
}

func classify(ctx context.Context, err error, took, budget time.Duration) breaker.Class {
	if err == nil {
		return breaker.ClassOK
	}
	var reply *lua.ReplyError
	switch {
	case errors.Is(err, ErrClosed):
		return breaker.ClassCaller
	case errors.As(err, &reply):
		return breaker.ClassBug
	case errors.Is(err, errNoTurn):
		return breaker.ClassAborted
	case errors.Is(err, errBudget):
		// A caller in a hurry gets a shorter budget. That it passed says
		// little about Redis when it was very short: nobody's fault.
		if took < budget/4 {
			return breaker.ClassAborted
		}
		return breaker.ClassSlow
	}
	return breaker.Classify(ctx, err)
}

// callerError is the error of a decision that the fallback must not hide.
func (l *link) callerError(ctx context.Context, key string, class breaker.Class, err error) error {
	if class == breaker.ClassBug {
		return &StateError{Key: key, Err: err}
	}
	switch ctxErr := ctx.Err(); {
	case ctxErr != nil:
		return ctxErr
	case errors.Is(err, ErrClosed):
		return ErrClosed
	default:
		// The clock has passed the deadline, the context's timer is yet to fire.
		return context.DeadlineExceeded
	}
}

// callError is an error of Redis with its class.
type callError struct {
	class breaker.Class
	err   error
}

func (e *callError) Error() string { return e.err.Error() }
func (e *callError) Unwrap() error { return e.err }

// tell runs an operation that is not a decision, under the breaker and the budget.
// The error is a *callError.
func (l *link) tell(ctx context.Context, id string, run func(context.Context, *call) error) error {
	return l.tellWithin(ctx, l.budget, l.shards.forID(id), l.closed, run)
}

// tellShard is tell for a shard that is known, until closed is; a nil one is for what
// Close has to say.
func (l *link) tellShard(ctx context.Context, sh *shard, closed <-chan struct{}, run func(context.Context, *call) error) error {
	return l.tellWithin(ctx, l.budget, sh, closed, run)
}

// tellWithin is tellShard with what is left of a budget.
func (l *link) tellWithin(ctx context.Context, budget time.Duration, sh *shard, closed <-chan struct{}, run func(context.Context, *call) error) error {
	permit, ok := sh.breaker.Acquire()
	if !ok {
		return &callError{breaker.ClassUnavailable, errOpen}
	}
	c := newCall(l, run)
	err := sh.calls.do(ctx, c, budget, closed)
	class := l.settle(ctx, sh, permit, err, time.Since(c.sent))
	if class == breaker.ClassOK {
		c.release()
		return nil
	}
	return &callError{class, err}
}

// ask is tell for what has no fallback to hide that Redis is sick: the error is
// that of unavailable.
func (l *link) ask(ctx context.Context, key string, run func(context.Context, *call) error) error {
	return l.unavailable(ctx, key, l.tell(ctx, lua.EncodeID(key), run))
}

// unavailable makes of a *callError what the caller is told.
func (l *link) unavailable(ctx context.Context, key string, err error) error {
	var failed *callError
	switch {
	case !errors.As(err, &failed):
		return err
	case failed.class.Fallback():
		return fmt.Errorf("%w: %w", ErrUnavailable, failed.err)
	default:
		return l.callerError(ctx, key, failed.class, failed.err)
	}
}

// breakerChanged logs and reports a change of state. An outage is one line when
// it begins and one when it is over; the probes in between are for debugging. States
// are logged by their names, which handlers for JSON would not do by themselves.
func (l *link) breakerChanged(ch breaker.Change) {
	args := []any{"breaker", ch.Name, "from", ch.From.String(), "to", ch.To.String(), "since", ch.Since}
	switch {
	case ch.To == breaker.Closed:
		l.logger.Info("holdfast: Redis decides again", append(args, "outage", ch.At.Sub(ch.Since))...)
	case ch.From == breaker.Closed:
		l.logger.Warn("holdfast: Redis cannot decide; falling back", append(args, "cause", ch.Cause.String(), "policy", l.policy.String(), "open_for", ch.OpenFor)...)
	default:
		l.logger.Debug("holdfast: asking Redis again", append(args, "cause", ch.Cause.String(), "open_for", ch.OpenFor)...)
	}
	if l.hooks.BreakerChange != nil {
		l.hooks.BreakerChange(ch)
	}
}
