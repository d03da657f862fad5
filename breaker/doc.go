// Package breaker decides when to stop asking Redis.
//
// [Classify] turns any error of a Redis call into a [Class]: whose fault it is
// and what the caller of the limiter gets. A [Breaker] counts those classes for
// one shard (a Redis server, a cluster master, a ring node) and, when too large
// a share of calls fails or is slow, refuses further ones at the cost of one
// atomic load, so that decisions are made locally at once:
//
//	permit, ok := b.Acquire()
//	if !ok {
//		return local()
//	}
//	start := time.Now()
//	err := callRedis(ctx)
//	permit.Done(breaker.Classify(ctx, err), time.Since(start))
//
// The breaker opens for a jittered time that doubles while the shard stays
// sick. After it, one caller at a time is let through as a probe: the probe is
// a real call, because a PING also passes on a server that refuses writes.
//
// A Breaker runs no goroutine and no timer: every transition is made by a call
// to [Breaker.Acquire] or [Permit.Done], and there is nothing to close.
package breaker
