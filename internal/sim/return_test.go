//go:build !race

package sim

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/limiter"
)

// ask lets each process of some ask for twice its part of a limit of rate per second, and
// returns what was admitted of each in every second.
func (l *lines) ask(t *testing.T, rate int, life time.Duration, of ...int) (admitted [][]int) {
	began := time.Now()
	seconds := int(life / time.Second)
	admitted = make([][]int, len(l.limiters))
	var wg sync.WaitGroup
	for _, i := range of {
		admitted[i] = make([]int, seconds)
		wg.Go(func() {
			pause := time.Duration(len(of)) * time.Second / time.Duration(2*rate)
			time.Sleep(time.Duration(i) * pause / time.Duration(len(of)))
			for {
				at := int(time.Since(began) / time.Second)
				if at >= seconds {
					return
				}
				res, err := l.limiters[i].Allow(t.Context(), "k")
				if err != nil {
					t.Error(err)
					return
				}
				if res.Allowed {
					admitted[i][at]++
				}
				time.Sleep(pause)
			}
		})
	}
	wg.Wait()
	return admitted
}

// perSecond is what all processes admitted in each second.
func perSecond(admitted [][]int) []int {
	all := make([]int, 0)
	for _, of := range admitted {
		for s, n := range of {
			if s == len(all) {
				all = append(all, 0)
			}
			all[s] += n
		}
	}
	return all
}

// outage loses Redis for 20 s, after a time in which all processes have learnt what they are
// granted, and returns what was admitted in each of the ten seconds after, by process. The
// last of the processes do not ask any more since Redis was lost.
func (l *lines) outage(t *testing.T, rate int, learn time.Duration, dead int) [][]int {
	all := make([]int, len(l.limiters))
	for i := range all {
		all[i] = i
	}
	l.ask(t, rate, learn, all...)
	l.lose(true)
	alive := all[:len(all)-dead]
	l.ask(t, rate, 20*time.Second, alive...)
	l.lose(false)
	return l.ask(t, rate, 10*time.Second, alive...)
}

// lose takes all servers down, or brings them back.
func (l *lines) lose(down bool) {
	for _, srv := range l.servers {
		srv.set(func(h *Health) { h.Down = down })
		if down {
			srv.crash()
		}
	}
}

// TestReturnIsGentle: in each of the ten seconds after Redis is back a fleet admits at most
// 1.05 times the limit and uses at least 0.90 of it, although its breakers close seconds
// apart. With a process that died in the outage all return seven seconds after Redis at the
// latest, and what it could have used is not used until then. Each algorithm is tried with each number
// of processes, and there with one burst of three; with HOLDFAST_LONG=1 with all of them.
func TestReturnIsGentle(t *testing.T) {
	// By processes, for GCRA, token buckets and leaky buckets of both kinds: those of 20 processes come
	// closest to either bound.
	chosen := map[int][4]int{4: {100, 40, 200, 100}, 8: {200, 100}, 20: {40, 200}}
	all := whole() || quick() || testing.Short() // the latter two leave out others
	test := func(limit limiter.Limit, processes, dead int, least float64) {
		if testing.Short() && (processes > 4 || limit.Burst() == 100) || quick() && limit.Burst() != 40 {
			return
		}
		t.Run(fmt.Sprintf("%v/%d/%d", limit, processes, dead), func(t *testing.T) {
			learn, rate := time.Minute, limit.Rate().N
			switch limit.Algorithm() {
			case limiter.FixedWindow(limit.Rate()).Algorithm(), limiter.SlidingWindowCounter(limit.Rate()).Algorithm():
				learn = 5 * time.Minute // what is granted at the begin of an aligned window is chance
			}
			standing(t, 1, processes, limit, func(int) time.Duration { return 0 }, func(t *testing.T, l *lines) {
				got := perSecond(l.outage(t, rate, learn, dead))
				t.Log(got)
				for s, n := range got {
					if s > 7 {
						least = 0.9
					}
					if n > rate*105/100 || float64(n) < float64(rate)*least {
						t.Errorf("%d of %d in second %d", n, rate, s)
					}
				}
			})
		})
	}
	for _, processes := range []int{4, 8, 20} {
		of := limiter.PerSecond(400)
		test(limiter.SlidingWindowLog(of), processes, 0, 0.9)
		aligned := of
		if processes < 20 {
			aligned = limiter.PerSecond(200) // what each is granted takes long to learn
		}
		test(limiter.FixedWindow(aligned), processes, 0, 0.9)
		test(limiter.SlidingWindowCounter(aligned), processes, 0, 0.9)
		for _, burst := range []int{40, 100, 200} {
			if processes == 20 && burst == 100 {
				continue
			}
			limits := []limiter.Limit{limiter.GCRA(of, burst), limiter.TokenBucket(of, burst)}
			if processes == 4 { // they are decided like GCRA
				limits = append(limits, limiter.LeakyBucket(of, burst), limiter.LeakyBucketShaping(of, burst))
			}
			for i, limit := range limits {
				if all || burst == chosen[processes][i] {
					test(limit, processes, 0, 0.9)
				}
			}
		}
	}
	test(limiter.GCRA(limiter.PerSecond(400), 100), 8, 1, 0.75)
}

