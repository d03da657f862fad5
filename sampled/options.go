package sampled

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/configerr"
	"github.com/holdfast-go/holdfast/internal/options"
	"github.com/holdfast-go/holdfast/limiter"
)

// The defaults of the options.
const (
	DefaultInterval = time.Second
	DefaultTopKeys  = 1000
)

// Option is an option of New: those of this package, and of package limiter each RedisOption
// and HooksOption.
type Option interface{ options.Sampled }

type config = options.Config[limiter.DecisionInfo]

// WithInterval sets how often a process plans what it admits and reports, by default 1 s; from
// 100 ms to 1 min. A shorter interval adapts to changes sooner. A fleet makes at most 2,500 calls a
// second to report: beyond that, a process of n reports every n/2,500 s for each 500 keys.
func WithInterval(d time.Duration) Option {
	return options.Set(func(c *config) { c.Interval = d },
		configerr.Unless(d >= 100*time.Millisecond && d <= time.Minute, "interval", d, "must be between 100ms and 1m"))
}

// WithTopKeys sets how many keys a process tracks, by default 1000; from 1 to 100,000.
// Each costs Redis about 0.7 µs per process and interval, in reports of 500.
func WithTopKeys(n int) Option {
	return options.Set(func(c *config) { c.TopKeys = n },
		configerr.Unless(n >= 1 && n <= 100_000, "top keys", n, "must be 1 to 100,000"))
}

// WithMaxLocalKeys bounds how many keys are limited one by one in process, by default 100,000, at
// about 250 bytes each: those that are not tracked, and all while Redis is unavailable.
func WithMaxLocalKeys(n int) Option { return options.LocalKeys[limiter.DecisionInfo](n) }
