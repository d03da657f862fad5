package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/limiter"
)

// Nothing listens at this address: the limiter decides in process.
// alone is for examples without a Redis: theirs is the only process.
var alone = limiter.WithExpectedProcesses(1)

func ExampleNew() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	lim, err := limiter.New(rdb, limiter.TokenBucket(limiter.PerSecond(100), 200),
		limiter.WithPrefix("checkout"),
		limiter.WithFallback(fallback.Local),
		limiter.WithShare(0.5), // one of two processes
		quiet(),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lim.Close()
	res, err := lim.AllowN(context.Background(), "customer:42", 5)
	fmt.Println(res.Allowed, res.Remaining, res.Source, err)
	// Output: true 95 local <nil>
}

func ExampleNewLocal() {
	lim, err := limiter.NewLocal(limiter.GCRA(limiter.PerHour(2), 2))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lim.Close()
	for range 3 {
		res, err := lim.Allow(context.Background(), "login:alice")
		fmt.Println(res.Allowed, res.Remaining, res.RetryAfter.Round(time.Minute), err)
	}
	// Output:
	// true 1 0s <nil>
	// true 0 0s <nil>
	// false 0 30m0s <nil>
}

func ExampleWithLimitFor() {
	plans := map[string]limiter.Limit{"customer:7": limiter.TokenBucket(limiter.PerHour(1000), 1000)}
	lim, err := limiter.NewLocal(limiter.TokenBucket(limiter.PerHour(100), 100),
		limiter.WithLimitFor(func(_ context.Context, key string) limiter.Limit { return plans[key] }))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lim.Close()
	for _, key := range []string{"customer:7", "customer:8"} {
		res, err := lim.Allow(context.Background(), key)
		fmt.Println(key, res.Remaining, err)
	}
	// Output:
	// customer:7 999 <nil>
	// customer:8 99 <nil>
}

func ExampleLimiter_Wait() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	lim, err := limiter.New(rdb, limiter.TokenBucket(limiter.PerHour(10), 10), alone, quiet())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lim.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err = lim.Wait(ctx, "report", limiter.Cost(10))
	fmt.Println(err)
	_, err = lim.Wait(ctx, "report", limiter.Cost(10))
	var wait *limiter.WaitError
	fmt.Println(errors.As(err, &wait), wait.RetryAfter.Round(time.Minute))
	// Output:
	// <nil>
	// true 1h0m0s
}

func ExampleWithLease() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	// Of 10,000 per second this process takes 500 at a time, and asks Redis for
	// more before they are spent; 1,000 of the burst are held back for that.
	lim, err := limiter.New(rdb, limiter.GCRA(limiter.PerSecond(10_000), 10_000),
		limiter.WithLease(500, 100*time.Millisecond), alone, quiet())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lim.Close() // gives back what is left
	res, err := lim.Allow(context.Background(), "events")
	fmt.Println(res.Allowed, res.Source, err)
	// Output: true local <nil>
}

func ExampleWithKeyShards() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	lim, err := limiter.New(rdb, limiter.GCRA(limiter.PerSecond(10_000), 1_000), limiter.WithKeyShards(4), alone, quiet())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lim.Close()
	_, err = lim.AllowN(context.Background(), "events", 251)
	fmt.Println(err)
	// Output: limiter: cost exceeds limit: cost is 251, but a part of gcra 10000/1s burst 1000 admits at most 250 at once, with 4 key shards
}

func ExampleCost() {
	lim, err := limiter.NewLocal(limiter.TokenBucket(limiter.PerHour(10), 10))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lim.Close()
	pro := limiter.TokenBucket(limiter.PerHour(100), 100)
	res, err := lim.Allow(context.Background(), "pro:7", limiter.Cost(30), pro)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(res.Allowed, res.Remaining)
	// Output: true 70
}

