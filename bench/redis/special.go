package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/limiter"
)

// early measures how much a split key denies while others of its parts have room:
// what arrives at random, at a part of the limit, next to a key that is whole.
func (b *bench) early(doc *bytes.Buffer) error {
	const rate, burst = 1000, 40
	doc.WriteString("**Denied early by key shards**: arrivals at random (Poisson), GCRA 1000/s burst 40\n\n| offered | one key | 4 shards | 16 shards |\n|---|---|---|---|\n")
	for _, offered := range []float64{0.8, 0.9, 0.95, 1, 1.2} {
		fmt.Fprintf(doc, "| %.0f %% of the limit |", 100*offered)
		for _, shards := range []int{1, 4, 16} {
			rdb := redis.NewClient(&redis.Options{Addr: b.srv.Addr()})
			b.made++
			lim, err := limiter.New(rdb, limiter.GCRA(limiter.PerSecond(rate), burst), limiter.WithKeyShards(shards),
				limiter.WithPrefix(fmt.Sprint("early", b.made)), limiter.WithBudget(time.Second))
			if err != nil {
				return err
			}
			denied, n, err := poisson(lim, rate*offered, 4*time.Second)
			lim.Close()
			rdb.Close()
			if err != nil {
				return err
			}
			fmt.Fprintf(doc, " %.2f %% denied |", 100*float64(denied)/float64(n))
		}
		doc.WriteString("\n")
	}
	doc.WriteString("\n")
	return nil
}

// poisson asks at random times, at a mean rate, each caller on its own.
func poisson(lim *limiter.Limiter, rate float64, length time.Duration) (denied, n int64, err error) {
	var wg sync.WaitGroup
	var d atomic.Int64
	var failed atomic.Pointer[error]
	start := time.Now()
	for due := time.Duration(0); due < length; n++ {
		due += time.Duration(rand.ExpFloat64() / rate * float64(time.Second))
		time.Sleep(time.Until(start.Add(due)))
		wg.Go(func() {
			res, err := lim.Allow(context.Background(), "hot")
			if err != nil {
				failed.Store(&err)
			} else if !res.Allowed {
				d.Add(1)
			}
		})
	}
	wg.Wait()
	if e := failed.Load(); e != nil {
		err = *e
	}
	return d.Load(), n, err
}

// crowded is what a turn of many callers shows.
type crowded struct {
	rate, byRedis, overloaded float64 // the last two in percent
	p50, p99, p999            time.Duration
}

// crowd measures 10,000 callers of as many keys, each with a limiter's usual settings: how many
// have a decision of Redis within its budget, and what Health says of the others. Those who pause between two
// decisions, as for the call that these are about, ask for less than Redis can do; the others for all that it can.
// The rows take turns.
func (b *bench) crowd(doc *bytes.Buffer) error {
	rows := []struct{ budget, pause time.Duration }{
		{50 * time.Millisecond, 50 * time.Millisecond},
		{50 * time.Millisecond, 0},
		{250 * time.Millisecond, 0},
	}
	turns := make([][]crowded, len(rows))
	for range b.rounds {
		for i, row := range rows {
			t, err := b.crowdTurn(row.budget, row.pause)
			if err != nil {
				return err
			}
			turns[i] = append(turns[i], t)
		}
	}
	doc.WriteString("**10,000 callers of 10,000 keys**, who ask again after a pause when they have a decision\n\n| budget | pause | decisions/s | by Redis | least and most | overloaded, of the others | p50 | p99 | p99.9 |\n|---|---|---|---|---|---|---|---|---|\n")
	for i, row := range rows {
		ts := turns[i]
		byRedis := func(t crowded) float64 { return t.byRedis }
		fmt.Fprintf(doc, "| %v | %s | %.0f | %.1f %% | %.1f–%.1f %% | %.1f %% | %v | %v | %v |\n", row.budget, row.pause,
			median(ts, func(t crowded) float64 { return t.rate }),
			median(ts, byRedis), byRedis(slices.MinFunc(ts, fewer)), byRedis(slices.MaxFunc(ts, fewer)),
			median(ts, func(t crowded) float64 { return t.overloaded }),
			short(median(ts, func(t crowded) time.Duration { return t.p50 })),
			short(median(ts, func(t crowded) time.Duration { return t.p99 })),
			short(median(ts, func(t crowded) time.Duration { return t.p999 })))
	}
	doc.WriteString("\n")
	return nil
}

