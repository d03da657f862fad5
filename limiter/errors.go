package limiter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/configerr"
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
	// ErrInvalidConfig: a constructor or an option was given a value that breaks a rule.
	// The error says which value of which field breaks which rule. Those of all packages
	// of the module match it.
	ErrInvalidConfig = configerr.ErrInvalid
	// ErrClosed: the limiter was closed.
	ErrClosed = redislink.ErrClosed
	// ErrUnavailable: Redis could not decide and the policy is Closed, or an
	// operation other than a decision could not reach Redis.
	ErrUnavailable = redislink.ErrUnavailable
	// ErrSettled: there is nothing to settle, because the reservation was settled or
	// cancelled before, or the request was denied.
	ErrSettled = errors.New("limiter: nothing is reserved any more")
	// ErrState: the state of a key cannot be used, because it has another Redis type, was
	// written by another program, or the script failed for a reason that does not go away
	// by waiting. The error names the key and wraps what Redis said. It is not a failure of
	// Redis, so the fallback does not hide it.
	ErrState = redislink.ErrState
)

// WaitError says that Wait would have to wait for longer than the context allows. Nothing was
// charged. It is returned as soon as that is known, before the deadline: mostly at once, and
// later where other callers take the units, or Redis fails, while the caller waits. It matches
// context.DeadlineExceeded, which Wait returns when the deadline itself comes first.
type WaitError struct {
	// RetryAfter is how long it would have had to wait, from the moment of the error; of a cost beyond the claim in an
	// outage, when Redis is asked again.
	RetryAfter time.Duration
	// Remaining is how much time the context had left.
	Remaining time.Duration
}

func (e *WaitError) Error() string {
	return fmt.Sprintf("limiter: would wait %v, but the context ends in %v", e.RetryAfter, e.Remaining.Round(time.Microsecond))
}

// Unwrap returns context.DeadlineExceeded.
func (e *WaitError) Unwrap() error { return context.DeadlineExceeded }

// pkg is how errors name this package.
const pkg = "limiter"

// invalid returns the error of a value that breaks a rule.
func invalid(field string, value any, rule string, args ...any) error {
	return configerr.In(pkg, configerr.New(field, value, rule, args...))
}
