package algo

import (
	"math"
	"testing"
	"time"
)

func TestUnits(t *testing.T) {
	for us, want := range map[int64]time.Duration{0: 0, 1: time.Microsecond, -3: -3 * time.Microsecond, math.MaxInt64: math.MaxInt64 / 1000 * 1000, math.MaxInt64 / 1000: math.MaxInt64 / 1000 * 1000} {
		if got := Duration(us); got != want {
			t.Errorf("Duration(%d) = %v, want %v", us, got, want)
		}
	}
	for d, want := range map[time.Duration]int64{0: 0, 1: 1, time.Microsecond: 1, time.Microsecond + 1: 2, 2*time.Microsecond - 1: 2, time.Second: 1_000_000} {
		if got := Micros(d); got != want {
			t.Errorf("Micros(%v) = %d, want %d", d, got, want)
		}
	}
	const most = 1 << 62 / 1000
	for us, want := range map[int64]string{0: "0s", 1_500_000: "1.5s", -1_500_000: "-1.5s", most: time.Duration(most * 1000).String(), -most: time.Duration(-most * 1000).String(),
		most + 1: "4611686018427388µs", -most - 1: "-4611686018427388µs"} {
		if got := micros(us); got != want {
			t.Errorf("micros(%d) = %s, want %s", us, got, want)
		}
	}
	third := 1.0 / 3
	for x, want := range map[float64]int64{0: 0, 2: 2, 2.1: 3, 2 + 1e-10: 2, 2 + 1e-8: 3, 3 / third: 9, 1e6 + 1e-7: 1_000_000, 1e12 + 0.1: 1_000_000_000_000, 1e12 + 2: 1_000_000_000_002} {
		if got := ceilShare(x); got != want {
			t.Errorf("ceilShare(%v) = %d, want %d", x, got, want)
		}
	}
}

// TestStepAll: all of several limits are charged, or none; a decision says what its own
// limit has.
func TestStepAll(t *testing.T) {
	p := Params{Kind: FixedWindow, Cap: 10, Num: 1, Den: 3600 * sec}
	q := Params{Kind: SlidingWindowLog, Cap: 5, Num: 1, Den: 3600 * sec}
	var a, b State
	if out, all := StepAll([]Ask{{p, &a, 3}, {q, &b, 3}}, t0); !all || len(out) != 2 || !out[0].Allowed || out[0].Remaining != 7 || !out[1].Allowed || out[1].Remaining != 2 || a.V != 3 || b.V != 3 || len(b.Log) != 1 {
		t.Errorf("%+v, %v, %+v, %+v", out, all, a, b)
	}
	for _, asks := range [][]Ask{{{p, &a, 4}, {q, &b, 3}}, {{q, &b, 3}, {p, &a, 4}}} {
		out, all := StepAll(asks, t0)
		if all || a.V != 3 || b.V != 3 || len(b.Log) != 1 {
			t.Errorf("%+v, %v, %+v, %+v", out, all, a, b)
		}
		for i, d := range out {
			if is := asks[i].Params.Kind == FixedWindow; d.Allowed != is || is && d.Remaining != 7 || !is && (d.Remaining != 2 || d.RetryAfter == 0) || d.ResetAfter == 0 {
				t.Errorf("%v: %+v", asks[i].Params.Kind, d)
			}
		}
	}
	shaping := Params{Kind: LeakyBucketShaping, Cap: 5, Num: 1, Den: sec}
	var s State
	Step(shaping, &s, t0, 2)
	if out, all := StepAll([]Ask{{shaping, &s, 1}, {p, &a, 9}}, t0); all || out[0].Delay != 0 || !out[0].Allowed {
		t.Errorf("a delay of what does not start: %+v, %v", out, all)
	}
}

