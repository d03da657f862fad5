package httpclient

import (
	"net/http"
	"time"

	"github.com/holdfast-go/holdfast/internal/chain"
	"github.com/holdfast-go/holdfast/retry"
)

// Hooks are functions that a [Transport] calls outside its locks, on the
// goroutine of the request. Those that are nil are not called. They must be
// safe for concurrent use, return soon, and not change or keep what they get.
// The zero value calls nothing.
type Hooks struct {
	// Attempt is called after each attempt.
	Attempt func(AttemptInfo)
	// Wait is called before each wait.
	Wait func(WaitInfo)
	// Cooldown is called when a response makes a key cool down, or cool down
	// for longer.
	Cooldown func(CooldownInfo)
	// GiveUp is called when a request is not sent, or not sent again although
	// its failure is one that retries are for.
	GiveUp func(*http.Request, *Error)
	// ThrottleChange is called once when a host begins to be throttled because
	// it fails, and once when it no longer is.
	ThrottleChange func(retry.ThrottleChange)
}

// and returns hooks that call first those of h and then those of next.
func (h Hooks) and(next Hooks) Hooks {
	return Hooks{
		Attempt:        chain.One(h.Attempt, next.Attempt),
		Wait:           chain.One(h.Wait, next.Wait),
		Cooldown:       chain.One(h.Cooldown, next.Cooldown),
		GiveUp:         chain.Two(h.GiveUp, next.GiveUp),
		ThrottleChange: chain.One(h.ThrottleChange, next.ThrottleChange),
	}
}

// AttemptInfo is one attempt.
type AttemptInfo struct {
	Request *http.Request // the caller's
	Number  int           // from 1
	Status  int           // of the response; 0 if there is none
	Err     error         // of the transport; nil if there is a response
	Took    time.Duration // until the response's headers, or the error
}

// WaitInfo is one wait.
type WaitInfo struct {
	Request *http.Request // the caller's
	For     time.Duration // how long; jitter included
	Why     WaitReason
	// Source names the header that asked for it, when Why is [WaitServer].
	Source string
}

// CooldownInfo is one cooldown of a key.
type CooldownInfo struct {
	Key    string
	For    time.Duration // from now: as the server asked, at most 1 h
	Source string        // the header that asked for it
}

// WaitReason says what a request waits for.
type WaitReason uint8

// The reasons to wait.
const (
	// WaitServer: the server said when to come back.
	WaitServer WaitReason = iota
	// WaitBackoff: an attempt failed, and the server said nothing of use.
	WaitBackoff
	// WaitCooldown: another request was told to wait.
	WaitCooldown
	// WaitLimiter: the limiter admits the request only then.
	WaitLimiter
	// WaitAdaptive: adaptive pacing has a slot only then.
	WaitAdaptive
)

// String returns the reason in one lower-case word.
func (w WaitReason) String() string {
	switch w {
	case WaitServer:
		return "server"
	case WaitBackoff:
		return "backoff"
	case WaitCooldown:
		return "cooldown"
	case WaitLimiter:
		return "limiter"
	case WaitAdaptive:
		return "adaptive"
	default:
		return "unknown"
	}
}
