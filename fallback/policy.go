// Package fallback decides when Redis cannot: by a policy, and by the in-process limiters
// that the policy Local uses. They run the same algorithms as the scripts in Redis, in
// bounded memory.
//
// Most programs use only [Policy] of this package, through the options of package limiter.
package fallback

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/internal/configerr"
)

// Policy says how decisions are made while Redis cannot make them. The zero
// value is Local.
type Policy uint8

const (
	// Local decides in this process, by the same algorithm, within this
	// process's share of the limit.
	Local Policy = iota
	// Open admits everything.
	Open
	// Closed admits nothing: decisions fail with limiter.ErrUnavailable.
	Closed
)

// String returns the policy's name.
func (p Policy) String() string {
	switch p {
	case Local:
		return "local"
	case Open:
		return "open"
	case Closed:
		return "closed"
	}
	return fmt.Sprintf("unknown policy %d", uint8(p))
}

// MarshalText returns the policy's name, for JSON and logs.
func (p Policy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads a policy's name, in small or capital letters. The error matches
// limiter.ErrInvalidConfig.
func (p *Policy) UnmarshalText(text []byte) error {
	for known := Local; known.Valid(); known++ {
		if strings.EqualFold(string(text), known.String()) {
			*p = known
			return nil
		}
	}
	return configerr.In("fallback", configerr.New("policy", strconv.Quote(string(text)), "must be local, open or closed"))
}

// Valid reports whether p is one of the policies.
func (p Policy) Valid() bool { return p <= Closed }
