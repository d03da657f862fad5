// Package options holds what options of package limiter set, for its constructors and for
// those of other packages, and which constructor takes which option.
package options

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/configerr"
	"github.com/holdfast-go/holdfast/internal/redislink"
)

// Config is the configuration of a constructor; each uses what applies to it. D is
// limiter.DecisionInfo, which this package cannot import.
type Config[D any] struct {
	Link         redislink.Config
	Decision     func(context.Context, D) // a hook
	Headroom     float64                  // for critical calls; 0 is none
	MaxLocalKeys int
	LimitFor     any // nil, or a function of type func(context.Context, string) limiter.Limit

	// Of limiter.New.
	AskAgain  bool // no denial is remembered
	KeyShards int
	// EqualShare is the part of a limit that processes share equally without Redis.
	EqualShare float64
	Lease      int // units; 0 is none
	LeaseAge   time.Duration

	// Of semaphore.New.
	TTL        time.Duration
	PermitsFor func(context.Context, string) int // nil is none

	// Of sampled.New.
	Interval time.Duration
	TopKeys  int
}

// Option is every option. The interface that a With function returns says which
// constructors take it, so that an option that does not apply does not compile.
type Option[D any] struct {
	set func(*Config[D])
	err error
}

// Set returns the option that sets something, or err if that breaks a rule.
func Set[D any](set func(*Config[D]), err error) Option[D] { return Option[D]{set, err} }

// Headroom sets the headroom for critical calls.
func Headroom[D any](f float64) Option[D] {
	return Set(func(c *Config[D]) { c.Headroom = f },
		configerr.Unless(f > 0 && f < 1, "critical headroom", f, "must be above 0 and below 1")) // also NaN
}

// LocalKeys sets how many keys are remembered in process.
func LocalKeys[D any](n int) Option[D] {
	return Set(func(c *Config[D]) { c.MaxLocalKeys = n }, configerr.Unless(n >= 1, "max local keys", n, "must be at least 1"))
}

func (Option[D]) limiter()   {}
func (Option[D]) local()     {}
func (Option[D]) semaphore() {}
func (Option[D]) sampled()   {}

// What the constructors of packages limiter, semaphore and sampled take.
type (
	Limiter   interface{ limiter() }
	Local     interface{ local() }
	Semaphore interface{ semaphore() }
	Sampled   interface{ sampled() }
)

// Apply applies options in order. The error is that of the first one that breaks a rule,
// and a nil option does.
func Apply[D, O any](c *Config[D], opts []O) error {
	for _, o := range opts {
		option, ok := any(o).(Option[D])
		if !ok {
			return configerr.Option()
		}
		if option.err != nil {
			return option.err
		}
		option.set(c)
	}
	return nil
}
