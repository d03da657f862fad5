// Package options holds what options of package limiter set, for its constructors and for
// those of other packages.
package options

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/redislink"
)

// Config is the configuration of a constructor; each uses what applies to it. D is
// limiter.DecisionInfo, which this package cannot import.
type Config[D any] struct {
	Link         redislink.Config
	Decision     func(context.Context, D) // a hook
	Headroom     float64                  // for critical calls; 0 is none
	MaxLocalKeys int

	// Of limiter.New.
	AskAgain  bool // no denial is remembered
	KeyShards int
	Lease     int // units; 0 is none
	LeaseAge  time.Duration

	// Of semaphore.New.
	TTL time.Duration

	// Of sampled.New.
	Interval time.Duration
	TopKeys  int
}