// fewer compares how many decisions of a turn Redis made.
func fewer(a, b crowded) int { return cmp.Compare(a.byRedis, b.byRedis) }

func (b *bench) crowdTurn(budget, pause time.Duration) (crowded, error) {
	const callers = 10_000
	rdb := redis.NewClient(&redis.Options{Addr: b.srv.Addr()})
	defer rdb.Close()
	b.made++
	lim, err := limiter.New(rdb, gcra(usual), limiter.WithPrefix(fmt.Sprint("crowd", b.made)), limiter.WithBudget(budget))
	if err != nil {
		return crowded{}, err
	}
	defer lim.Close()
	warm := len(others(lim, 0, callers, pause, b.length, 0))
	before := lim.Health()
	length := 2 * b.length
	took := others(lim, 0, callers, pause, length, 4*warm/callers)
	h := lim.Health()
	at := func(q float64) time.Duration { return took[int(q*float64(len(took)-1))] }
	n := float64(len(took))
	byRedis := float64(h.Decisions[limiter.SourceRedis] - before.Decisions[limiter.SourceRedis])
	overloaded := float64(h.Servers[0].Overloaded - before.Servers[0].Overloaded)
	return crowded{n / length.Seconds(), 100 * byRedis / n, 100 * overloaded / max(1, n-byRedis), at(0.5), at(0.99), at(0.999)}, nil
}

// fair measures 511 callers of as many keys, without and with a hot key that
// three times as many ask for at once.
func (b *bench) fair(doc *bytes.Buffer) error {
	doc.WriteString("**Fairness**: 511 callers of keys of their own, without and with one caller or 1533 of one hot key beside them, on one limiter\n\n| | p50 | p99 | p99.9 |\n|---|---|---|---|\n")
	rdb := redis.NewClient(&redis.Options{Addr: b.srv.Addr()})
	defer rdb.Close()
	for _, hot := range []int{0, 1, 0, 1533} {
		b.made++
		lim, err := limiter.New(rdb, gcra(high), limiter.WithPrefix(fmt.Sprint("fair", b.made)), limiter.WithBudget(time.Second))
		if err != nil {
			return err
		}
		length := b.length * time.Duration(b.rounds)
		took := others(lim, hot, 511, 0, length, int(length/(500*time.Microsecond)))
		lim.Close()
		at := func(q float64) time.Duration { return took[int(q*float64(len(took)-1))] }
		name := "without"
		switch {
		case hot == 1:
			name = "with one caller of the hot key"
		case hot > 1:
			name = fmt.Sprintf("with %d callers of the hot key", hot)
		}
		fmt.Fprintf(doc, "| %s | %v | %v | %v |\n", name, short(at(0.5)), short(at(0.99)), short(at(0.999)))
	}
	doc.WriteString("\n")
	return nil
}

// others are the sorted times of callers of keys of their own, who pause in between, next to those of a hot key. There is
// memory for so many of each caller, so that what is measured is not the collection of these.
func others(lim *limiter.Limiter, hot, callers int, pause, length time.Duration, room int) []time.Duration {
	var stop atomic.Bool
	var wg sync.WaitGroup
	took := make([][]time.Duration, callers)
	ask := func(key string, pause time.Duration, each func(time.Duration)) {
		for !stop.Load() {
			begin := time.Now()
			_, _ = lim.Allow(context.Background(), key)
			each(time.Since(begin))
			time.Sleep(pause) // of 0 does nothing
		}
	}
	for range hot {
		wg.Go(func() { ask("hot", 0, func(time.Duration) {}) })
	}
	for i := range took {
		took[i] = make([]time.Duration, 0, room)
	}
	for i := range took {
		wg.Go(func() { ask(fmt.Sprint("user:", i), pause, func(d time.Duration) { took[i] = append(took[i], d) }) })
	}
	time.Sleep(length)
	stop.Store(true)
	wg.Wait()
	all := slices.Concat(took...)
	slices.Sort(all)
	return all
}
