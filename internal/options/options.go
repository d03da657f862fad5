// Package options holds what options of package limiter set for constructors of other
// packages.
package options

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/redislink"
)

// Semaphore is the configuration of semaphore.New. D is limiter.DecisionInfo, which this
// package cannot import.
type Semaphore[D any] struct {
	Link     redislink.Config
	Decision func(context.Context, D)
	Headroom float64 // 0 is none
	TTL      time.Duration
}

// Sampled is the configuration of sampled.New. D is limiter.DecisionInfo.
type Sampled[D any] struct {
	Link         redislink.Config
	Decision     func(context.Context, D)
	MaxLocalKeys int
	Interval     time.Duration
	TopKeys      int
}
