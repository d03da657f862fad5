package retry

import (
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/holdfast-go/holdfast/internal/enum"
	"github.com/holdfast-go/holdfast/internal/random"
)

// The defaults of [Backoff].
const (
	DefaultInitial    = 500 * time.Millisecond
	DefaultMax        = 20 * time.Second
	DefaultMultiplier = 2.0
)

// maxBackoff bounds Backoff.Max: what waits longer than a day wants a queue.
const maxBackoff = 24 * time.Hour

// Jitter says how much of a backoff is left to chance, so that those who failed
// together do not come back together. The terms are those of Marc Brooker,
// "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
type Jitter uint8

const (
	// JitterFull waits a random time in [0, d]. It is the default, and spreads
	// the most.
	JitterFull Jitter = iota
	// JitterEqual waits a random time in [d/2, d].
	JitterEqual
	// JitterNone waits d.
	JitterNone
)

var jitterNames = [...]string{"full", "equal", "none"}

// String returns the jitter in one lower-case word.
func (j Jitter) String() string { return enum.Name(jitterNames[:], j, "jitter") }

// MarshalText returns what String does, for JSON and logs.
func (j Jitter) MarshalText() ([]byte, error) { return []byte(j.String()), nil }

// Backoff is a curve of waits: the n-th, from 0, is Initial × Multiplierⁿ, at
// most Max, before jitter. Jitter never lengthens a wait beyond that. The zero
// value is usable, and so is each zero field: it has its default. A Backoff is
// a value, safe to share; what counts is the [Sequence] that Start returns.
type Backoff struct {
	// Initial is the first wait, by default 500 ms.
	Initial time.Duration
	// Max is the longest wait, by default 20 s, or Initial if that is longer.
	// At most 24 hours.
	Max time.Duration
	// Multiplier is by how much each wait is longer than the one before it, by
	// default 2. From 1, a constant wait, to 100.
	Multiplier float64
	// Jitter is by default JitterFull.
	Jitter Jitter
}

func (b Backoff) withDefaults() Backoff {
	if b.Initial == 0 {
		b.Initial = DefaultInitial
		if b.Max > 0 {
			b.Initial = min(b.Initial, b.Max)
		}
	}
	if b.Max == 0 {
		b.Max = max(DefaultMax, b.Initial)
	}
	if b.Multiplier == 0 {
		b.Multiplier = DefaultMultiplier
	}
	return b
}

// Validate returns nil, or an error that matches [ErrInvalidConfig].
func (b Backoff) Validate() error {
	b = b.withDefaults()
	switch {
	case b.Initial < 0:
		return invalid("Backoff.Initial", b.Initial, "must not be negative")
	case b.Max < b.Initial || b.Max > maxBackoff:
		return invalid("Backoff.Max", b.Max, "must be from Initial (%v) to 24h", b.Initial)
	case !(b.Multiplier >= 1 && b.Multiplier <= 100): // also rejects NaN
		return invalid("Backoff.Multiplier", b.Multiplier, "must be from 1 to 100")
	case b.Jitter > JitterNone:
		return invalid("Backoff.Jitter", b.Jitter, "must be JitterFull, JitterEqual or JitterNone")
	}
	return nil
}

// Sequence is the waits of one call. Make it with [Backoff.Start]. It is not
// safe for concurrent use: each call has its own.
type Sequence struct {
	curve  *backoff.ExponentialBackOff
	jitter Jitter
	max    time.Duration
}

// Start returns the sequence of waits from its beginning. Of a Backoff that is
// not valid it is that of the default one.
func (b Backoff) Start() *Sequence {
	if b.Validate() != nil {
		b = Backoff{}
	}
	b = b.withDefaults()
	s := &Sequence{jitter: b.Jitter, max: b.Max}
	s.curve = backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(b.Initial),
		backoff.WithMaxInterval(b.Max),
		backoff.WithMultiplier(b.Multiplier),
		// Its jitter goes beyond the maximum; ours is applied to the result.
		backoff.WithRandomizationFactor(0),
		// Do decides how long to go on.
		backoff.WithMaxElapsedTime(0),
	)
	return s
}

// Next returns the next wait: never negative, never more than Max.
func (s *Sequence) Next() time.Duration {
	d := max(0, min(s.curve.NextBackOff(), s.max))
	switch s.jitter {
	case JitterFull:
		return random.Below(d + 1)
	case JitterEqual:
		return d - random.Below(d/2+1)
	default:
		return d
	}
}