// A limit of the call: of a plan, say.
func ExampleCallOption() {
	free, pro := limiter.TokenBucket(limiter.PerHour(10), 10), limiter.TokenBucket(limiter.PerHour(1000), 1000)
	lim, err := limiter.NewLocal(free)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lim.Close()
	res, err := lim.Allow(context.Background(), "pro:7", pro)
	fmt.Println(res.Limit, res.Remaining, err)
	// Output: token bucket 1000/1h burst 1000 999 <nil>
}

func ExampleLimiter_Block() {
	lim, err := limiter.NewLocal(limiter.GCRA(limiter.PerSecond(10), 10))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lim.Close()
	ctx := context.Background()
	if err := lim.Block(ctx, "api.example.com", time.Minute); err != nil {
		fmt.Println(err)
	}
	res, err := lim.Allow(ctx, "api.example.com")
	fmt.Println(res.Allowed, res.RetryAfter.Round(time.Minute), err)
	// Output: false 1m0s <nil>
}

// show asks for three units of a fresh key, one by one.
func show(limit limiter.Limit) {
	lim, err := limiter.NewLocal(limit)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lim.Close()
	for range 3 {
		res, err := lim.Allow(context.Background(), "k")
		fmt.Print(res.Allowed, " ", err, "; ")
	}
	fmt.Println(limit)
}

func ExampleFixedWindow() {
	show(limiter.FixedWindow(limiter.PerHour(3)))
	// Output: true <nil>; true <nil>; true <nil>; fixed window 3/1h
}

func ExampleSlidingWindowLog() {
	show(limiter.SlidingWindowLog(limiter.PerHour(2)))
	// Output: true <nil>; true <nil>; false <nil>; sliding window log 2/1h
}

func ExampleSlidingWindowCounter() {
	show(limiter.SlidingWindowCounter(limiter.PerHour(3)))
	// Output: true <nil>; true <nil>; true <nil>; sliding window counter 3/1h
}

func ExampleTokenBucket() {
	show(limiter.TokenBucket(limiter.PerHour(10), 2))
	// Output: true <nil>; true <nil>; false <nil>; token bucket 10/1h burst 2
}

func ExampleLeakyBucket() {
	show(limiter.LeakyBucket(limiter.PerHour(10), 2))
	// Output: true <nil>; true <nil>; false <nil>; leaky bucket 10/1h burst 2
}

func ExampleLeakyBucketShaping() {
	lim, err := limiter.NewLocal(limiter.LeakyBucketShaping(limiter.PerHour(6), 3))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lim.Close()
	for range 3 {
		res, err := lim.Allow(context.Background(), "k")
		fmt.Println(res.Allowed, "start after", res.Delay.Round(time.Minute), err)
	}
	// Output:
	// true start after 0s <nil>
	// true start after 10m0s <nil>
	// true start after 20m0s <nil>
}

func ExampleGCRA() {
	show(limiter.GCRA(limiter.PerHour(10), 2))
	// Output: true <nil>; true <nil>; false <nil>; gcra 10/1h burst 2
}

func ExamplePer() {
	fmt.Println(limiter.Per(5, 100*time.Millisecond), limiter.PerSecond(1), limiter.PerMinute(2), limiter.PerHour(3))
	// Output: 5/100ms 1/1s 2/1m 3/1h
}

func ExampleLimiter_Reserve() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	lim, err := limiter.New(rdb, limiter.SlidingWindowLog(limiter.PerHour(1000)), limiter.WithPrefix("tokens"), alone, quiet())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lim.Close()
	ctx := context.Background()
	r, err := lim.Reserve(ctx, "account", limiter.Cost(400)) // at most, but what is it really?
	if err != nil || !r.Allowed {
		fmt.Println(r, err)
		return
	}
	defer r.Cancel(ctx) // if we do not get that far
	if err := r.Settle(ctx, 150); err != nil {
		fmt.Println(err)
	}
	res, err := lim.Peek(ctx, "account")
	fmt.Println(res.Remaining, err, errors.Is(r.Cancel(ctx), limiter.ErrSettled))
	// Output: 850 <nil> true
}

