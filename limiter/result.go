package limiter

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/configerr"
	"github.com/holdfast-go/holdfast/internal/enum"
)

// Allower decides whether n units of key may pass now. Every limiter of this
// package is one, and it is all that httpclient and middleware ask for.
// Implementations must be safe for concurrent use.
type Allower interface {
	AllowN(ctx context.Context, key string, n int) (Result, error)
}

// Result is a decision. That a request is denied is a result, not an error. Beside an error it is no decision: the zero
// value, except that ErrUnavailable of the policy Closed comes with Limit, Source and RetryAfter, not from a Multi.
type Result struct {
	// Allowed says that the request may go ahead, after Delay.
	Allowed bool
	// Admitted is how many units were admitted: the cost, or what AtMost found room for. It is
	// 0 when the request is denied.
	Admitted int
	// Limit is the limit that was applied.
	Limit Limit
	// Remaining is the largest cost that would be admitted right now.
	Remaining int
	// RetryAfter is the earliest time from now at which the same cost could be
	// admitted if no other caller asks. It is > 0 exactly when the request is
	// denied, in whole microseconds, rounded up.
	RetryAfter time.Duration
	// ResetAfter is the time from now until the key is fully reset, if it is not used again.
	ResetAfter time.Duration
	// Delay is how long a request admitted by LeakyBucketShaping must wait
	// before it starts. It is 0 for other algorithms.
	Delay time.Duration
	// Source says who decided.
	Source Source
	// Claim is the part of the limit within which this process decided alone. It is 0
	// unless Source is SourceLocal and the limiter has a Redis.
	Claim float64
	// BeyondClaim says that the cost is more than the Claim ever admits, so that only Redis
	// can admit it. RetryAfter is then the time until Redis is asked again.
	BeyondClaim bool
}

// Source says where a decision was made.
type Source uint8

// The sources.
const (
	// SourceRedis: by the shared state in Redis.
	SourceRedis Source = iota
	// SourceLocal: in this process, within its claim on the limit.
	SourceLocal
	// SourceCache: denied from what Redis said a moment ago.
	SourceCache
	// SourceLease: from units taken in advance.
	SourceLease
	// SourceOpen: admitted without asking, by the policy Open.
	SourceOpen
	// SourceClosed: denied without asking, by the policy Closed.
	SourceClosed
	// SourceSampled: in this process, with the probability that brings the fleet to
	// the limit.
	SourceSampled
)

var sourceNames = [...]string{"redis", "local", "cache", "lease", "open", "closed", "sampled"}

// String returns the source's name in lower case.
func (s Source) String() string { return enum.Name(sourceNames[:], s, "source") }

// MarshalText returns the source's name, for JSON and logs.
func (s Source) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a source's name.
func (s *Source) UnmarshalText(text []byte) error {
	return configerr.In(pkg, enum.Parse(sourceNames[:], s, "source", string(text)))
}
