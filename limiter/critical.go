package limiter

import "context"

type criticalKey struct{}

// Critical marks the calls made with the returned context as critical: they may
// use what WithCriticalHeadroom keeps from others, and httpclient throttles them last when a host
// fails. The mark travels with the context, through Multi, semaphore.Semaphore and httpclient too, so
// set it where the request is known to be critical, and never from what a client
// says of itself.
func Critical(ctx context.Context) context.Context {
	return context.WithValue(ctx, criticalKey{}, true)
}

// IsCritical reports whether the calls made with ctx are critical; see [Critical].
func IsCritical(ctx context.Context) bool { return ctx.Value(criticalKey{}) != nil }
