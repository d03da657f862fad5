package semaphore_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/semaphore"
)

func ExampleNew() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	exports, err := semaphore.New(rdb, 2, limiter.WithPrefix("exports"), limiter.WithExpectedProcesses(1), quiet)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer exports.Close()
	ctx := context.Background()
	first, _ := exports.Acquire(ctx, "tenant:7")
	second, _ := exports.Acquire(ctx, "tenant:7")
	third, err := exports.TryAcquire(ctx, "tenant:7")
	fmt.Println(first.Allowed, second.Allowed, third.Allowed, err)
	fmt.Println(first.Release(), errors.Is(first.Release(), semaphore.ErrReleased))
	third, err = exports.TryAcquire(ctx, "tenant:7")
	fmt.Println(third.Allowed, err)
	// Output:
	// true true false <nil>
	// <nil> true
	// true <nil>
}
