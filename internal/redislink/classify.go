package redislink

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/lua"
)

var (
	// What users test for: see the errors of these names of package limiter.
	ErrClosed      = errors.New("limiter: closed")
	ErrUnavailable = errors.New("limiter: redis unavailable")
	ErrState       = errors.New("limiter: unexpected state")

	// ErrOpen says that the server's circuit breaker is open.
	ErrOpen = errors.New("circuit breaker is open")

	// errBudget says that Redis did not answer within the budget. Whether the call was or
	// will be executed is unknown; it is never sent again.
	errBudget = errors.New("no answer within the budget")
	// errUnsent is errBudget before the call was sent, which it now never will be.
	errUnsent = fmt.Errorf("not sent: %w", errBudget)
	// errNoTurn is errUnsent because there was no place among the calls in flight. That says
	// nothing about Redis which the calls in flight do not say themselves.
	errNoTurn = fmt.Errorf("too many calls in flight: %w", errUnsent)
)

// unsentError is that of a command which was not sent because the one before it failed.
type unsentError struct{ before error }

func (e *unsentError) Error() string { return "not sent after: " + e.before.Error() }
func (e *unsentError) Unwrap() error { return e.before }

// Is reports that it is an errUnsent, for another reason than the budget.
func (e *unsentError) Is(target error) bool { return target == errUnsent }

// classify says what an error of a call means, which took so long until its caller knew.
// fair is the time that an answer may take: a caller with less says nothing of Redis.
func classify(ctx context.Context, err error, took, fair time.Duration) breaker.Class {
	if err == nil {
		return breaker.ClassOK
	}
	switch {
	case errors.Is(err, ErrClosed):
		return breaker.ClassCaller
	case isA[*lua.ReplyError](err):
		return breaker.ClassBug
	case isA[*lua.ClockError](err):
		return breaker.ClassAborted
	case errors.Is(err, ErrOpen), errors.Is(err, errWithdrawn):
		return breaker.ClassUnavailable
	case errors.Is(err, errNoTurn):
		return breaker.ClassAborted
	case errors.Is(err, errBudget):
		switch {
		case took < fair:
			return breaker.ClassAborted
		case errors.Is(err, errUnsent):
			return breaker.ClassUnavailable // no connection: the client still dials, or waits for one
		}
		return breaker.ClassSlow
	}
	return breaker.Classify(ctx, err)
}

// NeverExecuted reports whether it is certain that Redis has not executed any write of a
// request that ended in err, and will not.
func NeverExecuted(err error) bool {
	if errors.Is(err, ErrOpen) || errors.Is(err, errUnsent) || errors.Is(err, redis.ErrPoolTimeout) || isA[*lua.ClockError](err) {
		return true
	}
	if isA[redis.Error](err) {
		switch breaker.Classify(context.Background(), err) {
		case breaker.ClassPermission:
			// A command that the ACL rejects within a script may follow others.
			return redis.HasErrorPrefix(err, "NOPERM")
		case breaker.ClassBug, breaker.ClassOK:
			return crossSlot(err)
		case breaker.ClassRedirect:
			// The last answer, as a command forgets an earlier one when it is sent again. Others may
			// come from within a script, after its first writes.
			return tryAgain(err) || redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK")
		}
		return true
	}
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// crossSlot reports that Redis rejects keys of several hash slots in one command.
func crossSlot(err error) bool { return err != nil && redis.HasErrorPrefix(err, "CROSSSLOT") }

// tryAgain reports that a slot is migrating, and that keys of the command are on both
// sides.
func tryAgain(err error) bool { return err != nil && redis.HasErrorPrefix(err, "TRYAGAIN") }

// timedOut reports that no answer came in time.
func timedOut(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// Error is what came of a request that failed.
type Error struct {
	Class breaker.Class
	Err   error
}

// Error returns what Redis, the network or the link said.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// FallsBack reports that err is an *Error that leaves a decision to the fallback.
func FallsBack(err error) bool {
	failed, ok := errors.AsType[*Error](err)
	return ok && failed.Class.Fallback()
}

// CallerError makes of an *Error of a request on key, as the caller passed it, what the caller
// gets; other errors stay as they are.
func CallerError(ctx context.Context, key string, err error) error {
	failed, ok := errors.AsType[*Error](err)
	switch {
	case !ok:
		return err
	case failed.Class.Fallback():
		return fmt.Errorf("%w: %w", ErrUnavailable, failed.Err)
	case failed.Class == breaker.ClassBug:
		return &stateError{key, failed.Err}
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(failed.Err, ErrClosed):
		return ErrClosed
	}
	// The clock has passed the deadline, and the context's timer has not fired yet.
	return context.DeadlineExceeded
}

// stateError says that the state of a key cannot be used.
type stateError struct {
	key string
	err error // what Redis said
}

func (e *stateError) Error() string { return fmt.Sprintf("%v of key %q: %v", ErrState, e.key, e.err) }

func (e *stateError) Unwrap() []error { return []error{ErrState, e.err} }

// OfKey names key, as the caller passed it, in an error of one of its parts.
func OfKey(err error, key string) error {
	if state, ok := errors.AsType[*stateError](err); ok {
		return &stateError{key, state.err}
	}
	return err
}
