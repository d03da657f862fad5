package breaker

import (
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/holdfast-go/holdfast/internal/enum"
)

// State is where a [Breaker] stands. The zero value is [Closed].
type State uint8

const (
	// Closed lets every call through and counts the results.
	Closed State = iota
	// Open rejects every call.
	Open
	// HalfOpen lets one call at a time through, the probe.
	HalfOpen
)

var stateNames = [...]string{"closed", "open", "half-open"}

// String returns "closed", "open" or "half-open".
func (s State) String() string { return enum.Name(stateNames[:], s, "state") }

// MarshalText returns the state's name, for JSON and logs.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// fromGobreaker has the state for each of gobreaker's.
var fromGobreaker = [...]State{gobreaker.StateClosed: Closed, gobreaker.StateOpen: Open, gobreaker.StateHalfOpen: HalfOpen}

// Change is one transition of a [Breaker].
type Change struct {
	Name     string    // Settings.Name
	From, To State     // never equal
	At       time.Time // when it happened, not when it was delivered
	// Since is since when it had been closed, for a change from Closed; else since when
	// it had not been: when the outage began.
	Since   time.Time
	Cause   Class         // the failure that opened it; ClassOK when To is not Open
	OpenFor time.Duration // for how long calls are rejected; 0 when To is not Open
}

// Snapshot is the condition of a [Breaker] at one moment.
type Snapshot struct {
	State State
	// Since is when State was entered; for a breaker that never changed, when
	// it was made.
	Since time.Time
	// LastFailure is the class of the last result that counted as a failure;
	// ClassOK if there was none.
	LastFailure Class
	// OpenUntil is when calls stop being rejected; zero when State is not Open.
	// It may be past: the state changes when the next caller comes.
	OpenUntil time.Time
	// Opens is how many times the breaker has opened, failed probes included.
	Opens uint64
}
