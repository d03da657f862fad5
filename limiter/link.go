package limiter

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/redislink"
)

// link is what every limiter that lives in Redis has: the way there, and the number of
// processes alive.
type link struct {
	config
	redis *redislink.Link
	rdb   redis.UniversalClient
	names *lua.Namer
	peers *peers
}

// newLink checks the client and the options.
func newLink(rdb redis.UniversalClient, opts []Option) (*link, error) {
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
	l := &link{config: c, rdb: rdb, names: lua.NewNamer(c.prefix), peers: newPeers(c.prefix, c.process)}
	of := redislink.Config{
		Client: rdb, Name: c.prefix, Budget: c.budget, MaxInFlight: c.maxInFlight, Breaker: c.breaker, Functions: c.functions,
		OnChange: l.breakerChanged,
		OnPermission: func(err error) {
			l.logger.Error("holdfast: Redis refuses the limiter's commands; falling back", "prefix", l.prefix, "policy", l.policy.String(), "error", err)
		},
		OnEval: func(err error) {
			l.logger.Warn("holdfast: functions cannot be used; using EVALSHA", "prefix", l.prefix, "error", err)
		},
	}
	if c.hooks.Call != nil {
		of.OnCall = func(server string, class breaker.Class, err error, took time.Duration) {
			l.hooks.Call(context.Background(), CallInfo{Server: server, Class: class, Err: err, Took: took})
		}
	}
	if l.redis, err = redislink.New(of); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidConfig, err)
	}
	return l, nil
}

// isNil also catches a nil pointer in an interface.
func isNil(rdb redis.UniversalClient) bool {
	if rdb == nil {
		return true
	}
	v := reflect.ValueOf(rdb)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// close ends what runs in the background, waits for calls under way, and deregisters the
// process. last is what has to be sent to Redis before that.
func (l *link) close(last func()) {
	l.redis.Close(func() {
		last()
		l.deregister()
	})
}

// callerError is the error of a decision that the fallback must not hide.
func (l *link) callerError(ctx context.Context, key string, class breaker.Class, err error) error {
	if class == breaker.ClassBug {
		return &StateError{Key: key, Err: err}
	}
	switch ctxErr := ctx.Err(); {
	case ctxErr != nil:
		return ctxErr
	case errors.Is(err, redislink.ErrClosed):
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

// exec makes a request that is no decision, on keys of id. It ends with the context, the
// budget and the limiter. The error is a *callError.
func (l *link) exec(ctx context.Context, id string, cmd lua.Command) error {
	return l.execWithin(ctx, l.budget, l.redis.Server(id), &redislink.Op{ID: id, Command: cmd})
}

// execWithin is exec for any request, with what is left of a budget.
func (l *link) execWithin(ctx context.Context, budget time.Duration, srv *redislink.Server, o *redislink.Op) error {
	if srv.Breaker.Refuses() {
		return &callError{breaker.ClassUnavailable, redislink.ErrOpen}
	}
	if class, err := l.redis.Do(ctx, srv, o, budget); class != breaker.ClassOK {
		return &callError{class, err}
	}
	return nil
}

// ask is exec for what has no fallback to hide that Redis is unavailable.
func (l *link) ask(ctx context.Context, key string, cmd lua.Command) error {
	return l.unavailable(ctx, key, l.exec(ctx, lua.EncodeID(key), cmd))
}

// unavailable makes of a *callError what the caller gets.
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

// fallsBack reports that err leaves a decision to the fallback.
func fallsBack(err error) bool {
	var failed *callError
	return errors.As(err, &failed) && failed.class.Fallback()
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
		l.hooks.BreakerChange(context.Background(), ch)
	}
}
