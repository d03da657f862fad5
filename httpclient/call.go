package httpclient

import (
	"cmp"
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/configerr"
)

// Call overrides the transport's options for the requests of a context. The
// zero value overrides nothing, and neither does a zero field. See [WithCall].
type Call struct {
	// Attempts is how often to try; 1 is once, without retries.
	Attempts int
	// Key replaces what the key function says.
	Key string
	// Cost is how many units the request takes from the limiter, by default 1.
	Cost int
	// MaxWait replaces the cap on a single wait. It must not be negative.
	MaxWait time.Duration
	// Idempotent says that repeating the request does no harm, whatever its
	// method is.
	Idempotent bool
}

type callKey struct{}

// WithCall returns a context whose requests are sent as c says. Fields that are
// zero keep what an earlier WithCall of ctx has set. Values out of range are
// reported by the request, with an error that matches limiter.ErrInvalidConfig.
func WithCall(ctx context.Context, c Call) context.Context {
	outer := callOf(ctx)
	c.Attempts = cmp.Or(c.Attempts, outer.Attempts)
	c.Key = cmp.Or(c.Key, outer.Key)
	c.Cost = cmp.Or(c.Cost, outer.Cost)
	c.MaxWait = cmp.Or(c.MaxWait, outer.MaxWait)
	c.Idempotent = c.Idempotent || outer.Idempotent
	return context.WithValue(ctx, callKey{}, &c)
}

func callOf(ctx context.Context) Call {
	if c, ok := ctx.Value(callKey{}).(*Call); ok {
		return *c
	}
	return Call{}
}

func (c Call) validate() error {
	switch {
	case c.Attempts < 0:
		return configerr.New("Call.Attempts", c.Attempts, "must be at least 1")
	case c.Cost < 0:
		return configerr.New("Call.Cost", c.Cost, "must be at least 1")
	case c.MaxWait < 0:
		return configerr.New("Call.MaxWait", c.MaxWait, "must not be negative")
	}
	return nil
}
