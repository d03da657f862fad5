package holdfastgrpc

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/chain"
	"github.com/holdfast-go/holdfast/retry"
)

// Hooks are functions that a [Client] calls outside its locks, on the goroutine of the
// call, with the call's context. Those that are nil are not called. They must be safe for
// concurrent use, return soon, and not change what they get. The zero value calls
// nothing.
type Hooks struct {
	// Wait is called before each wait.
	Wait func(context.Context, WaitInfo)
	// Cooldown is called when a server makes a key cool down, or cool down for longer.
	Cooldown func(context.Context, CooldownInfo)
	// GiveUp is called when a call is not sent, or not sent again although its failure
	// is one that retries are for.
	GiveUp func(context.Context, *Error)
	// ThrottleChange is called once when a target begins to be throttled because it fails,
	// and once when it no longer is.
	ThrottleChange func(context.Context, retry.ThrottleChange)
}

// and returns hooks that call first those of h and then those of next.
func (h Hooks) and(next Hooks) Hooks {
	return Hooks{
		Wait:           chain.Two(h.Wait, next.Wait),
		Cooldown:       chain.Two(h.Cooldown, next.Cooldown),
		GiveUp:         chain.Two(h.GiveUp, next.GiveUp),
		ThrottleChange: chain.Two(h.ThrottleChange, next.ThrottleChange),
	}
}

// WaitInfo is one wait.
type WaitInfo struct {
	Target, Method, Key string
	// For is how long: with jitter, and behind others in the line of its key at least.
	For time.Duration
	Why retry.WaitReason
	// Source is what asked for it, when Why is [retry.WaitServer]: "RetryInfo",
	// "grpc-retry-pushback-ms", or the name of a header of HTTP, such as "Retry-After".
	Source string
}

// CooldownInfo is one cooldown of a key.
type CooldownInfo struct {
	Target, Method, Key string        // of the call that met it
	For                 time.Duration // from now: as the server asked, at most 1 h
	Source              string        // as in WaitInfo
}
