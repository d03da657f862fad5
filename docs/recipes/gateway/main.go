// A gateway to a language model: the account has a limit of requests and one of tokens. What a
// call costs is known when its stream ends. Calls of people go before those of batches.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/limiter"
)

// ask reserves the most that an answer may cost, and settles at what it cost. A stream that
// breaks costs what has arrived.
func ask(ctx context.Context, account *limiter.Multi, most int, stream func(yield func(tokens int) bool)) error {
	r, err := account.Reserve(ctx, "our-key", limiter.Cost(1), limiter.Cost(most))
	switch {
	case err != nil:
		return err
	case !r.Allowed:
		return fmt.Errorf("no %s left", r.Denied) // r.RetryAfter says when to ask again
	}
	used := 0
	for tokens := range stream {
		used += tokens
	}
	return r.Settle(context.WithoutCancel(ctx), 1, used)
}

func answer(chunks ...int) func(func(int) bool) {
	return func(yield func(int) bool) {
		for _, tokens := range chunks {
			if !yield(tokens) {
				return
			}
		}
	}
}

func main() {
	opt, err := redis.ParseURL(cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379"))
	if err != nil {
		log.Fatal(err)
	}
	rdb := redis.NewClient(opt)
	defer rdb.Close()
	requests, err := limiter.New(rdb, limiter.TokenBucket(limiter.PerHour(500), 50), limiter.WithPrefix("recipe:llm:requests"))
	if err != nil {
		log.Fatal(err)
	}
	defer requests.Close()
	// A window takes back all that was reserved too much. Its last fifth is for people.
	tokens, err := limiter.New(rdb, limiter.FixedWindow(limiter.Per(10_000, 24*3600e9)), limiter.WithPrefix("recipe:llm:tokens"), limiter.WithCriticalHeadroom(0.2))
	if err != nil {
		log.Fatal(err)
	}
	defer tokens.Close()
	account, err := limiter.NewMulti(limiter.Part{Name: "requests", Limiter: requests}, limiter.Part{Name: "tokens", Limiter: tokens})
	if err != nil {
		log.Fatal(err)
	}
	batch, person := context.Background(), limiter.Critical(context.Background())
	fmt.Println("batch: ", ask(batch, account, 4000, answer(300, 700, 500)))
	fmt.Println("batch: ", ask(batch, account, 6500, answer(6500)))
	fmt.Println("batch: ", ask(batch, account, 1000, answer(10)))
	fmt.Println("person:", ask(person, account, 1000, answer(10)))
}

// Output:
// batch:  <nil>
// batch:  <nil>
// batch:  no tokens left
// person: <nil>
