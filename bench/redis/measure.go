package main

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
)

// load is how many callers ask about how many keys, under which limit per second.
type load struct {
	name          string
	callers, keys int
	limit         int
	// away is how much later each reply comes, by a proxy.
	away time.Duration
	// cancellable says that each decision has a context that can end.
	cancellable bool
}

// Each of many keys has a usual limit, of which nothing is denied. The limit of one key
// that all ask for is one that is not reached.
const (
	usual = 100
	high  = 700_000
)

type result struct {
	rate           float64
	times          []float64 // of the plain client's rate, in each round, in order of size
	spread         float64   // the highest rate of a round divided by the lowest
	switches       float64   // of the client's threads, voluntary, per decision
	p50, p99, p999 time.Duration
	allocs         float64
	client, server time.Duration // CPU per decision
	denied         float64       // share
	errors, over   int64
	lastErr        error
}

// measure gives every contender a turn in every round, and returns the medians.
func measure(b *bench, list []contender, l load) ([]result, error) {
	addr := b.srv.Addr()
	if l.away > 0 {
		proxy, err := faultproxy.New(addr)
		if err != nil {
			return nil, err
		}
		defer proxy.Close()
		proxy.Set(faultproxy.Mode{ReplyDelay: l.away})
		addr = proxy.Addr()
	}
	all := make([][]result, len(list))
	decide := make([]decider, len(list))
	for i, c := range list {
		b.made++
		f, closeIt, err := c.make(addr, fmt.Sprintf("b%d:", b.made), l.limit)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		defer closeIt()
		decide[i] = f
		b.turn(c, f, l, b.length/4) // warms up
	}
	rounds := b.rounds
	if l.callers == 1 {
		rounds *= 3 // what one caller gets depends on which processor the server wakes up on, by a factor of two
	}
	for round := range rounds {
		for i := range list {
			i = (i + round) % len(list)
			all[i] = append(all[i], b.turn(list[i], decide[i], l, b.length))
		}
	}
	medians := make([]result, len(list))
	for i, rs := range all {
		medians[i] = middle(rs)
		for round, r := range rs {
			medians[i].times = append(medians[i].times, r.rate/all[0][round].rate)
		}
		slices.Sort(medians[i].times)
	}
	return medians, nil
}

// middle is the median of each figure, and the sum of what went wrong.
func middle(rs []result) (m result) {
	lowest := slices.MinFunc(rs, func(a, b result) int { return cmp.Compare(a.rate, b.rate) })
	highest := slices.MaxFunc(rs, func(a, b result) int { return cmp.Compare(a.rate, b.rate) })
	m.spread = highest.rate / lowest.rate
	m.rate = median(rs, func(r result) float64 { return r.rate })
	m.p50 = median(rs, func(r result) time.Duration { return r.p50 })
	m.p99 = median(rs, func(r result) time.Duration { return r.p99 })
	m.p999 = median(rs, func(r result) time.Duration { return r.p999 })
	m.allocs = median(rs, func(r result) float64 { return r.allocs })
	m.client = median(rs, func(r result) time.Duration { return r.client })
	m.server = median(rs, func(r result) time.Duration { return r.server })
	m.switches = median(rs, func(r result) float64 { return r.switches })
	m.denied = median(rs, func(r result) float64 { return r.denied })
	for _, r := range rs {
		m.errors += r.errors
		m.over += r.over
		m.lastErr = cmp.Or(m.lastErr, r.lastErr)
	}
	return m
}

