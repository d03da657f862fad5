package retry

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/configerr"
	"github.com/holdfast-go/holdfast/internal/enum"
)

// Reason says why a call was not made, or not made again: by [Do], by httpclient and by the
// client of gRPC. The zero value is no reason.
type Reason uint8

const (
	// AttemptsSpent: every attempt was made.
	AttemptsSpent Reason = iota + 1
	// PermanentError: the error said so, or the policy's RetryIf.
	PermanentError
	// ElapsedSpent: the wait would end after Policy.MaxElapsed.
	ElapsedSpent
	// DeadlineTooNear: the wait would end after the context's deadline.
	DeadlineTooNear
	// WaitTooLong: the wait is longer than Policy.MaxWait; of clients, longer than the cap,
	// than what is left of the sum of waits, than the time to the deadline, or than the
	// request's signature of AWS is valid.
	WaitTooLong
	// BudgetSpent: the budget allows no further retry now.
	BudgetSpent
	// Canceled: the context ended.
	Canceled

	// Throttled: the limiter, or adaptive pacing, admits the call only after a wait that
	// does not fit.
	Throttled
	// CoolingDown: the server asked for a pause that is not over, and waiting for its end
	// does not fit.
	CoolingDown
	// HostFailing: the host fails most of the time, and is sent only some of the calls: see
	// [Throttle].
	HostFailing
	// LimiterFailed: the limiter returned an error, which the client's error wraps.
	LimiterFailed
	// PushedBack: the server asked not to be asked again.
	PushedBack
	// NotIdempotent: repeating the call could do its work twice.
	NotIdempotent
	// NotReplayable: the request's body can be read only once.
	NotReplayable
	// ReplayFailed: the request's GetBody failed, with an error that the client's error
	// wraps.
	ReplayFailed
	// OuterRetries: the layer above repeats the request by itself, as its headers say. A
	// retry here would multiply those.
	OuterRetries
)

var reasons = [...]string{
	0:               "none",
	AttemptsSpent:   "attempts spent",
	PermanentError:  "permanent",
	ElapsedSpent:    "time spent",
	DeadlineTooNear: "deadline too near",
	WaitTooLong:     "wait too long",
	BudgetSpent:     "retry budget spent",
	Canceled:        "canceled",
	Throttled:       "throttled",
	CoolingDown:     "cooling down",
	HostFailing:     "host failing",
	LimiterFailed:   "limiter failed",
	PushedBack:      "pushed back",
	NotIdempotent:   "not idempotent",
	NotReplayable:   "body not replayable",
	ReplayFailed:    "body replay failed",
	OuterRetries:    "left to the outer layer",
}

// String returns the reason in lower-case words.
func (r Reason) String() string { return enum.Name(reasons[:], r, "reason") }

// MarshalText returns what String does, for JSON and logs.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// WaitReason says what a call of a client waits for.
type WaitReason uint8

// The reasons to wait.
const (
	// WaitServer: the server said when to come back.
	WaitServer WaitReason = iota
	// WaitBackoff: an attempt failed, and the server named no wait.
	WaitBackoff
	// WaitCooldown: the key cools down.
	WaitCooldown
	// WaitLimiter: the limiter admits the call only then.
	WaitLimiter
	// WaitAdaptive: adaptive pacing has a turn only then.
	WaitAdaptive
)

var waitReasons = [...]string{WaitServer: "server", WaitBackoff: "backoff", WaitCooldown: "cooldown", WaitLimiter: "limiter", WaitAdaptive: "adaptive"}

// String returns the reason in one lower-case word.
func (w WaitReason) String() string { return enum.Name(waitReasons[:], w, "reason to wait") }

// MarshalText returns what String does, for JSON and logs.
func (w WaitReason) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// Error is what [Do] and [DoValue] return when they give up. It matches the
// last error by errors.Is and errors.As, and for [Canceled] and
// [DeadlineTooNear] that of the context too.
type Error struct {
	// Reason is why there was no further attempt.
	Reason Reason
	// Attempts is how many there were.
	Attempts int
	// Elapsed is the time since the first one began.
	Elapsed time.Duration
	// Wait is how long the next wait would have been; 0 when it did not come to
	// that.
	Wait time.Duration
	// Err is the error of the last attempt; nil if there was none.
	Err error

	ctx error
}

// Error has the reason, the number of attempts, and the last error.
func (e *Error) Error() string {
	s := fmt.Sprintf("retry: %v after %d attempts", e.Reason, e.Attempts)
	if e.Attempts == 1 {
		s = s[:len(s)-1]
	}
	if e.Wait > 0 {
		s += ", next in " + e.Wait.String()
	}
	if e.Err != nil {
		return s + ": " + e.Err.Error()
	}
	if e.ctx != nil {
		return s + ": " + e.ctx.Error()
	}
	return s
}

// Unwrap returns the last error, and that of the context if that was the end.
func (e *Error) Unwrap() []error {
	return slices.DeleteFunc([]error{e.Err, e.ctx}, func(err error) bool { return err == nil })
}

// ErrInvalidConfig is what the errors of values that break a rule match; they say which
// value of which field breaks which rule.
var ErrInvalidConfig = configerr.ErrInvalid

// invalid returns the error of a value that breaks a rule.
func invalid(field string, value any, rule string, args ...any) error {
	return configerr.In("retry", configerr.New(field, value, rule, args...))
}

// Permanent marks an error as one that another attempt would not repair. [Do]
// returns at once and its [*Error] has err, without the mark. Permanent(nil) is
// nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanent{err}
}

type permanent struct{ err error }

func (p *permanent) Error() string { return p.err.Error() }
func (p *permanent) Unwrap() error { return p.err }

// After marks an error with the wait before the next attempt, as a server asked
// for it. [Do] waits that long and, at random, up to half of it longer, and
// never less. A negative d is none: the backoff's wait applies. After(nil, d)
// is nil.
func After(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &after{err, d}
}

type after struct {
	err error
	d   time.Duration
}

func (a *after) Error() string { return a.err.Error() }
func (a *after) Unwrap() error { return a.err }

// marked is an error and what Permanent and After have said of it, wherever in
// its tree.
type marked struct {
	err   error // without a mark on its outside
	final bool
	asked bool // for wait
	wait  time.Duration
}

func marksOf(err error) marked {
	m := marked{err: err}
	_, m.final = errors.AsType[*permanent](err)
	if a, ok := errors.AsType[*after](err); ok && a.d >= 0 {
		m.asked, m.wait = true, a.d
	}
	for {
		switch outer := m.err.(type) { //nolint:errorlint // only the outermost marks are taken off
		case *permanent:
			m.err = outer.err
		case *after:
			m.err = outer.err
		default:
			return m
		}
	}
}
