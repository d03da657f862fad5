package admission

import (
	"context"
	"errors"
	"strconv"
	"time"
)

// Stop says why a call is not sent, or not sent again.
type Stop struct {
	Reason Reason
	// Wait is how long to wait before another try makes sense; 0 when that is not known.
	Wait time.Duration
	// Err is the cause, if there is one.
	Err error
	// Key is the key or scope that cools down or is limited; "" is not one of them.
	Key string
	// Said is what the server answered when it asked for the cooldown that is the reason.
	Said any
}

// Reason is why. Packages have types of their own, with those of these values that they
// use.
type Reason uint8

// The reasons. What each means is said where users see it.
const (
	CallerGone Reason = iota
	Throttled
	CoolingDown
	HostFailing
	LimiterFailed
	BudgetSpent
	AttemptsSpent
	WaitTooLong
	PushedBack
	NotIdempotent
	NotReplayable
	ReplayFailed
	OuterRetries
)

var reasons = [...]string{
	Throttled:     "throttled",
	CoolingDown:   "cooling down",
	HostFailing:   "host failing",
	LimiterFailed: "limiter failed",
	BudgetSpent:   "retry budget spent",
	AttemptsSpent: "attempts spent",
	WaitTooLong:   "wait too long",
	PushedBack:    "pushed back",
	NotIdempotent: "not idempotent",
	NotReplayable: "body not replayable",
	ReplayFailed:  "body replay failed",
	OuterRetries:  "left to the outer layer",
}

// String returns the reason in lower-case words.
func (r Reason) String() string {
	if int(r) < len(reasons) && reasons[r] != "" {
		return reasons[r]
	}
	return "reason(" + strconv.Itoa(int(r)) + ")"
}

// Then says the reason, the wait until another try makes sense, and the cause, if there
// is one.
func (r Reason) Then(wait time.Duration, err error) string {
	s := r.String()
	if wait > 0 {
		s += ", retry in " + wait.String()
	}
	switch {
	case err == nil:
		return s
	case wait > 0 && errors.Is(err, context.DeadlineExceeded):
		s += ", after the deadline"
	}
	return s + ": " + err.Error()
}

// Wait is a wait that fits.
type Wait struct {
	For    time.Duration // jitter included
	Why    Why
	Source string // what asked for it, when Why is Server
}

// Why says what a call waits for. Packages have types of their own with these values.
type Why uint8

// What calls wait for.
const (
	Server Why = iota
	Backoff
	Cooling
	Limiter
	Adaptive
)

var whys = [...]string{Server: "server", Backoff: "backoff", Cooling: "cooldown", Limiter: "limiter", Adaptive: "adaptive"}

// String returns it in one lower-case word.
func (w Why) String() string {
	if int(w) < len(whys) {
		return whys[w]
	}
	return "unknown"
}
