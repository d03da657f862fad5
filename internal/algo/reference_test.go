package algo

import (
	"reflect"
	"testing"
)

const sec = 1_000_000

// t0 is a second's start in 2025, so that windows of a second begin there.
const t0 = int64(1_760_000_000 * sec)

func params(t testing.TB, l Limit) Params {
	t.Helper()
	p, err := l.Params()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// ask sends requests of cost 1 at one time and counts those admitted.
func ask(p Params, s *State, now int64, requests int) (admitted int) {
	for range requests {
		if Step(p, s, now, 1).Allowed {
			admitted++
		}
	}
	return admitted
}

func TestReferenceBoundaryBurst(t *testing.T) {
	for kind, want := range map[Kind]int{FixedWindow: 20, SlidingWindowLog: 10, SlidingWindowCounter: 10} {
		p := params(t, Limit{Kind: kind, N: 10, Per: sec})
		var s State
		got := ask(p, &s, t0-1000, 10) + ask(p, &s, t0, 10)
		if got != want {
			t.Errorf("%v: 10 requests on both sides of a border: %d admitted, want %d", kind, got, want)
		}
	}
}

func TestReferenceBuckets(t *testing.T) {
	for _, kind := range []Kind{TokenBucket, GCRA} {
		p := params(t, Limit{Kind: kind, N: 5, Per: sec, Burst: 10})
		var s State
		if got := ask(p, &s, t0, 15); got != 10 {
			t.Errorf("%v: %d of 15 admitted, want 10", kind, got)
		}
		if got := ask(p, &s, t0+sec, 10); got != 5 {
			t.Errorf("%v: one second later %d of 10 admitted, want 5", kind, got)
		}
	}
	for _, kind := range []Kind{LeakyBucket, LeakyBucketShaping} {
		p := params(t, Limit{Kind: kind, N: 1, Per: sec, Burst: 5})
		var s State
		if got := ask(p, &s, t0, 10); got != 5 {
			t.Errorf("%v: %d of 10 admitted, want 5", kind, got)
		}
		if got := ask(p, &s, t0+3*sec, 10); got != 3 {
			t.Errorf("%v: three seconds later %d of 10 admitted, want 3", kind, got)
		}
	}
}

func TestReferenceCounterEstimate(t *testing.T) {
	const minute = 60 * sec
	p := params(t, Limit{Kind: SlidingWindowCounter, N: 100, Per: minute})
	start := t0 - t0%minute
	var s State
	ask(p, &s, start-minute, 80)
	now := start + minute/4
	ask(p, &s, now, 30)
	d := Step(p, &s, now, 0)
	if d.Remaining != 10 {
		t.Errorf("prev 80, cur 30 at 25 %%: %d remaining, want 100 - 90", d.Remaining)
	}
	if !Step(p, &s, now, 1).Allowed {
		t.Error("an estimate of 90 was denied")
	}
}

func TestShapingSpacesStarts(t *testing.T) {
	p := params(t, Limit{Kind: LeakyBucketShaping, N: 10, Per: sec, Burst: 5})
	var s State
	for i := range int64(5) {
		d := Step(p, &s, t0, 1)
		if !d.Allowed || d.Delay != i*sec/10 {
			t.Errorf("request %d: %+v, want a delay of %d", i, d, i*sec/10)
		}
	}
	if d := Step(p, &s, t0, 1); d.Allowed || d.RetryAfter != sec/10 {
		t.Errorf("beyond the queue: %+v, want a retry after %d", d, sec/10)
	}
	p.MaxDelay = sec / 4
	if d := Step(p, &s, t0+sec/10, 1); d.Allowed || d.RetryAfter != 4*sec/10-sec/4 {
		t.Errorf("with a bound on the delay: %+v, want a retry after %d", d, 4*sec/10-sec/4)
	}
}

func TestBlockedAsksForTheLaterOfBothWaits(t *testing.T) {
	p := params(t, Limit{Kind: GCRA, N: 1, Per: sec, Burst: 1})
	var s State
	Step(p, &s, t0, 1)
	for _, c := range []struct{ block, want int64 }{{sec / 2, sec}, {2 * sec, 2 * sec}, {sec, 2 * sec}} {
		Block(&s, t0, c.block)
		before := s.clone()
		d := Decide(p, &s, t0, 1)
		if want := (Decision{RetryAfter: c.want, ResetAfter: c.want}); d != want {
			t.Errorf("blocked for %d: %+v, want %+v", c.block, d, want)
		}
		if !reflect.DeepEqual(s.clone(), before) {
			t.Error("a blocked request changed the state")
		}
	}
	if d := Decide(p, &s, t0+2*sec, 0); !d.Allowed || d.Remaining != 1 {
		t.Errorf("when the block is over: %+v", d)
	}
}

// TestBlockWhenTheClockStepsBack: a block lasts no longer than it was long, wherever
// the clock is.
func TestBlockWhenTheClockStepsBack(t *testing.T) {
	for _, kind := range Kinds {
		p := params(t, Limit{Kind: kind, N: 10, Per: sec, Burst: 10})
		var s State
		Block(&s, t0, 2*sec)
		if left := Block(&s, t0+sec, sec/2); left != sec {
			t.Errorf("%v: a shorter block left %d", kind, left)
		}
		now := t0 - 3600*sec
		for _, c := range []struct{ later, n, retry int64 }{{0, 0, 2 * sec}, {sec, 0, 2 * sec}, {sec, 1, 2 * sec}, {2 * sec, 1, sec}, {3 * sec, 1, 0}} {
			if d := Decide(p, &s, now+c.later, c.n); d.RetryAfter != c.retry || d.Allowed != (c.retry == 0) {
				t.Errorf("%v: %d after an hour back: %+v, want a retry after %d", kind, c.later, d, c.retry)
			}
		}
		if s.Until != 0 {
			t.Errorf("%v: what is written still has a block until %d", kind, s.Until)
		}
	}
}