func median[R any, T cmp.Ordered](rs []R, of func(R) T) T {
	all := make([]T, len(rs))
	for i, r := range rs {
		all[i] = of(r)
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// caller is what one goroutine has done.
type caller struct {
	took        []time.Duration
	n, admitted int64
	errors      int64
	err         error
	_           [64]byte
}

// sampled is of how many decisions one is timed, where they take less than the
// clock does.
const sampled = 16

// turn lets all callers decide for a while.
func (b *bench) turn(c contender, decide decider, l load, length time.Duration) result {
	keys := make([]string, l.keys)
	for i := range keys {
		keys[i] = fmt.Sprint("user:", i)
	}
	callers := make([]caller, l.callers)
	for i := range callers {
		callers[i].took = make([]time.Duration, 0, 1<<12)
	}
	var stop atomic.Bool
	var wg sync.WaitGroup
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	client, switches, server := b.cpu()
	start := time.Now()
	for i := range callers {
		wg.Go(func() {
			c, ctx := &callers[i], context.Background()
			if l.cancellable {
				var cancel context.CancelFunc
				ctx, cancel = context.WithCancel(ctx)
				defer cancel()
			}
			for k := i * 7919; !stop.Load(); k += 31 {
				timed := c.n < 1024 || c.n%sampled == 0
				var begin time.Time
				if timed {
					begin = time.Now()
				}
				allowed, err := decide(ctx, keys[k%len(keys)])
				if timed {
					c.took = append(c.took, time.Since(begin))
				}
				c.n++
				switch {
				case err != nil:
					c.errors, c.err = c.errors+1, err
				case allowed:
					c.admitted++
				}
			}
		})
	}
	time.Sleep(length)
	stop.Store(true)
	wg.Wait()
	elapsed := time.Since(start)
	clientEnd, switchesEnd, serverEnd := b.cpu()
	runtime.ReadMemStats(&after)
	var sum caller
	for i := range callers {
		c := &callers[i]
		sum.took = append(sum.took, c.took...)
		sum.n, sum.admitted, sum.errors, sum.err = sum.n+c.n, sum.admitted+c.admitted, sum.errors+c.errors, cmp.Or(sum.err, c.err)
	}
	slices.Sort(sum.took)
	at := func(q float64) time.Duration { return sum.took[min(len(sum.took)-1, int(q*float64(len(sum.took))))] }
	n := float64(sum.n)
	most := float64(l.keys*l.limit) * (elapsed.Seconds() + max(1, c.bursts))
	return result{
		rate: n / elapsed.Seconds(), allocs: float64(after.Mallocs-before.Mallocs) / n,
		p50: at(0.5), p99: at(0.99), p999: at(0.999),
		client: time.Duration(float64(clientEnd-client) / n), server: time.Duration(float64(serverEnd-server) / n),
		switches: float64(switchesEnd-switches) / n,
		denied:   1 - float64(sum.admitted+sum.errors)/n,
		errors:   sum.errors, lastErr: sum.err, over: max(0, sum.admitted-int64(most)),
	}
}

// cpu is the time that this process and the server have used, and how often a thread of this
// process went to sleep.
func (b *bench) cpu() (client time.Duration, switches int64, server time.Duration) {
	var self syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &self) == nil {
		client, switches = time.Duration(self.Utime.Nano()+self.Stime.Nano()), self.Nvcsw
	}
	return client, switches, b.serverCPU()
}

// ratio is the median of times.
func (r result) ratio() float64 { return r.times[len(r.times)/2] }

// bytesPerKey is what Redis keeps for a key that was used once, by its own
// account.
func (b *bench) bytesPerKey(c contender) (float64, error) {
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: b.srv.Addr()})
	defer rdb.Close()
	if err := rdb.FlushAll(ctx).Err(); err != nil {
		return 0, err
	}
	decide, closeIt, err := c.make(b.srv.Addr(), "bench:", 4) // slow, so that no key is gone before it is measured
	if err != nil {
		return 0, err
	}
	defer closeIt()
	const ids = 100
	for i := range ids {
		if _, err := decide(ctx, fmt.Sprint("user:", i)); err != nil {
			return 0, err
		}
	}
	var sum int64
	all := rdb.Scan(ctx, 0, "*user:*", 10_000).Iterator()
	for all.Next(ctx) {
		n, err := rdb.MemoryUsage(ctx, all.Val()).Result()
		if err != nil && err != redis.Nil {
			return 0, err
		}
		sum += n
	}
	return float64(sum) / ids, all.Err()
}
