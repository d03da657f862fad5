package semaphore

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/options"
	"github.com/holdfast-go/holdfast/limiter"
)

// DefaultTTL is the default of WithTTL.
const DefaultTTL = 15 * time.Second

// Option is an option of New: WithTTL, and of package limiter each RedisOption,
// HooksOption and HeadroomOption.
type Option interface {
	ForSemaphore(*options.Config[limiter.DecisionInfo]) error
}

// option is an Option of this package.
type option func(*options.Config[limiter.DecisionInfo]) error

func (o option) ForSemaphore(c *options.Config[limiter.DecisionInfo]) error { return o(c) }

// WithTTL sets the time to live of a permit: Redis frees a permit when the process that holds
// it has sent no heartbeat for this time. By default 15 s; from 100 ms to 1 h. A heartbeat
// extends the permits that are held every third of it.
func WithTTL(d time.Duration) Option {
	return option(func(c *options.Config[limiter.DecisionInfo]) error {
		if d < 100*time.Millisecond || d > time.Hour {
			return &limiter.ConfigError{Field: "TTL", Value: d, Rule: "must be between 100ms and 1h"}
		}
		c.TTL = d
		return nil
	})
}
