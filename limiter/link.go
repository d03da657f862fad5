package limiter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/redislink"
)

// configError makes what users get of an error of an internal constructor.
func configError(err error) error {
	var f *algo.FieldError
	if errors.As(err, &f) {
		return &ConfigError{f.Field, f.Value, f.Rule}
	}
	return fmt.Errorf("%w: %w", ErrInvalidConfig, err)
}

// callerError is the error of a decision that the fallback must not hide.
func (l *Limiter) callerError(ctx context.Context, key string, class breaker.Class, err error) error {
	err = redislink.CallerError(ctx, class, err)
	switch {
	case class == breaker.ClassBug:
		return &StateError{Key: key, Err: err}
	case errors.Is(err, redislink.ErrClosed):
		return ErrClosed
	}
	return err
}

// unavailable makes of a *redislink.Error what the caller gets.
func (l *Limiter) unavailable(ctx context.Context, key string, err error) error {
	var failed *redislink.Error
	switch {
	case !errors.As(err, &failed):
		return err
	case failed.Class.Fallback():
		return fmt.Errorf("%w: %w", ErrUnavailable, failed.Err)
	default:
		return l.callerError(ctx, key, failed.Class, failed.Err)
	}
}

// fallsBack reports that err leaves a decision to the fallback.
func fallsBack(err error) bool { return redislink.FallsBack(err) }

// exec runs a command that is no decision, on keys of id.
func (l *Limiter) exec(ctx context.Context, id string, cmd lua.Command) error {
	return l.redis.Exec(ctx, id, cmd)
}

// execWithin makes any request, with what is left of a budget.
func (l *Limiter) execWithin(ctx context.Context, budget time.Duration, srv *redislink.Server, o *redislink.Op) error {
	return l.redis.Ask(ctx, srv, o, budget)
}

// ask is exec for what has no fallback to hide that Redis is unavailable.
func (l *Limiter) ask(ctx context.Context, key string, cmd lua.Command) error {
	return l.unavailable(ctx, key, l.redis.Exec(ctx, lua.EncodeID(key), cmd))
}

func (l *Limiter) currentShare() float64 { return l.redis.Share() }
