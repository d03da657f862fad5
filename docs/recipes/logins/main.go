// Logins: five wrong passwords an hour for an address and a user. A right one costs nothing. Who
// goes on is banned, and each ban of a day is four times as long as the one before.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/limiter"
)

type guard struct{ wrong, bans *limiter.Limiter }

// login says whether the password is right, or how long to wait.
func (g *guard) login(ctx context.Context, ip, user string, check func() bool) (ok bool, wait time.Duration, err error) {
	key := ip + " " + user
	// It charges first and gives back, so that a thousand at a time are counted, too.
	res, err := limiter.CountFailed(ctx, g.wrong, key, func(context.Context) (failed bool) {
		ok = check()
		return !ok
	})
	if err != nil || ok || !res.Allowed || res.Remaining > 0 {
		return ok, res.RetryAfter, err
	}
	ban, err := g.bans.Allow(ctx, key)
	if err != nil {
		return false, 0, err
	}
	earlier := ban.Limit.Burst() - ban.Remaining - 1
	wait = time.Minute << (2 * min(earlier, 5))
	return false, wait, g.wrong.Block(ctx, key, wait)
}

func main() {
	opt, err := redis.ParseURL(cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379"))
	if err != nil {
		log.Fatal(err)
	}
	rdb := redis.NewClient(opt)
	defer rdb.Close()
	var g guard
	if g.wrong, err = limiter.New(rdb, limiter.SlidingWindowLog(limiter.PerHour(5)), limiter.WithPrefix("recipe:logins")); err != nil {
		log.Fatal(err)
	}
	defer g.wrong.Close()
	if g.bans, err = limiter.New(rdb, limiter.SlidingWindowLog(limiter.Per(100, 24*time.Hour)), limiter.WithPrefix("recipe:bans")); err != nil {
		log.Fatal(err)
	}
	defer g.bans.Close()
	ctx := context.Background()
	for try := range 8 {
		ok, wait, err := g.login(ctx, "192.0.2.1", "ann", func() bool { return try == 2 })
		fmt.Println("right:", ok, "wait:", wait.Round(time.Minute), err)
	}
}

// Output:
// right: false wait: 0s <nil>
// right: false wait: 0s <nil>
// right: true wait: 0s <nil>
// right: false wait: 0s <nil>
// right: false wait: 0s <nil>
// right: false wait: 1m0s <nil>
// right: false wait: 1h0m0s <nil>
// right: false wait: 1h0m0s <nil>
