package limiter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/redislink"
)

// Errors to test for with errors.Is.
var (
	// ErrCostExceedsLimit: the cost is above the limit's burst, so that it can
	// never be admitted.
	ErrCostExceedsLimit = errors.New("limiter: cost exceeds limit")
	// ErrInvalidCost: the cost is negative.
	ErrInvalidCost = errors.New("limiter: invalid cost")
	// ErrInvalidKey: the key is empty.
	ErrInvalidKey = errors.New("limiter: invalid key")
	// ErrInvalidConfig: a constructor or an option was given a value that breaks
	// a rule; the error is a *ConfigError.
	ErrInvalidConfig = errors.New("limiter: invalid configuration")
	// ErrClosed: the limiter was closed.
	ErrClosed = errors.New("limiter: closed")
	// ErrUnavailable: Redis could not decide and the policy is Closed, or an
	// operation other than a decision could not reach Redis.
	ErrUnavailable = errors.New("limiter: redis unavailable")
	// ErrSettled: the reservation was settled or cancelled before.
	ErrSettled = errors.New("limiter: reservation already settled")
	// ErrNotReserved: the request was denied, so there is nothing to settle.
	ErrNotReserved = errors.New("limiter: nothing was reserved")
	// ErrState: what Redis holds under the key, or what it answered, is not the
	// limiter's; the error is a *StateError. It is not a failure of Redis, so
	// the fallback does not hide it.
	ErrState = errors.New("limiter: unexpected state")
)

// ConfigError says which field of a configuration breaks which rule. It
// matches ErrInvalidConfig.
type ConfigError struct {
	Field string
	Value any
	Rule  string
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("limiter: %s is %v: %s", e.Field, e.Value, e.Rule)
}

// Unwrap returns ErrInvalidConfig.
func (e *ConfigError) Unwrap() error { return ErrInvalidConfig }

// StateError says that the state of a key cannot be used: it has another Redis
// type, was written by something else, or the script failed for a reason that
// waiting will not mend. It matches ErrState and what Redis said.
type StateError struct {
	// Key is the key as the caller passed it.
	Key string
	// Err is what Redis said.
	Err error
}

func (e *StateError) Error() string {
	return fmt.Sprintf("limiter: unexpected state of key %q: %v", e.Key, e.Err)
}

// Unwrap returns ErrState and Err.
func (e *StateError) Unwrap() []error { return []error{ErrState, e.Err} }

// WaitError says that Wait would have to wait for longer than the context
// allows. It was returned at once, without waiting, and nothing was charged. It
// matches context.DeadlineExceeded.
type WaitError struct {
	// RetryAfter is how long it would have had to wait.
	RetryAfter time.Duration
	// Remaining is how much time the context had left.
	Remaining time.Duration
}

func (e *WaitError) Error() string {
	return fmt.Sprintf("limiter: would wait %v, but the context ends in %v", e.RetryAfter, e.Remaining.Round(time.Microsecond))
}

// Unwrap returns context.DeadlineExceeded.
func (e *WaitError) Unwrap() error { return context.DeadlineExceeded }

// configError makes what users get of an error of an internal constructor.
func configError(err error) error {
	var f *algo.FieldError
	if errors.As(err, &f) {
		return &ConfigError{f.Field, f.Value, f.Rule}
	}
	return fmt.Errorf("%w: %w", ErrInvalidConfig, err)
}

// callerError is the error of a decision that the fallback must not hide.
func callerError(ctx context.Context, key string, class breaker.Class, err error) error {
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
func unavailable(ctx context.Context, key string, err error) error {
	var failed *redislink.Error
	switch {
	case !errors.As(err, &failed):
		return err
	case failed.Class.Fallback():
		return fmt.Errorf("%w: %w", ErrUnavailable, failed.Err)
	default:
		return callerError(ctx, key, failed.Class, failed.Err)
	}
}

// ofKey names key, as the caller passed it, in an error of one of its parts.
func ofKey(err error, key string) error {
	var state *StateError
	if errors.As(err, &state) {
		return &StateError{Key: key, Err: state.Err}
	}
	return err
}
