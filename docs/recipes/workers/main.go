// Workers on a shared quota: an account may send 20 messages a second. Three processes of four
// workers each send 40, in turn, and never more than the account allows.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/limiter"
)

// process stands for one of yours: it has a client and a limiter of its own.
func process(ctx context.Context, jobs <-chan int, sent *atomic.Int64) error {
	opt, err := redis.ParseURL(cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379"))
	if err != nil {
		return err
	}
	rdb := redis.NewClient(opt)
	defer rdb.Close()
	lim, err := limiter.New(rdb, limiter.TokenBucket(limiter.PerSecond(20), 10),
		limiter.WithPrefix("recipe:workers"), limiter.WithExpectedProcesses(3))
	if err != nil {
		return err
	}
	defer lim.Close()
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for job := range jobs {
				// Wait sleeps until it is the worker's turn. It returns an error at once where the
				// deadline leaves too little time, and then the job would go back to the queue.
				if _, err := lim.Wait(ctx, "account:7"); err != nil {
					log.Printf("job %d: %v", job, err)
					continue
				}
				sent.Add(1) // here you send it
			}
		})
	}
	workers.Wait()
	return nil
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	jobs := make(chan int, 40)
	for job := range 40 {
		jobs <- job
	}
	close(jobs)
	var sent atomic.Int64
	var fleet sync.WaitGroup
	for range 3 {
		fleet.Go(func() {
			if err := process(ctx, jobs, &sent); err != nil {
				log.Fatal(err)
			}
		})
	}
	fleet.Wait()
	fmt.Println(sent.Load(), "messages are sent")
}

// Output:
// 40 messages are sent
