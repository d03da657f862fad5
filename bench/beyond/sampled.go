package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redisproc"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/sampled"
)

// sampledSpeed measures one process of a fleet, and counts its calls.
func sampledSpeed(doc *bytes.Buffer, srv *redisproc.Server) error {
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer rdb.Close()
	ctx := context.Background()
	s, err := sampled.New(rdb, limiter.PerSecond(1_000_000), limiter.WithPrefix("speed"), limiter.WithBudget(time.Second))
	if err != nil {
		return err
	}
	defer s.Close()
	if _, err := s.Allow(ctx, keys[0]); err != nil {
		return err
	}
	allocs := testing.AllocsPerRun(10_000, func() { _, _ = s.Allow(ctx, keys[0]) })
	doc.WriteString("| sampled, one process | decisions per second | allocations | calls to Redis per second |\n|---|---|---|---|\n")
	for _, c := range []struct {
		name          string
		callers, keys int
	}{{"1 caller, one key", 1, 1}, {"512 callers, one key", 512, 1}, {"512 callers, 1,000 keys", 512, 1000}} {
		var rates []float64
		calls, err := callsOf(ctx, rdb)
		if err != nil {
			return err
		}
		start := time.Now()
		for range 9 {
			rates = append(rates, s1(s, c.callers, c.keys))
		}
		after, err := callsOf(ctx, rdb)
		if err != nil {
			return err
		}
		fmt.Fprintf(doc, "| %s | %.1f million | %.0f | %.1f |\n", c.name, median(rates)/1e6, allocs, float64(after-calls)/time.Since(start).Seconds())
	}
	doc.WriteString("\n")
	return nil
}

func s1(s *sampled.Limiter, callers, n int) float64 {
	var wg sync.WaitGroup
	var done atomic.Int64
	ctx := context.Background()
	start := time.Now()
	const batch = 1000
	for i := range callers {
		wg.Go(func() {
			for time.Since(start) < 400*time.Millisecond {
				for j := range batch {
					_, _ = s.AllowN(ctx, keys[(i+j)%n], 1)
				}
				done.Add(batch)
			}
		})
	}
	wg.Wait()
	return float64(done.Load()) / time.Since(start).Seconds()
}

func callsOf(ctx context.Context, rdb *redis.Client) (n int64, err error) {
	info, err := rdb.Info(ctx, "commandstats").Result()
	for line := range strings.Lines(info) {
		var calls int64
		if _, after, ok := strings.Cut(line, "cmdstat_evalsha:calls="); ok {
			fmt.Sscanf(after, "%d", &calls)
			n += calls
		}
	}
	return n, err
}

const (
	fleetSize  = 8
	fleetLimit = 1000
	fleetTime  = 20 * time.Second
	stepAt     = 10 * time.Second
)

// traffic is what each process of a fleet is asked for, in units of the limit.
type traffic struct {
	name          string
	before, after float64
	skewed        bool
}

// fleets runs real processes and compares what they admitted with the limit.
func fleets(doc *bytes.Buffer, srv *redisproc.Server) error {
	fmt.Fprintf(doc, "| sampled, %d processes, limit %d/s, interval 1 s | steady, mean | steady, worst second | 1st second of the step | 2nd | 3rd | 4th |\n|---|---|---|---|---|---|---|\n", fleetSize, fleetLimit)
	for i, tr := range []traffic{
		{"asked for half the limit, then five times", 0.5, 5, false},
		{"the same, one process for 37 % of it", 0.5, 5, true},
		{"asked for three times the limit all along", 3, 3, false},
		{"the same, one process for 37 % of it", 3, 3, true},
	} {
		total, err := fleet(srv, tr, fmt.Sprint("fleet", i))
		if err != nil {
			return err
		}
		at := int(stepAt / time.Second)
		var sum, worst float64
		steady := total[at+5 : len(total)-1]
		for _, n := range steady {
			miss := n/fleetLimit - 1
			sum += miss
			if math.Abs(miss) > math.Abs(worst) {
				worst = miss
			}
		}
		fmt.Fprintf(doc, "| %s | %+.1f %% | %+.1f %% |", tr.name, 100*sum/float64(len(steady)), 100*worst)
		for _, n := range total[at : at+4] {
			if tr.before == tr.after {
				doc.WriteString(" – |")
			} else {
				fmt.Fprintf(doc, " %+.0f %% |", 100*(n/fleetLimit-1))
			}
		}
		doc.WriteString("\n")
	}
	return nil
}

// fleet returns what all admitted in each second.
func fleet(srv *redisproc.Server, tr traffic, prefix string) ([]float64, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	total := make([]float64, int(fleetTime/time.Second)+1)
	var mu sync.Mutex
	var wg sync.WaitGroup
	var failed error
	begin := time.Now().Add(time.Second)
	var weights float64
	for i := range fleetSize {
		weights += weight(tr, i)
	}
	for i := range fleetSize {
		part := weight(tr, i) / weights * fleetLimit
		arg := fmt.Sprintf("%s %s %d %f %f", srv.Addr(), prefix, begin.UnixNano(), tr.before*part, tr.after*part)
		wg.Go(func() {
			out, err := exec.Command(exe, "-worker", arg).Output()
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = err
				return
			}
			for s, field := range strings.Fields(string(out)) {
				var n float64
				fmt.Sscan(field, &n)
				if s < len(total) {
					total[s] += n
				}
			}
		})
	}
	wg.Wait()
	return total, failed
}

func weight(tr traffic, i int) float64 {
	if tr.skewed {
		return 1 / float64(i+1)
	}
	return 1
}

// work is one process of a fleet: it asks at a steady rate and prints what was
// admitted in each second.
func work(arg string) error {
	if arg == "" {
		return nil
	}
	var addr, prefix string
	var begin int64
	var before, after float64
	if _, err := fmt.Sscan(arg, &addr, &prefix, &begin, &before, &after); err != nil {
		return err
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	s, err := sampled.New(rdb, limiter.PerSecond(fleetLimit), limiter.WithPrefix(prefix), limiter.WithBudget(time.Second))
	if err != nil {
		return err
	}
	defer s.Close()
	start := time.Unix(0, begin)
	time.Sleep(time.Until(start))
	admitted := make([]int, int(fleetTime/time.Second)+1)
	due := 0.0
	for last := start; ; {
		now := time.Now()
		since := now.Sub(start)
		if since >= fleetTime {
			break
		}
		rate := before
		if since >= stepAt {
			rate = after
		}
		due += rate * now.Sub(last).Seconds()
		last = now
		for ; due >= 1; due-- {
			res, err := s.Allow(context.Background(), "k")
			if err != nil {
				return err
			}
			if res.Allowed {
				admitted[since/time.Second]++
			}
		}
		time.Sleep(2 * time.Millisecond)
	}
	fmt.Println(strings.Trim(fmt.Sprint(admitted), "[]"))
	return nil
}