// TestRefund: what was taken just now is there again; of the log the newest units go first,
// and those that have left the window stay out of it.
func TestRefund(t *testing.T) {
	for _, kind := range Kinds {
		p := params(t, Limit{Kind: kind, N: 10, Per: 3600 * sec, Burst: 10})
		var s State
		Step(p, &s, t0, 8)
		want := int64(5)
		if kind == LeakyBucketShaping {
			want = 0
		}
		if got := Refund(p, &s, t0, 5); got != want || Step(p, &s, t0, 0).Remaining != 2+want {
			t.Errorf("%v: %d returned, %+v", kind, got, s)
		}
	}
	p := Params{Kind: SlidingWindowLog, Cap: 100, Num: 1, Den: 100}
	s := State{Log: []Cell{{t0 - 100, 4}, {t0 - 99, 4}, {t0 - 50, 3}, {t0, 2}}, V: 13}
	if got := Refund(p, &s, t0, 4); got != 4 || s.V != 9 || len(s.Log) != 3 || s.Log[2] != (Cell{t0 - 50, 1}) {
		t.Errorf("%d returned, %+v", got, s)
	}
	if got := Refund(p, &s, t0, 1); got != 1 || len(s.Log) != 2 || s.V != 8 {
		t.Errorf("%d returned, %+v", got, s)
	}
	if got := Refund(p, &s, t0, 0); got != 0 || s.V != 8 {
		t.Errorf("%d returned of none", got)
	}
	if got := Refund(p, &s, t0, 50); got != 4 || s.V != 4 || len(s.Log) != 1 || s.Log[0] != (Cell{t0 - 100, 4}) {
		t.Errorf("%d returned, %+v", got, s)
	}
}

// TestGiveBackWindows: the units of a window return while it counts.
func TestGiveBackWindows(t *testing.T) {
	const w = 3600 * sec
	fixed, counter := Params{Kind: FixedWindow, Cap: 10, Num: 1, Den: w}, Params{Kind: SlidingWindowCounter, Cap: 10, Num: 1, Den: w}
	start := t0 - t0%w
	for _, c := range []struct {
		p         Params
		s         State
		now, at   int64
		want      int64
		v, before int64
	}{
		{fixed, State{At: start + w, V: 8, Birth: start}, start + w - 1, start + 5, 3, 5, 0},
		{fixed, State{At: start + w, V: 2, Birth: start}, start + 9, start + 5, 2, 0, 0},
		{fixed, State{At: start + w, V: 8, Birth: start}, start + w, start + 5, 0, 8, 0},
		{fixed, State{At: start + 2*w, V: 8, W: 8, Birth: start}, start + w + 9, start + 5, 0, 8, 8},
		{counter, State{At: start + w, V: 8, W: 7, Birth: start}, start + 9, start + 5, 3, 5, 7},
		{counter, State{At: start + w, V: 8, W: 7, Birth: start}, start + 2*w - 1, start + 5, 3, 5, 7},
		{counter, State{At: start + 2*w, V: 8, W: 7, Birth: start}, start + w + 9, start + 5, 3, 8, 4},
		{counter, State{At: start + 2*w, V: 8, W: 7, Birth: start}, start + 2*w - 1, start + 5, 3, 8, 4},
		{counter, State{At: start + 2*w, V: 8, W: 7, Birth: start}, start + 2*w, start + 5, 0, 8, 7},
		{counter, State{At: start + 3*w, V: 8, W: 7, Birth: start}, start + 2*w - 1, start + 5, 0, 8, 7},
		{counter, State{At: start + w, V: 8, W: 7, Birth: start}, start + 9, start - 1 + w*0, 0, 8, 7}, // before it was born
	} {
		s := c.s
		if got := GiveBack(c.p, &s, c.now, c.at, 3, 3); got != c.want || s.V != c.v || s.W != c.before {
			t.Errorf("%v, of %+v at %d + %d: %d returned, %+v", c.p.Kind, c.s, start, c.now-start, got, s)
		}
	}
	// What is given back forgets a block that is over; nothing that is given back does not.
	s := State{At: start + w, V: 8, Birth: start, Until: start + 6, Length: 1}
	if GiveBack(fixed, &s, start+9, start+5, 3, 0); s.Until == 0 {
		t.Error("a give-back of nothing wrote")
	}
	if GiveBack(fixed, &s, start+9, start+5, 3, 3); s.Until != 0 || s.Length != 0 {
		t.Errorf("a block that is over stays: %+v", s)
	}
}