func ExampleAtMost() {
	lim, err := limiter.NewLocal(limiter.FixedWindow(limiter.Per(10, 300*time.Hour)))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lim.Close()
	ctx := context.Background()
	for range 3 {
		batch, err := lim.Allow(ctx, "mailings", limiter.AtMost(6))
		fmt.Println(batch.Admitted, err)
	}
	// Output:
	// 6 <nil>
	// 4 <nil>
	// 0 <nil>
}

func ExampleCountFailed() {
	logins, err := limiter.NewLocal(limiter.FixedWindow(limiter.Per(2, 300*time.Hour)))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer logins.Close()
	for _, password := range []string{"right", "wrong", "right", "wrong", "right"} {
		res, err := limiter.CountFailed(context.Background(), logins, "alice", func(context.Context) bool {
			fmt.Println("tried", password)
			return password != "right"
		})
		if err != nil || !res.Allowed {
			fmt.Println("too many wrong passwords", err)
		}
	}
	// Output:
	// tried right
	// tried wrong
	// tried right
	// tried wrong
	// too many wrong passwords <nil>
}

func ExampleNewMulti() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	perSecond, err := limiter.New(rdb, limiter.GCRA(limiter.PerSecond(10), 10), limiter.WithPrefix("api:second"), alone, quiet())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer perSecond.Close()
	perDay, err := limiter.New(rdb, limiter.FixedWindow(limiter.Per(12, 24*time.Hour)), limiter.WithPrefix("api:day"), alone, quiet())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer perDay.Close()
	both, err := limiter.NewMulti(
		limiter.Part{Name: "per second", Limiter: perSecond},
		limiter.Part{Name: "per day", Limiter: perDay},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, n := range []int{9, 5, 1} {
		res, err := both.Allow(context.Background(), "customer:42", limiter.Cost(n))
		fmt.Printf("%d: %v %q %v\n", n, res.Allowed, res.Denied, err)
	}
	// Output:
	// 9: true "" <nil>
	// 5: false "per day" <nil>
	// 1: true "" <nil>
}

func ExampleWithCriticalHeadroom() {
	lim, err := limiter.NewLocal(limiter.GCRA(limiter.PerHour(10), 10), limiter.WithCriticalHeadroom(0.2))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lim.Close()
	ctx := context.Background()
	report, _ := lim.AllowN(ctx, "api", 8)
	another, _ := lim.Allow(ctx, "api")
	checkout, _ := lim.Allow(limiter.Critical(ctx), "api")
	fmt.Println(report.Allowed, another.Allowed, checkout.Allowed)
	// Output: true false true
}

func ExampleLimiter_SetLimit() {
	lim, err := limiter.NewLocal(limiter.FixedWindow(limiter.Per(3, 300*time.Hour)))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lim.Close()
	ctx := context.Background()
	before, _ := lim.AllowN(ctx, "customer:42", 3)
	if err := lim.SetLimit(limiter.FixedWindow(limiter.Per(5, 300*time.Hour))); err != nil {
		fmt.Println(err)
	}
	after, _ := lim.Peek(ctx, "customer:42")
	fmt.Println(before.Remaining, after.Remaining)
	// Output: 0 2
}

// A deploy during an outage of Redis keeps the limit: processes count each other by DNS.
func ExamplePeersFromDNS() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	lim, err := limiter.New(rdb, limiter.GCRA(limiter.PerSecond(100), 100), quiet(),
		limiter.WithPeerCount(limiter.PeersFromDNS("api-workers.default.svc.cluster.local")), // a headless service
		limiter.WithExpectedProcesses(20), // until that is known
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lim.Close()
	h := lim.Health()
	fmt.Println(h.Processes, h.Share, h.ShareOrigin)
	// Output: 20 0.05 assumed
}

func ExampleParseLimit() {
	for _, text := range []string{"100/s", "sliding-window-log 5/min", "1000/h burst 50", "100/s burst many"} {
		limit, err := limiter.ParseLimit(text)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(limit)
	}
	// Output:
	// token bucket 100/1s burst 100
	// sliding window log 5/1m
	// token bucket 1000/1h burst 50
	// limiter: limit is "100/s burst many": at "many": a whole number must follow
}
