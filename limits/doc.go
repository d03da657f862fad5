// Package limits keeps named limits in Redis, which a fleet obeys without a deployment.
//
//	plans, err := limits.New(rdb, "plans")
//	...
//	live, err := plans.Watch(map[string]limiter.Limit{"free": free, "gold": gold})
//	...
//	lim, err := limiter.New(rdb, free, limiter.WithLimitFor(func(ctx context.Context, key string) limiter.Limit {
//		return live.For(planOf(key))
//	}))
//
// A [Table] is a hash in Redis with a limit as text per name: "gold" is "token bucket 200/1s
// burst 400". An operator changes it by `holdfast limits -table plans set gold
// "200/s burst 400"`, a program by [Table.Put]. A [Watcher] reads it once in an interval, in the background, so that no caller
// waits for Redis and none gets an error because of it. What Redis does not have, or cannot say,
// is as the program has it.
package limits
