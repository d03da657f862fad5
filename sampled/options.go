package sampled

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/options"
	"github.com/holdfast-go/holdfast/limiter"
)

// The defaults of the options.
const (
	DefaultInterval = time.Second
	DefaultTopKeys  = 1000
)

// Option is an option of New: WithInterval and WithTopKeys, and of package limiter each
// RedisOption, HooksOption and LocalKeysOption.
type Option interface {
	ForSampled(*options.Config[limiter.DecisionInfo]) error
}

// option is an Option of this package.
type option func(*options.Config[limiter.DecisionInfo]) error

func (o option) ForSampled(c *options.Config[limiter.DecisionInfo]) error { return o(c) }

// WithInterval sets how often a process reports, by default 1 s; from 100 ms to 1 min. A
// shorter interval adapts to changes sooner, and is less exact, because it counts less.
func WithInterval(d time.Duration) Option {
	return option(func(c *options.Config[limiter.DecisionInfo]) error {
		if d < 100*time.Millisecond || d > time.Minute {
			return &limiter.ConfigError{Field: "interval", Value: d, Rule: "must be between 100ms and 1m"}
		}
		c.Interval = d
		return nil
	})
}

// WithTopKeys sets how many keys a process tracks, by default 1000; from 1 to 100,000.
// Each costs Redis about 0.7 µs per process and interval, in reports of 500.
func WithTopKeys(n int) Option {
	return option(func(c *options.Config[limiter.DecisionInfo]) error {
		if n < 1 || n > 100_000 {
			return &limiter.ConfigError{Field: "top keys", Value: n, Rule: "must be 1 to 100,000"}
		}
		c.TopKeys = n
		return nil
	})
}
