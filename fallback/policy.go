// Package fallback says what decides while Redis cannot: a [Policy], which the options of
// packages limiter, semaphore and sampled take.
package fallback

import (
	"strings"

	"github.com/holdfast-go/holdfast/internal/configerr"
	"github.com/holdfast-go/holdfast/internal/enum"
)

// Policy says how decisions are made while Redis cannot make them. The zero
// value is Local.
type Policy uint8

const (
	// Local decides in this process, by the same algorithm, within this
	// process's claim on the limit, which limiter.WithEqualShare explains; of
	// permits and sampled limiters within its share.
	Local Policy = iota
	// Open admits everything.
	Open
	// Closed admits nothing: decisions fail with limiter.ErrUnavailable.
	Closed
)

var policyNames = [...]string{"local", "open", "closed"}

// String returns the policy's name.
func (p Policy) String() string { return enum.Name(policyNames[:], p, "policy") }

// MarshalText returns the policy's name, for JSON and logs.
func (p Policy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads a policy's name, in small or capital letters. The error matches
// limiter.ErrInvalidConfig.
func (p *Policy) UnmarshalText(text []byte) error {
	return configerr.In("fallback", enum.Parse(policyNames[:], p, "policy", strings.ToLower(string(text))))
}

// Valid reports whether p is one of the policies.
func (p Policy) Valid() bool { return p <= Closed }
