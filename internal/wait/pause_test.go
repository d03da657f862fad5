package wait_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/wait"
)

// TestPauseInPlaceOfRedis: a line asks again after a second at the latest, spread over no more
// than that.
func TestPauseInPlaceOfRedis(t *testing.T) {
	for _, c := range []struct{ after, over, wantAfter, wantOver time.Duration }{
		{time.Minute, time.Minute, time.Second, 0},
		{300 * ms, time.Minute, 300 * ms, 700 * ms},
		{300 * ms, 200 * ms, 300 * ms, 200 * ms},
	} {
		a := wait.Answer{After: c.after, Over: c.over}
		if a.InPlaceOfRedis(); a.After != c.wantAfter || a.Over != c.wantOver {
			t.Errorf("%v over %v: %v over %v", c.after, c.over, a.After, a.Over)
		}
	}
}

// TestLeavingIsSpread: at the end of a pause for many, the waiters of a line leave evenly over
// the time that the answer says, the first one by its deadline.
func TestLeavingIsSpread(t *testing.T) {
	for _, c := range []struct {
		most  time.Duration // that the first one can wait
		first time.Duration // by when it leaves at the latest
	}{
		{most: time.Hour, first: 110 * ms},
		{most: 103 * ms, first: 104 * ms},
		{most: 90 * ms, first: 110 * ms}, // it is late anyway
	} {
		latest := time.Duration(0)
		for range 20 {
			var gone []time.Duration
			synctest.Test(t, func(t *testing.T) {
				s := &stage{start: time.Now()}
				var all sync.WaitGroup
				for i := range 10 {
					a := &actor{name: fmt.Sprint(i), n: 1, on: s, answers: []wait.Answer{goes}}
					if i == 0 {
						a.answers = []wait.Answer{{After: 99 * ms, Over: 100 * ms, Most: c.most}, goes}
					}
					all.Go(func() {
						if err := s.lines.Wait("k", 1, false, a); err != nil {
							t.Error(err)
						}
						s.mu.Lock()
						defer s.mu.Unlock()
						gone = append(gone, time.Since(s.start)-ms) // its last answer
					})
					time.Sleep(2 * ms)
				}
				all.Wait()
			})
			if gone[0] < 100*ms || gone[0] > c.first {
				t.Errorf("most %v: the first leaves after %v", c.most, gone[0])
			}
			latest = max(latest, gone[0])
			if last := gone[len(gone)-1]; last < 190*ms || last > 210*ms+10*ms {
				t.Errorf("most %v: the last leaves after %v", c.most, last)
			}
			for i := 1; i < len(gone); i++ {
				if d := gone[i] - gone[i-1]; d < 8*ms || d > 13*ms {
					t.Errorf("most %v: %v", c.most, gone)
				}
			}
		}
		if latest < 101*ms { // by chance once in 10^9
			t.Errorf("most %v: the first always leaves at once, after %v at the latest", c.most, latest)
		}
	}
}
