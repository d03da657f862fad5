package admission

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/retry"
)

func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pace{epoch: time.Now()}
		var at time.Duration
		for range 100 {
			if d, ok := p.delay(0); d != 0 || !ok {
				t.Fatalf("paced by %v before any 429", d)
			}
			at = p.start()
			time.Sleep(10 * time.Millisecond)
		}
		p.throttled(at)
		rate := p.rate
		if rate < 69 || rate > 71 {
			t.Errorf("after 100 in a second the rate is %v, want 70", rate)
		}
		for range 10 {
			p.throttled(at) // the same excess
		}
		if p.rate != rate {
			t.Errorf("cut again to %v", p.rate)
		}
		p.delay(time.Hour)
		if d, ok := p.delay(time.Hour); !ok || d < 14*time.Millisecond || d > 15*time.Millisecond {
			t.Errorf("the second waits %v", d)
		}
		if _, ok := p.delay(time.Millisecond); ok {
			t.Error("it fits in 1ms")
		}
		time.Sleep(2 * time.Second)
		p.delay(time.Hour)
		if p.rate < rate+9.9 || p.rate > rate+10.1 {
			t.Errorf("grew from %v to %v in 2s, want 10 more", rate, p.rate)
		}
		time.Sleep(time.Minute)
		p.delay(0)
		if d, ok := p.delay(0); d != 0 || !ok || p.on {
			t.Error("still paced after a minute without a 429")
		}
		// A server that refuses everything is still asked now and then.
		for range 100 {
			p.throttled(p.start())
			time.Sleep(2 * time.Second)
		}
		if p.throttled(p.start()); p.rate < adaptiveMin {
			t.Errorf("rate %v", p.rate)
		}
	})
}

// TestPaceThatDoesNotFit: a turn that comes too late ends the call at once, and one that
// fits is waited for.
func TestPaceThatDoesNotFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Defaults()
		s.Adaptive, s.MaxWait = true, time.Minute
		c, bad := New(s)
		if bad != nil {
			t.Fatal(bad)
		}
		admit := func(most time.Duration) *Stop {
			x := Begin(t.Context(), c, "h", "k")
			x.Allow.Each = most
			return x.Admit()
		}
		first := Begin(t.Context(), c, "h", "k")
		if s := first.Admit(); s != nil {
			t.Fatalf("%+v", s)
		}
		first.Send()
		first.Slow() // to 0.7 per second
		if s := admit(time.Minute); s != nil {
			t.Fatalf("the first turn: %+v", s)
		}
		start := time.Now()
		if s := admit(time.Second); s == nil || s.Reason != retry.Throttled || s.Wait <= time.Second {
			t.Errorf("a turn that does not fit: %+v", s)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("a turn that does not fit was waited for: %v", took)
		}
		if s := admit(time.Minute); s != nil {
			t.Errorf("a turn that fits: %+v", s)
		}
		if took := time.Since(start); took < time.Second || took > 2*time.Second {
			t.Errorf("a turn came after %v, want 1.4 s", took)
		}
	})
}

// TestPaceGrowsAndEnds: by a twentieth of the rate at the last cut in each second, of a slow host by that of a
// request in two seconds, until it is twice that rate; a cut begins from what has grown until then.
func TestPaceGrowsAndEnds(t *testing.T) {
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }
	for cutAt, perSecond := range map[float64]float64{100: 5, 1: 0.05, 0.5: 0.025, 0.1: 0.025} {
		synctest.Test(t, func(t *testing.T) {
			least := max(0.5, cutAt)
			p := &pace{epoch: time.Now(), on: true, cutAt: cutAt, rate: 0.7 * least}
			time.Sleep(10 * time.Second)
			p.delay(0)
			if want := 0.7*least + 10*perSecond; !p.on || !near(p.rate, want) {
				t.Errorf("cut at %v: %v after 10 s, want %v", cutAt, p.rate, want)
			}
			time.Sleep(15 * time.Second) // not 26 yet
			if p.delay(0); !p.on {
				t.Errorf("cut at %v: not paced any more after 25 s", cutAt)
			}
			grown := p.rate
			time.Sleep(500 * time.Millisecond)
			for range 1000 {
				p.start()
			}
			p.throttled(time.Since(p.epoch))
			if grown += perSecond / 2; !near(p.cutAt, grown) || !near(p.rate, max(0.5, 0.7*grown)) {
				t.Errorf("cut at %v: cut to %v from %v, want from %v", cutAt, p.rate, p.cutAt, grown)
			}
			time.Sleep(27 * time.Second)
			if d, ok := p.delay(0); p.on || d != 0 || !ok {
				t.Errorf("cut at %v: still paced after 27 s", cutAt)
			}
		})
	}
}
