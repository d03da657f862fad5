package limits_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/limits"
)

func ExampleNew() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer rdb.Close()
	plans, err := limits.New(rdb, "plans")
	if err != nil {
		fmt.Println(err)
		return
	}
	// As an operator does by: holdfast limits -table plans set gold "200/s burst 400"
	version, err := plans.Put(context.Background(), "gold", limiter.TokenBucket(limiter.PerSecond(200), 400))
	fmt.Println(version, err)
}

func ExampleTable_Watch() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer rdb.Close()
	plans, err := limits.New(rdb, "plans")
	if err != nil {
		fmt.Println(err)
		return
	}
	free := limiter.TokenBucket(limiter.PerSecond(10), 20)
	live, err := plans.Watch(map[string]limiter.Limit{"free": free, "gold": limiter.TokenBucket(limiter.PerSecond(100), 200)})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer live.Close()
	lim, err := limiter.New(rdb, free, limiter.WithLimitFor(func(_ context.Context, key string) limiter.Limit {
		plan, _, _ := strings.Cut(key, ":") // as in gold:42
		return live.For(plan)
	}))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lim.Close()
	res, err := lim.Peek(context.Background(), "gold:42")
	fmt.Println(res.Limit, err) // without Redis, as with it
	// Output: token bucket 100/1s burst 200 <nil>
}
