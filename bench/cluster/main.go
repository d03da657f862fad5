// Cluster measures how many decisions a cluster makes that is some milliseconds away: of
// those that are offered at a rate, each on a key of its own, how many does
// Redis decide within the budget, by Holdfast and by a plain script on the same client.
// It starts its own cluster behind delaying proxies, prints a table in Markdown, and
// writes it to a file when it is given one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/holdfast-go/holdfast/bench/internal/machine"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/redisproc"
	"github.com/holdfast-go/holdfast/limiter"
)

const (
	rounds = 3
	budget = 50 * time.Millisecond // the default of limiter.WithBudget
)

// script is a GCRA as one would write it by hand.
var script = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local tat = math.max(now, tonumber(redis.call('GET', KEYS[1]) or now))
if tat - now > 10000000 then return 0 end
redis.call('SET', KEYS[1], string.format('%.0f', tat + 100000), 'PX', 12000)
return 1`)

func main() {
	out := flag.String("out", "", "file to write the table to")
	delay := flag.Duration("delay", 8*time.Millisecond, "round trip that the proxies add")
	length := flag.Duration("length", 3*time.Second, "how long each rate is offered")
	flag.Parse()
	logging.Disable()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	if err := run(*out, *delay, *length); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(out string, delay, length time.Duration) error {
	watch := machine.New()
	var b strings.Builder
	for _, masters := range []int{3, 6} {
		if err := measureCluster(&b, masters, delay, length); err != nil {
			return err
		}
	}
	return watch.Publish(out, "make bench-cluster", b.String())
}

// measureCluster writes what a cluster of so many masters does.
func measureCluster(b *strings.Builder, masters int, delay, length time.Duration) (err error) {
	c, err := redisproc.StartCluster(masters, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	far := map[string]string{}
	for _, s := range c.Nodes() {
		p, err := faultproxy.New(s.Addr())
		if err != nil {
			return err
		}
		defer p.Close()
		p.Set(faultproxy.Mode{ReplyDelay: delay})
		far[s.Addr()] = p.Addr()
	}
	client := func() *redis.ClusterClient {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), ContextTimeoutEnabled: true, Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, far[addr])
		}})
	}
	rdb := client()
	trip, err := roundTrip(rdb)
	_ = rdb.Close()
	if err != nil {
		return err
	}
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
	fmt.Fprintf(b, "%d masters, round trip %v (median), budget %v, %v at each rate, median of %d interleaved rounds. Share of the decisions offered that Redis made within the budget:\n\n", masters, trip.Round(100*time.Microsecond), budget, length, rounds)
	b.WriteString("| offered per second | Holdfast | plain script | Holdfast ÷ plain | load of the machine |\n|---|---|---|---|---|\n")
	for _, rate := range []int{500, 1000, 2500, 5000, 10000} {
		var ours, plains []float64
		for round := range rounds {
			fmt.Fprintf(os.Stderr, "%d/s, round %d ...\n", rate, round+1)
			h, err := holdfast(client(), rate, round, length)
			if err != nil {
				return err
			}
			p, err := plain(client(), rate, round, length)
			if err != nil {
				return err
			}
			ours, plains = append(ours, h), append(plains, p)
		}
		h, p := median(ours), median(plains)
		fmt.Fprintf(b, "| %d | %.3f | %.3f | %.2f | %.1f |\n", rate, h, p, h/p, machine.Load())
	}
	b.WriteString("\nDecisions per second that Redis made within the budget, of callers that ask for the next one as soon as they have the last one, each on a key of its own:\n\n")
	b.WriteString("| callers | Holdfast | plain script | Holdfast ÷ plain | load of the machine |\n|---|---|---|---|---|\n")
	for _, callers := range []int{8, 64, 512} {
		var ours, plains, ratios []float64
		for round := range rounds {
			fmt.Fprintf(os.Stderr, "%d callers, round %d ...\n", callers, round+1)
			h, err := holdfast(client(), -callers, round, length)
			if err != nil {
				return err
			}
			p, err := plain(client(), -callers, round, length)
			if err != nil {
				return err
			}
			ours, plains, ratios = append(ours, h), append(plains, p), append(ratios, h/max(p, 1))
		}
		fmt.Fprintf(b, "| %d | %.0f | %.0f | %.2f | %.1f |\n", callers, median(ours), median(plains), median(ratios), machine.Load())
	}
	return nil
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

func roundTrip(rdb *redis.ClusterClient) (time.Duration, error) {
	var all []time.Duration
	for range 21 {
		start := time.Now()
		if err := rdb.Get(context.Background(), "x").Err(); err != nil && !errors.Is(err, redis.Nil) {
			return 0, err
		}
		all = append(all, time.Since(start))
	}
	slices.Sort(all)
	return all[len(all)/2], nil
}

// closed lets callers ask, and returns how many asks succeeded per second.
func closed(callers int, length time.Duration, ask func(i int) bool) float64 {
	var wg sync.WaitGroup
	var good, asked atomic.Int64
	start := time.Now()
	for range callers {
		wg.Go(func() {
			for time.Since(start) < length {
				if ask(int(asked.Add(1))) {
					good.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return float64(good.Load()) / time.Since(start).Seconds()
}

// measure offers a rate, or where it is negative lets that many callers ask.
func measure(rate int, length time.Duration, ask func(name string) func(int) bool) float64 {
	if rate < 0 {
		closed(-rate, time.Second, ask("warm"))
		return closed(-rate, length, ask("key"))
	}
	offer(min(rate, 500), time.Second, ask("warm"))
	return offer(rate, length, ask("key"))
}

// offer calls ask at a rate, each in a goroutine of its own, and returns the share that
// succeeded.
func offer(rate int, length time.Duration, ask func(i int) bool) float64 {
	const tick = 2 * time.Millisecond
	var wg sync.WaitGroup
	var good atomic.Int64
	start, asked := time.Now(), 0
	for time.Since(start) < length {
		for due := int(time.Since(start).Seconds() * float64(rate)); asked < due; asked++ {
			i := asked
			wg.Go(func() {
				if ask(i) {
					good.Add(1)
				}
			})
		}
		time.Sleep(tick)
	}
	wg.Wait()
	return float64(good.Load()) / float64(asked)
}

func holdfast(rdb *redis.ClusterClient, rate, round int, length time.Duration) (float64, error) {
	defer rdb.Close()
	lim, err := limiter.New(rdb, limiter.GCRA(limiter.PerSecond(10), 100), limiter.WithPrefix(fmt.Sprint("bench", rate, "-", round)))
	if err != nil {
		return 0, err
	}
	defer lim.Close()
	ask := func(name string) func(int) bool {
		return func(i int) bool {
			res, err := lim.Allow(context.Background(), fmt.Sprint(name, i))
			return err == nil && res.Source == limiter.SourceRedis
		}
	}
	return measure(rate, length, ask), nil
}

func plain(rdb *redis.ClusterClient, rate, round int, length time.Duration) (float64, error) {
	defer rdb.Close()
	ask := func(name string) func(int) bool {
		return func(i int) bool {
			start := time.Now()
			err := script.Run(context.Background(), rdb, []string{fmt.Sprint("plain:", rate, round, name, i)}).Err()
			return err == nil && time.Since(start) <= budget
		}
	}
	return measure(rate, length, ask), nil
}
