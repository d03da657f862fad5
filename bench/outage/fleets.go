package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redisproc"
	"github.com/holdfast-go/holdfast/limiter"
)

// A fleet shares limits of so many units per second and a burst; a key of its own for each
// way in which traffic falls on the processes.
const (
	fleetSize    = 8
	fleetRate    = 250
	fleetBurst   = 100
	fleetLearns  = 50 * time.Second // five times as long as grants are remembered
	fleetAlone   = 20 * time.Second // asking for 0.8 of the limit, and then for three limits
	fleetCrowded = 10 * time.Second
	returnShown  = 10
)

// weights is the part of a key's traffic that each process has.
type weights func(i int) float64

func zipf(s float64) weights { return func(i int) float64 { return math.Pow(float64(i+1), -s) } }

func evenly(int) float64 { return 1 }

func reversed(of weights) weights { return func(i int) float64 { return of(fleetSize - 1 - i) } }

func halfOf(second bool) weights {
	return func(i int) float64 {
		if i >= fleetSize/2 == second {
			return 1
		}
		return 0
	}
}

func onlyOne(i int) float64 {
	if i == 0 {
		return 1
	}
	return 0
}

// spread is how a key's traffic falls on the processes, before an outage and in it.
type spread struct {
	name        string
	before, now weights // before is nil for a key that is new
}

var spreads = []spread{
	{"even", evenly, evenly},
	{"Zipf 1", zipf(1), zipf(1)},
	{"Zipf 2", zipf(2), zipf(2)},
	{"all on one", onlyOne, onlyOne},
	{"moved since: Zipf 1, then in the reverse order", zipf(1), reversed(zipf(1))},
	{"moved since, to processes that had none", halfOf(false), halfOf(true)},
	{"new key, even", nil, evenly},
}

// tally is what was asked for and admitted of a key.
type tally struct {
	asked, admitted atomic.Int64
	seconds         [returnShown]atomic.Int64 // admitted in each second since Redis is back
}

// since is the time since Redis is back, and below 0 before that.
type since struct{ at atomic.Pointer[time.Time] }

func (s *since) second() int {
	if at := s.at.Load(); at != nil {
		return int(time.Since(*at) / time.Second)
	}
	return -1
}

// load lets each process ask for its part of so many limits of a key for a while.
func load(wg *sync.WaitGroup, fleet []*limiter.Limiter, key string, of weights, limits float64, length time.Duration, back *since, to *tally) {
	sum := 0.0
	for i := range fleet {
		sum += of(i)
	}
	began := time.Now()
	for i, lim := range fleet {
		perSecond := fleetRate * limits * of(i) / sum
		if perSecond == 0 {
			continue
		}
		wg.Go(func() {
			for n := 0; ; n++ {
				due := began.Add(time.Duration((float64(n) + float64(i)/float64(len(fleet))) / perSecond * float64(time.Second)))
				if due.Sub(began) >= length {
					return
				}
				time.Sleep(time.Until(due))
				second := back.second()
				res, err := lim.Allow(context.Background(), key)
				to.asked.Add(1)
				if err != nil || !res.Allowed {
					continue
				}
				to.admitted.Add(1)
				if second >= 0 && second < returnShown {
					to.seconds[second].Add(1)
				}
			}
		})
	}
}

// fleetOf returns limiters of n processes.
func fleetOf(n int, addr, prefix string, opts ...limiter.Option) (fleet []*limiter.Limiter, done func(), err error) {
	var clients []*redis.Client
	done = func() {
		for i, lim := range fleet {
			lim.Close()
			clients[i].Close()
		}
	}
	for i := range n {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		lim, err := limiter.New(rdb, limiter.GCRA(limiter.PerSecond(fleetRate), fleetBurst),
			append([]limiter.Option{limiter.WithProcess(fmt.Sprint("p", i)), limiter.WithPrefix(prefix)}, opts...)...)
		if err != nil {
			rdb.Close()
			done()
			return nil, nil, err
		}
		fleet, clients = append(fleet, lim), append(clients, rdb)
	}
	return fleet, done, nil
}

