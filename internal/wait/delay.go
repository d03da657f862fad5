package wait

import (
	"context"
	"time"
)

type delayKey struct{}

// WithMostDelay returns a context for the decision on a call that can wait for a Delay of at
// most d, and no longer than the context lasts. A shaping limit then does not take a place
// that comes later.
func WithMostDelay(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, delayKey{}, d)
}

// MostDelay returns what WithMostDelay has set, if it has.
func MostDelay(ctx context.Context) (d time.Duration, ok bool) {
	d, ok = ctx.Value(delayKey{}).(time.Duration)
	return d, ok
}
