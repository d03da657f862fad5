// Package limiter is a rate limiter that many processes share through Redis. While Redis
// is unavailable, each process continues within its claim on the limit.
//
//	lim, err := limiter.New(rdb, limiter.TokenBucket(limiter.PerSecond(100), 200))
//	...
//	res, err := lim.Allow(ctx, "customer:42")
//	if err == nil && !res.Allowed {
//		// denied; try again after res.RetryAfter
//	}
//
// A decision is one atomic script in Redis, within a budget (50 ms unless set
// otherwise), behind a circuit breaker per Redis server. When Redis cannot decide, a
// policy of package [fallback] decides; the default policy decides in the process, by the
// same algorithm. A denial is a [Result], not an error. An unavailable Redis is not an
// error either, except under the policy Closed.
//
// [New] makes a [Limiter] that processes share; [NewLocal] makes one for this process
// alone, without Redis. The limits are [FixedWindow], [SlidingWindowLog],
// [SlidingWindowCounter], [TokenBucket], [LeakyBucket], [LeakyBucketShaping], [GCRA]
// and, for quotas per day or month, [Calendar].
//
// Beyond one limit: [Limiter.Reserve] for costs that are known only afterwards,
// [NewMulti] for several limits at once, [WithCriticalHeadroom] and [Critical] for calls
// that matter more. Package semaphore limits concurrency; package sampled limits fleets that
// are too large for a call per decision.
//
// The documents of the module say more: [choosing], which algorithm and which mode to use;
// [guarantees], what holds, by how much a limit can be exceeded across an outage, and which
// test proves it; [operations], how to run it, and what each log line means.
//
// [choosing]: https://github.com/holdfast-go/holdfast/blob/main/docs/choosing.md
// [guarantees]: https://github.com/holdfast-go/holdfast/blob/main/docs/guarantees.md
// [operations]: https://github.com/holdfast-go/holdfast/blob/main/docs/operations.md
package limiter
