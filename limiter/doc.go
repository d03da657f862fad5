// Package limiter is a rate limiter that many processes share through Redis, and
// that goes on within their shares of the limit while Redis is down, slow or
// wrong.
//
//	lim, err := limiter.New(rdb, limiter.TokenBucket(limiter.PerSecond(100), 200))
//	...
//	res, err := lim.Allow(ctx, "customer:42")
//	if err == nil && !res.Allowed {
//		// come back after res.RetryAfter
//	}
//
// A decision is one atomic script in Redis, within a budget (50 ms unless set
// otherwise), behind a circuit breaker per Redis server. When Redis cannot
// decide, a policy of package [fallback] does; the default decides in the process
// by the same algorithm. That a request is denied is a [Result], not an error,
// and neither is a Redis that is unavailable, except under the policy Closed.
//
// [New] makes a [Limiter]; [NewLocal] one of this process alone, without Redis.
// Both are an [Allower]. The limits are [FixedWindow], [SlidingWindowLog],
// [SlidingWindowCounter], [TokenBucket], [LeakyBucket], [LeakyBucketShaping] and
// [GCRA].
//
// Beyond one limit: [Limiter.Reserve] for costs that are known only afterwards,
// [NewMulti] for several limits at once, [WithCriticalHeadroom] and [Critical] for calls that
// matter more. Package semaphore bounds how many are in flight, package sampled is for fleets
// too large for a call per decision.
//
// Of the module's documents, [choosing] says which to take for what, [guarantees] what
// holds, by how much a limit can be exceeded across an outage, and which test would
// notice, [operations] how to run it, and what each line of the log means.
//
// [choosing]: https://github.com/holdfast-go/holdfast/blob/main/docs/choosing.md
// [guarantees]: https://github.com/holdfast-go/holdfast/blob/main/docs/guarantees.md
// [operations]: https://github.com/holdfast-go/holdfast/blob/main/docs/operations.md
package limiter
