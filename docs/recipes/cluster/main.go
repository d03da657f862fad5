// A Redis Cluster: keys are spread over the masters, each with a breaker of its own, so that a
// master that fails costs its own keys only. A key that is too hot for one master is split.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/limiter"
)

func main() {
	rdb := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: strings.Split(cmp.Or(os.Getenv("REDIS_CLUSTER"), "localhost:7000,localhost:7001"), ","),
		// The budget of a decision bounds a call. These bound what goes on behind it.
		DialTimeout: time.Second, ReadTimeout: time.Second, WriteTimeout: time.Second,
	})
	defer rdb.Close()
	ctx := context.Background()
	perUser, err := limiter.New(rdb, limiter.GCRA(limiter.PerSecond(10), 20), limiter.WithPrefix("recipe:user"), limiter.WithBudget(time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer perUser.Close()
	for user := range 100 {
		if _, err := perUser.Allow(ctx, fmt.Sprint("user:", user)); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("100 users on", len(perUser.Health().Servers), "masters")

	// Sixteen parts, in sixteen hash slots, add up to the limit exactly.
	everyone, err := limiter.New(rdb, limiter.FixedWindow(limiter.PerHour(1600)), limiter.WithPrefix("recipe:all"),
		limiter.WithKeyShards(16), limiter.WithBudget(time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer everyone.Close()
	admitted := 0
	for range 2000 {
		res, err := everyone.Allow(ctx, "everyone")
		if err != nil {
			log.Fatal(err)
		}
		if res.Allowed {
			admitted++
		}
	}
	fmt.Println(admitted, "of 2000 for all, whose limit is 1600")
}

// Output:
// 100 users on 3 masters
// 1600 of 2000 for all, whose limit is 1600
