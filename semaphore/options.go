package semaphore

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/configerr"
	"github.com/holdfast-go/holdfast/internal/options"
	"github.com/holdfast-go/holdfast/limiter"
)

// DefaultTTL is the default of WithTTL.
const DefaultTTL = 15 * time.Second

// Option is an option of New: those of this package, and of package limiter each RedisOption and
// HooksOption.
type Option interface{ options.Semaphore }

type config = options.Config[limiter.DecisionInfo]

// WithTTL sets the time to live of a permit: Redis frees a permit when the process that holds
// it has sent no heartbeat for this time. By default 15 s; from 100 ms to 1 h. A heartbeat
// extends the permits that are held every third of it.
func WithTTL(d time.Duration) Option {
	return options.Set(func(c *config) { c.TTL = d },
		configerr.Unless(d >= 100*time.Millisecond && d <= time.Hour, "TTL", d, "must be between 100ms and 1h"))
}

// WithPermitsFor sets how many permits a key has: by the plan of a customer, say. 0 is the
// number of New; a number that New would reject is an error of the call, and of the headroom
// at least one permit is left to calls that are not critical. The function is called once
// for each caller, with its context, by many goroutines at once, and must return at once. When the
// number falls, those who hold a permit keep it. By default every key has the number of New.
func WithPermitsFor(of func(ctx context.Context, key string) int) Option {
	return options.Set(func(c *config) { c.PermitsFor = of }, configerr.Unless(of != nil, "permits for", "nil", "must not be nil"))
}

// WithCriticalHeadroom keeps the last part f of the permits, rounded up, for calls that are
// marked with limiter.Critical; others are denied as if there were no more. Above 0 and below
// 1, and at least one permit must be left to both. Every process should use the same
// headroom. It holds in the fallback too, except in shares of a single permit. By default there
// is none.
func WithCriticalHeadroom(f float64) Option { return options.Headroom[limiter.DecisionInfo](f) }
