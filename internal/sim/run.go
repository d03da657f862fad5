package sim

import (
	"fmt"
	rand1 "math/rand"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/algo"
)

// Report is what came of a world.
type Report struct {
	Plan       Plan
	Violations []Violation
	Decisions  int
	Checks     int
	Faults     map[string]int
	Redirects  map[string]int // MOVED, ASK, TRYAGAIN and CROSSSLOT
	Simulated  time.Duration  // processes × time
	Hash       uint64
	Trace      []string
}

// emptyPools takes what the last bubble has left out of the pools of go-redis, which are
// variables of its packages: its timers are those of that bubble. A pool is empty when memory
// was collected twice.
func emptyPools() {
	runtime.GC()
	runtime.GC()
}

// Run makes a world and lets it live.
func Run(t *testing.T, p Plan, tracing bool) Report { return RunReal(t, p, tracing, nil) }

// RunReal is Run where a Redis server executes the scripts, too.
func RunReal(t *testing.T, p Plan, tracing bool, real Real) (rep Report) {
	emptyPools()
	t.Run(fmt.Sprintf("seed=%d", p.Seed), func(t *testing.T) {
		cryptotest.SetGlobalRandom(t, p.Seed)
		rand1.Seed(int64(p.Seed)) //nolint:staticcheck // go-redis draws from it, and only with GODEBUG=randseednop=0
		synctest.Test(t, func(t *testing.T) { rep = live(p, tracing, real) })
	})
	return rep
}

func live(p Plan, tracing bool, real Real) Report {
	time.Sleep(p.Begins)
	w := &World{Plan: p, real: real, began: time.Now(), rules: map[string]*rule{}, done: make(chan struct{})}
	w.processes = make([]*process, p.Processes+len(p.Joins))
	w.ledger = newLedger(&w.Plan, w.rules, tracing)
	w.net = newNetwork(p.Seed, 200*time.Microsecond)
	w.makeServers()
	for k := range p.Keys {
		w.keys = append(w.keys, "k"+strconv.Itoa(k))
	}
	for i, l := range p.Limits {
		most, limits := l.most(), []limitSince{sinceThen(0, 0, l.Limit, l.Unit)}
		for _, c := range p.Changes {
			if c.Of == i {
				to := l
				to.Limit = c.To
				most = min(most, to.most())
				limits = append(limits, sinceThen(c.At, c.Within, c.To, l.Unit))
			}
		}
		w.most = append(w.most, most)
		for _, k := range w.keys {
			r := &rule{
				account: w.account(i, k), parts: float64(max(1, l.Parts)), late: l.Age,
				windowed: algorithmOf(l.Limit).Windowed(), aligned: algorithmOf(l.Limit) == algo.FixedWindow || algorithmOf(l.Limit) == algo.SlidingWindowCounter,
				limits: limits, places: algorithmOf(l.Limit) == algo.LeakyBucketShaping,
			}
			if algorithmOf(l.Limit) == algo.FixedWindow {
				r.window = func(now int64) int64 { return endOf(l.Unit, l.Zone, l.Rate().Per, now) }
			}
			for _, name := range w.inRedis(i, k) {
				w.rules[name] = r
			}
			w.rules[r.account] = r
		}
	}
	if p.Host.Limit > 0 {
		w.api = newAPI(w)
	}
	w.rushing = w.rushes()
	for _, r := range w.rushing {
		w.ledger.stretches = append(w.ledger.stretches, [2]time.Duration{max(0, r.from), min(max(0, r.from+rushBefore), p.Life)}, [2]time.Duration{max(0, r.from), min(r.to, p.Life)})
	}
	for i := range p.Processes {
		w.processes[i] = w.start(i)
	}
	counts := map[string]int{}
	var wg sync.WaitGroup
	for i, f := range p.Faults {
		counts[f.Kind.String()]++
		from, to := f.At-time.Second, f.At+f.For+15*time.Second
		w.ledger.stretches = append(w.ledger.stretches, [2]time.Duration{max(0, from), min(to, p.Life)})
		wg.Go(func() { w.inject(f, rand.New(rand.NewPCG(p.Seed, 1000+uint64(i)))) })
	}
	for i, at := range p.Joins {
		wg.Go(func() {
			time.Sleep(at)
			joined := w.start(p.Processes + i)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.processes[p.Processes+i] = joined
		})
	}
	for i, c := range p.Changes {
		wg.Go(func() { w.change(c, rand.New(rand.NewPCG(p.Seed, 2000+uint64(i)))) })
	}
	for _, l := range p.Leaves {
		wg.Go(func() {
			time.Sleep(l.At)
			w.processes[l.Process].leave(l.Crash)
		})
	}
	time.Sleep(p.Life)
	close(w.done)
	wg.Wait()
	for _, pr := range w.processes {
		pr.callers.Wait()
	}
	w.settled()
	for _, pr := range w.processes {
		if !pr.gone.Load() {
			pr.close()
		}
	}
	w.left()
	if w.ring != nil {
		_ = w.ring.Close()
	}
	time.Sleep(time.Minute) // in which the clients' own dials end
	if w.api != nil {
		w.api.closed()
	}
	w.ledger.finish()
	l := w.ledger
	return Report{Plan: p, Violations: l.violations, Decisions: l.decisions, Checks: l.checks, Faults: counts, Redirects: l.redirects, Simulated: time.Duration(p.Processes) * p.Life, Hash: l.hash, Trace: l.trace}
}