// TestReturnTakesNothingFromClaims: until all are back, a fleet admits what it did in the outage, and then the limit,
// whatever the delays of the network. That may be less than the limit: of a burst of 40 units each of 20 processes claims
// one or two, rounded down.
func TestReturnTakesNothingFromClaims(t *testing.T) {
	long(t)
	const rate, processes = 400, 20
	for seed := range uint64(3) {
		standing(t, seed, processes, limiter.GCRA(limiter.PerSecond(rate), 40), func(int) time.Duration { return 0 }, func(t *testing.T, l *lines) {
			all := make([]int, processes)
			for i := range all {
				all[i] = i
			}
			l.ask(t, rate, time.Minute, all...)
			l.lose(true)
			away := perSecond(l.ask(t, rate, 20*time.Second, all...))[1:] // in the first one Redis is noticed to be away
			l.lose(false)
			got := perSecond(l.ask(t, rate, 10*time.Second, all...))
			t.Log(away, got)
			if least := slices.Min(away) - rate/100; slices.Min(got) < least || slices.Min(got[7:]) < rate*98/100 || slices.Max(got) > rate*105/100 {
				t.Errorf("seed %d: %v of %d in each second, %v in the outage", seed, got, rate, away)
			}
		})
	}
}

// TestReturnThatIsCutShort: Redis is lost again while some of the processes are back and wait
// for the others. Their wait ends with it, and begins again with the next return, so that
// that is gentle, too.
func TestReturnThatIsCutShort(t *testing.T) {
	long(t)
	for _, second := range []time.Duration{2 * time.Second, 4 * time.Second, 20 * time.Second} {
		standing(t, 1, 4, limiter.GCRA(limiter.PerSecond(400), 40), func(int) time.Duration { return 0 }, func(t *testing.T, l *lines) {
			all := []int{0, 1, 2, 3}
			l.ask(t, 400, 30*time.Second, all...)
			l.lose(true)
			l.ask(t, 400, 20*time.Second, all...)
			l.lose(false)
			l.ask(t, 400, 2*time.Second, all...)
			l.lose(true)
			l.ask(t, 400, second, all...)
			l.lose(false)
			got := perSecond(l.ask(t, 400, 10*time.Second, all...))
			t.Log(got)
			// A burst beside the limit, as Redis may have refilled in between.
			if n := sum(got); n > 10*400+40 || slices.Min(got) < 360 {
				t.Errorf("after another %v: %d of 4000 in 10 s: %v", second, n, got)
			}
		})
	}
}

// TestPartitionedProcessReturns: a process that was cut off alone does not wait for others,
// who were not, for longer than a heartbeat.
func TestPartitionedProcessReturns(t *testing.T) {
	standing(t, 1, 4, limiter.GCRA(limiter.PerSecond(400), 100), func(int) time.Duration { return 0 }, func(t *testing.T, l *lines) {
		all := []int{0, 1, 2, 3}
		l.ask(t, 400, 10*time.Second, all...)
		l.net.set("p3", l.srv.address(), func(p *Path) { p.Refused = true })
		l.ask(t, 400, 20*time.Second, all...)
		l.net.set("p3", l.srv.address(), func(p *Path) { p.Refused = false })
		before := l.limiters[3].Health().Decisions[limiter.SourceLocal]
		l.ask(t, 400, 15*time.Second, all...)
		// Its breaker closes within 5 s, and others send a heartbeat every 2 s.
		if n := l.limiters[3].Health().Decisions[limiter.SourceLocal] - before; n > 7500/5 {
			t.Errorf("%d decisions were local", n)
		}
	})
}

// TestReturnToAClusterIsGentle is TestReturnIsGentle for a key on a server of a cluster on which the
// heartbeat that counts the fleet is not.
func TestReturnToAClusterIsGentle(t *testing.T) {
	long(t)
	const rate = 400
	for _, burst := range []int{40, 100} {
		standingOn(t, Cluster, 1, 4, limiter.GCRA(limiter.PerSecond(rate), burst), func(int) time.Duration { return 0 }, func(t *testing.T, l *lines) {
			if l.srv.cluster.of("{k}") == l.srv.cluster.of("holdfast:v1:peers") {
				t.Fatal("the key is where the heartbeat is")
			}
			got := perSecond(l.outage(t, rate, time.Minute, 0))
			t.Log(got)
			if slices.Max(got) > rate*105/100 || slices.Min(got) < rate*9/10 {
				t.Errorf("burst %d: %v of %d in each second", burst, got, rate)
			}
		})
	}
}

// TestProcessesLeaveEachServer: a process is on the list of each server that it uses until it closes.
func TestProcessesLeaveEachServer(t *testing.T) {
	standingOn(t, Cluster, 1, 3, limiter.GCRA(limiter.PerSecond(400), 40), func(int) time.Duration { return 0 }, func(t *testing.T, l *lines) {
		lists := func() (n int) {
			for _, srv := range l.servers {
				for i := range 5 {
					srv.mu.Lock()
					n += int(one(srv.get("holdfast:v1:peers"+[]string{"", ":1", ":2", ":3", ":4"}[i]) != nil))
					srv.mu.Unlock()
				}
			}
			return n
		}
		l.ask(t, 400, time.Second, 0, 1, 2)
		if n := lists(); n != 3 { // "other" and "k" are on two servers, and those that count the fleet on the third
			t.Errorf("%d lists on 3 servers", n)
		}
		for _, lim := range l.limiters {
			if err := lim.Close(); err != nil {
				t.Error(err)
			}
		}
		if n := lists(); n != 0 {
			t.Errorf("%d lists after all have left", n)
		}
	})
}
