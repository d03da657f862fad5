// Package semaphore bounds how many of something are in flight at once, per key, over all
// processes that use the same Redis and prefix: calls to an API that allows 10 at a time,
// exports per tenant.
//
//	sem, err := semaphore.New(rdb, 10)
//	...
//	permit, err := sem.Acquire(ctx, "tenant:42")
//	if err != nil {
//		return err
//	}
//	defer permit.Release()
//
// A rate limit is spent; a permit is held and released. Options, results, hooks, health and
// errors are those of package limiter.
package semaphore