// fleets measures fleets whose traffic is skewed, that start without Redis, and that return to
// it, and returns the tables.
func fleets() (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "| traffic of the key over %d processes | used, of 0.8 of the limit | admitted ÷ limit, at most | ÷ limit in each second after Redis is back: 1", fleetSize)
	for s := 2; s <= returnShown; s++ {
		fmt.Fprintf(&b, " | %d", s)
	}
	b.WriteString(" |\n|---|---|---|" + strings.Repeat("---|", returnShown) + "\n")

	srv, err := redisproc.Start(redisproc.Options{})
	if err != nil {
		return "", err
	}
	defer srv.Close()
	fleet, done, err := fleetOf(fleetSize, srv.Addr(), "fleet")
	if err != nil {
		return "", err
	}
	defer done()
	var used, most, after [10]tally
	var back since
	phase := func(what string, of func(i int) weights, limits float64, length time.Duration, to *[10]tally) {
		fmt.Fprintf(os.Stderr, "%s, for %v ...\n", what, length)
		var wg sync.WaitGroup
		for i, s := range spreads {
			if w := of(i); w != nil {
				load(&wg, fleet, s.name, w, limits, length, &back, &to[i])
			}
		}
		wg.Wait()
	}
	before := func(i int) weights { return spreads[i].before }
	now := func(i int) weights { return spreads[i].now }
	all := func(int) weights { return evenly }
	phase("a fleet learns", before, 0.8, fleetLearns, new([10]tally))
	if err := srv.Kill(); err != nil {
		return "", err
	}
	phase("Redis is away", now, 0.8, fleetAlone, &used)
	phase("Redis is away, and all ask for more than there is", all, 3, fleetCrowded, &most)
	restarted := make(chan error, 1)
	go func() {
		err := srv.Restart()
		now := time.Now()
		back.at.Store(&now)
		restarted <- err
	}()
	phase("Redis comes back", all, 2, (returnShown+3)*time.Second, &after)
	if err := <-restarted; err != nil {
		return "", err
	}
	for i, s := range spreads {
		fmt.Fprintf(&b, "| %s | %.2f | %.2f", s.name, float64(used[i].admitted.Load())/float64(used[i].asked.Load()),
			float64(most[i].admitted.Load())/(fleetRate*fleetCrowded.Seconds()+fleetBurst))
		for s := range returnShown {
			fmt.Fprintf(&b, " | %.2f", float64(after[i].seconds[s].Load())/fleetRate)
		}
		b.WriteString(" |\n")
	}
	b.WriteString("\n| a fleet that starts while Redis is away | admitted ÷ limit |\n|---|---|\n")
	for _, c := range []struct {
		name string
		n    int
		opts []limiter.Option
	}{
		{"8 processes", 8, nil},
		{"20 processes", 20, nil},
		{"20 processes, `WithExpectedProcesses(20)`", 20, []limiter.Option{limiter.WithExpectedProcesses(20)}},
		{"20 processes, `WithPeerCount` that says 20", 20, []limiter.Option{limiter.WithPeerCount(func(context.Context) (int, error) { return 20, nil })}},
	} {
		cold, done, err := fleetOf(c.n, "127.0.0.1:1", "cold", c.opts...) // no server is there
		if err != nil {
			return "", err
		}
		fmt.Fprintf(os.Stderr, "%s start without Redis ...\n", c.name)
		var wg sync.WaitGroup
		var got tally
		load(&wg, cold, "k", evenly, 3, fleetCrowded, new(since), &got)
		wg.Wait()
		done()
		fmt.Fprintf(&b, "| %s | %.2f |\n", c.name, float64(got.admitted.Load())/(fleetRate*fleetCrowded.Seconds()+fleetBurst))
	}
	return b.String(), nil
}
