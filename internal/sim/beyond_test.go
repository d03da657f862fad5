//go:build !race

package sim

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/limiter"
)

// TestLargeCostStepsAside: in an outage a cost that is more than the process may ever use in the place of
// Redis holds nobody up, says when Redis is asked again, and is admitted when Redis is back.
func TestLargeCostStepsAside(t *testing.T) {
	standing(t, 1, 4, limiter.GCRA(limiter.PerSecond(100), 10), func(int) time.Duration { return 0 }, func(t *testing.T, l *lines) {
		all := []int{0, 1, 2, 3}
		l.ask(t, 100, 20*time.Second, all...)
		l.lose(true)
		l.ask(t, 100, 2*time.Second, all...)
		lim := l.limiters[0]
		res, err := lim.AllowN(t.Context(), "k", 5)
		if err != nil || res.Allowed || res.RetryAfter > 5*time.Second {
			t.Errorf("%+v, %v", res, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		large, small := 0, 0
		wait := func(n int, of *int) {
			wg.Go(func() {
				for {
					if _, err := lim.Wait(ctx, "k", limiter.Cost(n)); err != nil {
						return
					}
					l.mu.Lock()
					*of++
					l.mu.Unlock()
				}
			})
		}
		wait(5, &large)
		wait(5, &large)
		time.Sleep(100 * time.Millisecond)
		for range 10 {
			wait(1, &small)
		}
		before := l.decisions[0]
		time.Sleep(30 * time.Second)
		// What one process claims of 100 a second; 250 is half of what it has without large ones.
		if asked := l.decisions[0] - before; large != 0 || small < 500 || asked > 3*small+120 {
			t.Errorf("%d large and %d small ones were admitted in an outage, by %d decisions", large, small, asked)
		}
		short, end := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer end()
		if _, err := lim.Wait(short, "k", limiter.Cost(5)); err == nil {
			t.Error("a large cost was admitted")
		}
		l.lose(false)
		time.Sleep(20 * time.Second)
		cancel()
		wg.Wait()
		if large < 10 {
			t.Errorf("%d large ones were admitted after the outage", large)
		}
	})
}

// TestCostsOfPartsInLine: callers of a Multi with a cost for each part are served by their arrival, and
// by few decisions.
func TestCostsOfPartsInLine(t *testing.T) {
	for _, costs := range [][]limiter.CallOption{{limiter.Cost(1000)}, {limiter.Cost(1), limiter.Cost(1000)}} {
		standing(t, 1, 1, limiter.FixedWindow(limiter.PerSecond(10_000)), func(int) time.Duration { return 0 }, func(t *testing.T, l *lines) {
			second, err := limiter.New(l.clients[0], limiter.FixedWindow(limiter.PerSecond(10_000)), limiter.WithPrefix("tokens"))
			if err != nil {
				t.Fatal(err)
			}
			defer second.Close()
			m, err := limiter.NewMulti(limiter.Part{Name: "requests", Limiter: l.limiters[0]}, limiter.Part{Name: "tokens", Limiter: second})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			var order []int
			for i := range 100 {
				wg.Go(func() {
					time.Sleep(time.Duration(i) * time.Millisecond)
					if _, err := m.Wait(ctx, "k", costs...); err != nil {
						t.Error(err)
					}
					l.mu.Lock()
					order = append(order, i)
					l.mu.Unlock()
				})
			}
			wg.Wait()
			cancel()
			for at, i := range order { // those of one answer, and those who find no line, leave in any order
				if at > 10 && len(costs) > 1 && at != i || at-i > 10 || i-at > 10 {
					t.Errorf("caller %d is number %d to be admitted", i, at)
				}
			}
			if n := l.decisions[0]; n > 250 {
				t.Errorf("costs %v: %d decisions for %d", costs, n, len(order))
			}
		})
	}
}

// TestChangesElsewhereEndAWait: what another process changes, or the limiter of a part of a Multi, is
// noticed within ten seconds by those who wait, and by those who come after.
func TestChangesElsewhereEndAWait(t *testing.T) {
	day := limiter.FixedWindow(limiter.Per(10, 24*time.Hour))
	for _, change := range []string{"reset", "raise", "multi"} {
		standing(t, 1, 2, day, func(int) time.Duration { return 0 }, func(t *testing.T, l *lines) {
			lim, other := l.limiters[0], l.limiters[1]
			m, err := limiter.NewMulti(limiter.Part{Name: "a", Limiter: lim})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := lim.AllowN(t.Context(), "k", 10); err != nil {
				t.Fatal(err)
			}
			wait := func(ctx context.Context) (err error) {
				if change == "multi" {
					_, err = m.Wait(ctx, "k")
				} else {
					_, err = lim.Wait(ctx, "k")
				}
				return err
			}
			waited := make(chan time.Duration, 1)
			start := time.Now()
			go func() {
				if err := wait(t.Context()); err != nil {
					t.Error(err)
				}
				waited <- time.Since(start)
			}()
			time.Sleep(time.Minute)
			short, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			if err := wait(short); err == nil {
				t.Error("a newcomer was admitted before")
			} else if time.Since(start) != time.Minute {
				t.Errorf("a newcomer waited for %v to hear that it is too late", time.Since(start)-time.Minute)
			}
			switch change {
			case "reset":
				err = other.Reset(t.Context(), "k")
			case "raise":
				err = lim.SetLimit(limiter.FixedWindow(limiter.Per(1000, 24*time.Hour)))
			case "multi":
				err = lim.Reset(t.Context(), "k")
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := <-waited; d > time.Minute+11*time.Second {
				t.Errorf("%s: waited %v", change, d)
			}
			if err := wait(short); err != nil || time.Since(start) > 72*time.Second {
				t.Errorf("%s: a newcomer after it: %v", change, err)
			}
		})
	}
}
