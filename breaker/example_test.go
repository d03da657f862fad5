package breaker_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/breaker"
)

func ExampleNew() {
	b, err := breaker.New(breaker.Settings{
		Name: "redis-1:6379",
		OnChange: func(_ context.Context, c breaker.Change) {
			fmt.Printf("%s: %v -> %v (%v)\n", c.Name, c.From, c.To, c.Cause)
		},
	})
	if err != nil {
		panic(err)
	}

	ctx := context.Background()
	askRedis := func(context.Context) error { return errors.New("connection refused") }

	local := 0
	for range 100 {
		permit, ok := b.Acquire()
		if !ok {
			local++ // decide in process, at once
			continue
		}
		start := time.Now()
		err := askRedis(ctx)
		permit.Done(breaker.Classify(ctx, err), time.Since(start))
	}
	fmt.Println("decided without asking:", local)
	// Output:
	// redis-1:6379: closed -> open (unavailable)
	// decided without asking: 90
}

func ExampleNew_invalid() {
	_, err := breaker.New(breaker.Settings{FailureRatio: 50})
	fmt.Println(err)
	// Output: breaker: FailureRatio is 50: must be greater than 0 and at most 1
}

func ExampleClassify() {
	ctx, cancel := context.WithCancel(context.Background())
	err := errors.New("dial tcp 10.0.0.1:6379: connect: connection refused")
	for _, c := range []breaker.Class{
		breaker.Classify(ctx, nil),
		breaker.Classify(ctx, err),
		breaker.Classify(ctx, context.DeadlineExceeded), // ctx has none: it was ours
	} {
		fmt.Printf("%v: counts %v, fallback %v\n", c, c.Failure(), c.Fallback())
	}
	cancel()
	c := breaker.Classify(ctx, context.Canceled)
	fmt.Printf("%v: counts %v, fallback %v\n", c, c.Failure(), c.Fallback())
	// Output:
	// ok: counts false, fallback false
	// unavailable: counts true, fallback true
	// slow: counts true, fallback true
	// caller: counts false, fallback false
}
