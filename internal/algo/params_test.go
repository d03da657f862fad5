package algo

import (
	"fmt"
	"testing"
)

// of returns the parameters of a limit.
func of(t *testing.T, l Limit) Params {
	t.Helper()
	p, err := l.Params()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestLeast: no fewer windows, and no less of a refill, can bring so many units.
func TestLeast(t *testing.T) {
	for _, c := range []struct {
		kind    Kind
		n, want int64
	}{
		{FixedWindow, 0, 0}, {FixedWindow, 10, 0}, {FixedWindow, 20, 0}, {FixedWindow, 21, 60 * sec}, {FixedWindow, 31, 120 * sec},
		{SlidingWindowCounter, 20, 0}, {SlidingWindowCounter, 21, 60 * sec},
		{SlidingWindowLog, 10, 0}, {SlidingWindowLog, 11, 60 * sec}, {SlidingWindowLog, 21, 120 * sec},
		{GCRA, 10, 0}, {GCRA, 11, 6 * sec}, {TokenBucket, 20, 60 * sec}, {LeakyBucket, 12, 12 * sec}, {LeakyBucketShaping, 11, 6 * sec},
		{FixedWindow, 1e14, MaxPeriod},
	} {
		p := of(t, Limit{Kind: c.kind, N: 10, Per: 60 * sec, Burst: 10})
		if got := p.Least(c.n); got != c.want {
			t.Errorf("%v: %d units take %d µs at least, want %d", c.kind, c.n, got, c.want)
		}
	}
	p := of(t, Limit{Kind: GCRA, N: 10, Per: 60 * sec, Burst: 10})
	if p.Keep = 4; p.Least(6) != 0 || p.Least(7) != 6*sec {
		t.Errorf("with 4 kept, 6 units take %d µs and 7 take %d", p.Least(6), p.Least(7))
	}
}

// TestGrants: how long grants are remembered, and how many there can be.
func TestGrants(t *testing.T) {
	for _, c := range []struct {
		limit        Limit
		length, most float64
	}{
		{Limit{Kind: GCRA, N: 100, Per: sec, Burst: 10}, 10 * sec, 1010},   // ten seconds at least
		{Limit{Kind: GCRA, N: 10, Per: sec, Burst: 10}, 30 * sec, 310},     // thirty bursts
		{Limit{Kind: GCRA, N: 1, Per: sec, Burst: 100}, 600 * sec, 700},    // ten minutes at most,
		{Limit{Kind: GCRA, N: 1, Per: sec, Burst: 1000}, 1000 * sec, 2000}, // or one burst
		{Limit{Kind: FixedWindow, N: 100, Per: sec}, 60 * sec, 6200},       // of two windows
		{Limit{Kind: SlidingWindowCounter, N: 100, Per: 60 * sec}, 600 * sec, 1200},
		{Limit{Kind: SlidingWindowLog, N: 100, Per: sec}, 30 * sec, 3100},
	} {
		length, most := of(t, c.limit).Grants()
		if fmt.Sprintf("%.3f %.3f", length, most) != fmt.Sprintf("%.3f %.3f", c.length, c.most) {
			t.Errorf("%+v: grants are remembered for %v µs, at most %v; want %v and %v", c.limit, length, most, c.length, c.most)
		}
	}
}

// TestChargeOfNothing: a peek charges nothing, and says of a queue what may still wait in it.
func TestChargeOfNothing(t *testing.T) {
	for _, kind := range Kinds {
		p := of(t, Limit{Kind: kind, N: 10, Per: 60 * sec, Burst: 10})
		want := p.Most()
		if kind == LeakyBucketShaping {
			p.MaxDelay = 18 * sec
			want = p.maxQueue()
		}
		if cost, most := p.Charge(0); cost != 0 || most != want {
			t.Errorf("%v: a peek charges %d, and admits up to %d of %d", kind, cost, most, want)
		}
		if cost, most := p.Charge(-3); cost != -3 || most != p.Most() {
			t.Errorf("%v: a debt of 3 charges %d, of %d", kind, cost, most)
		}
	}
}

// TestScaleOfAWindow: the fraction that a part of a window has beyond whole units.
func TestScaleOfAWindow(t *testing.T) {
	p := of(t, Limit{Kind: FixedWindow, N: wholes, Per: 60 * sec})
	for share, want := range map[float64]int64{1.0 / wholes: 0, 0.5 / wholes: wholes / 2, (1 - 1.0/wholes) / wholes: wholes - 1} {
		q := p.Scale(share)
		if got := q.Cap*wholes + q.Frac; got != max(want, int64(share*wholes)*wholes) {
			t.Errorf("%v of %d units: %d and %d of %d parts, want %d parts", share, p.Cap, q.Cap, q.Frac, wholes, want)
		}
	}
}

// TestDebitOfACounter: a debt takes what the window has room for, with what the one before still
// counts; one of a time that counts no more changes nothing.
func TestDebitOfACounter(t *testing.T) {
	p := of(t, Limit{Kind: SlidingWindowCounter, N: 10, Per: 100})
	for _, c := range []struct{ n, age, cur, prev int64 }{
		{9, 0, 8, 4},   // 4·50/100 of the window before still count
		{9, 60, 2, 10}, // of the window before: (10 − 2)·100/50 are more than it may have
		{9, 160, 2, 4},
	} {
		s := State{At: 1100, V: 2, W: 4}
		Debit(p, &s, 1050, c.n, c.age)
		if s.V != c.cur || s.W != c.prev {
			t.Errorf("%d units of %d µs ago: %d and %d are counted, want %d and %d", c.n, c.age, s.V, s.W, c.cur, c.prev)
		}
	}
	s := State{At: 500, V: 2, W: 4}
	before := s
	if Debit(p, &s, 1050, 5, 300); s.At != before.At || s.V != before.V || s.W != before.W {
		t.Errorf("%+v became %+v", before, s)
	}
}

// TestWindowsOfACalendar: the borders beside a window, as a script gets them, are computed once for
// each window.
func TestWindowsOfACalendar(t *testing.T) {
	asked := 0
	c := &Calendar{
		Number: func(now int64) int64 { asked++; return now / 10 },
		Start:  func(n int64) int64 { return 10 * n },
		Least:  10,
	}
	for _, now := range []int64{49, 40, 49} {
		if got := c.List(now); got != "30:40:50:60" {
			t.Errorf("at %d: %s", now, got)
		}
	}
	if asked != 3 {
		t.Errorf("%d windows were computed, want 3", asked)
	}
}

// TestStepOfAFixedWindow: its state is one count, of one window.
func TestStepOfAFixedWindow(t *testing.T) {
	p := of(t, Limit{Kind: FixedWindow, N: 10, Per: 100})
	var s State
	if d := Decide(p, &s, 1050, 1); !d.Allowed || s.At != 1100 || s.V != 1 || s.W != 0 {
		t.Errorf("%+v left %+v", d, s)
	}
}
