package semaphore

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/configerr"
	"github.com/holdfast-go/holdfast/internal/options"
	"github.com/holdfast-go/holdfast/limiter"
)

// DefaultTTL is the default of WithTTL.
const DefaultTTL = 15 * time.Second

// Option is an option of New: WithTTL, and of package limiter each RedisOption,
// HooksOption and HeadroomOption.
type Option interface{ options.Semaphore }

type config = options.Config[limiter.DecisionInfo]

// WithTTL sets the time to live of a permit: Redis frees a permit when the process that holds
// it has sent no heartbeat for this time. By default 15 s; from 100 ms to 1 h. A heartbeat
// extends the permits that are held every third of it.
func WithTTL(d time.Duration) Option {
	return options.Set(func(c *config) { c.TTL = d },
		configerr.Unless(d >= 100*time.Millisecond && d <= time.Hour, "TTL", d, "must be between 100ms and 1h"))
}
