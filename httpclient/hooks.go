package httpclient

import (
	"context"
	"net/http"
	"time"

	"github.com/holdfast-go/holdfast/internal/chain"
	"github.com/holdfast-go/holdfast/retry"
)

// Hooks are functions that a [Transport] calls outside its locks, on the
// goroutine of the request, with the request's context. Those that are nil are
// not called. They must be safe for concurrent use, return soon, and not change
// or keep what they get. The zero value calls nothing.
type Hooks struct {
	// Attempt is called after each attempt.
	Attempt func(context.Context, AttemptInfo)
	// Wait is called before each wait.
	Wait func(context.Context, WaitInfo)
	// Cooldown is called when a response makes a key cool down, or cool down
	// for longer.
	Cooldown func(context.Context, CooldownInfo)
	// GiveUp is called when a request is not sent, or not sent again although
	// its failure is one that retries are for.
	GiveUp func(context.Context, GiveUpInfo)
	// ThrottleChange is called once when a host begins to be throttled because
	// it fails, and once when it no longer is.
	ThrottleChange func(context.Context, retry.ThrottleChange)
}

// and returns hooks that call first those of h and then those of next.
func (h Hooks) and(next Hooks) Hooks {
	return Hooks{
		Attempt:        chain.Two(h.Attempt, next.Attempt),
		Wait:           chain.Two(h.Wait, next.Wait),
		Cooldown:       chain.Two(h.Cooldown, next.Cooldown),
		GiveUp:         chain.Two(h.GiveUp, next.GiveUp),
		ThrottleChange: chain.Two(h.ThrottleChange, next.ThrottleChange),
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
	// For is how long, with jitter. When other requests wait before this one in the line of
	// its key, it is the least.
	For time.Duration
	Why retry.WaitReason
	// Source names the header that asked for it, when Why is [retry.WaitServer].
	Source string
}

// CooldownInfo is one cooldown of a key.
type CooldownInfo struct {
	// Key is the key of [WithKey] or, for one of several quotas of it (see
	// retry.ParseScopes), the key, # and the name of the quota.
	Key    string
	For    time.Duration // from now: as the server asked, at most 1 h
	Source string        // the header that asked for it
}

// GiveUpInfo is a request that is not sent, or not sent again.
type GiveUpInfo struct {
	Request *http.Request // the caller's
	Error   *Error        // why
}
