package sampled_test

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/sampled"
)

func ExampleNew() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	// A million per second over the fleet, of which this process has a thousandth
	// until it knows what the others are asked for.
	lim, err := sampled.New(rdb, limiter.PerSecond(1_000_000), limiter.WithPrefix("edge"), limiter.WithShare(0.001), quiet)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lim.Close()
	res, err := lim.Allow(context.Background(), "route:/search")
	fmt.Println(res.Allowed, res.Remaining, res.Source, err)
	// Output: true 999 local <nil>
}
