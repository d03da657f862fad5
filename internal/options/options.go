// Package options holds what options of package limiter set for constructors of other
// packages.
package options

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/redislink"
)

// Semaphore is what semaphore.New can be told. D is limiter.DecisionInfo, which this
// package cannot import.
type Semaphore[D any] struct {
	Link     redislink.Config
	Decision func(context.Context, D)
	Headroom float64 // 0 is none
	TTL      time.Duration
}

// Sampled is what sampled.New can be told. D is limiter.DecisionInfo.
type Sampled[D any] struct {
	Link         redislink.Config
	Decision     func(context.Context, D)
	MaxLocalKeys int
	Interval     time.Duration
	TopKeys      int
}