// TestGiveBackToALog: units are found by the time at which they were taken.
func TestGiveBackToALog(t *testing.T) {
	p := Params{Kind: SlidingWindowLog, Cap: 100, Num: 1, Den: 100}
	s := State{Log: []Cell{{t0 - 100, 4}, {t0 - 99, 4}, {t0 - 50, 3}, {t0, 2}}, V: 13}
	for _, c := range []struct{ at, n, want, v int64 }{
		{t0 - 100, 1, 0, 13}, {t0 - 99, 1, 1, 12}, {t0 - 60, 1, 0, 12}, {t0 - 50, 9, 3, 9}, {t0 - 50, 1, 0, 9}, {t0, 1, 1, 8},
	} {
		if got := GiveBack(p, &s, t0, c.at, c.n, c.n); got != c.want || s.V != c.v {
			t.Errorf("%d of %d: %d, %+v", c.n, c.at-t0, got, s)
		}
	}
	if len(s.Log) != 3 || s.Log[2] != (Cell{t0, 1}) {
		t.Errorf("%+v", s.Log)
	}
}

// TestForgive: a debt is forgiven in the window in which it was made, and of a bucket what
// has not drained since.
func TestForgive(t *testing.T) {
	for _, kind := range Kinds {
		p := params(t, Limit{Kind: kind, N: 10, Per: 3600 * sec, Burst: 10})
		var s State
		start := t0 - t0%(3600*sec)
		Owe(p, &s, start, 8, 0)
		Forgive(p, &s, start, start, 8, 3)
		if got := owedUnits(p, &s, start); got != 5 {
			t.Errorf("%v: %d owed of 8 less 3", kind, got)
		}
		Forgive(p, &s, start, start, 8, 50)
		if got := owedUnits(p, &s, start); got != 0 {
			t.Errorf("%v: %d owed of nothing", kind, got)
		}
		Owe(p, &s, start, 8, 0)
		if p.Kind.Windowed() {
			Forgive(p, &s, start+2*3600*sec, start, 8, 8)
			if got := owedUnits(p, &s, start); got != 8 {
				t.Errorf("%v: %d owed in that window, forgiven later", kind, got)
			}
			continue
		}
		// After half an hour 5 of the 8 have drained: 3 are left, and all of them are forgiven.
		Forgive(p, &s, start+1800*sec, start, 8, 8)
		if got := owedUnits(p, &s, start+1800*sec); got != 0 {
			t.Errorf("%v: %d owed", kind, got)
		}
		// Of 4 that were taken, nothing is left then.
		s = State{}
		Owe(p, &s, start, 4, 0)
		Owe(p, &s, start+1800*sec, 4, 0)
		Forgive(p, &s, start+1800*sec, start, 4, 4)
		if got := owedUnits(p, &s, start+1800*sec); got != 4 {
			t.Errorf("%v: %d owed of what was taken later", kind, got)
		}
		// Another period: whole units carry over, rounded up.
		faster := params(t, Limit{Kind: kind, N: 10, Per: 1800 * sec, Burst: 10})
		if got := owedUnits(faster, &s, start+1800*sec); got != 4 {
			t.Errorf("%v: %d owed at another rate", kind, got)
		}
	}
}

// TestBlockAgain: a longer block lengthens, a shorter one changes nothing, and a clock that
// stepped back does not lengthen.
func TestBlockAgain(t *testing.T) {
	var s State
	for _, c := range []struct{ now, d, left, until, length int64 }{
		{t0, 10, 10, t0 + 10, 10},
		{t0 + 1, 9, 9, t0 + 10, 10},
		{t0 + 1, 8, 9, t0 + 10, 10},
		{t0 + 1, 20, 20, t0 + 21, 20},
		{t0 - 50, 1, 20, t0 - 30, 20}, // the clock stepped back
		{t0 - 40, 1, 10, t0 - 30, 20},
		{t0 - 29, 1, 1, t0 - 28, 1},
	} {
		if left := Block(&s, c.now, c.d); left != c.left || s.Until != c.until || s.Length != c.length {
			t.Errorf("%+v: %d left, %+v", c, left, s)
		}
	}
}
