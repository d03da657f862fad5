package algo

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestPartsOfWindows: which windows have a unit more, and when the next one of them begins, is what adding
// up the fractions window by window gives.
func TestPartsOfWindows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const den = 10
		p := Params{Kind: FixedWindow, Cap: rapid.Int64Range(0, 3).Draw(t, "cap"), Num: 1, Den: den}
		p.Frac = rapid.OneOf(rapid.SampledFrom([]int64{1 << 12, 1 << 18, 1<<18 + 1, 1 << 19, wholes / 3, wholes - 1}), rapid.Int64Range(1<<12, wholes-1)).Draw(t, "frac")
		p.Phase = rapid.OneOf(rapid.SampledFrom([]int64{0, p.Frac % wholes, wholes - p.Frac, wholes - 1}), rapid.Int64Range(0, wholes-1)).Draw(t, "phase")
		first := rapid.Int64Range(1, 3*wholes).Draw(t, "first")
		window := first + rapid.Int64Range(0, 600).Draw(t, "later")
		none := int64(0)
		if p.Cap == 0 { // the unit of the first window is used until then
			none = first + (wholes+p.Frac-1)/p.Frac
		}
		more := func(k int64) bool {
			before := k%wholes*p.Frac + p.Phase
			return k >= none && (before+p.Frac)/wholes > before/wholes
		}
		now, since := window*den+rapid.Int64Range(0, den-1).Draw(t, "now"), first*den+rapid.Int64Range(0, den-1).Draw(t, "since")
		want := p.Cap
		switch {
		case window == first:
			want = max(1, p.Cap)
		case more(window):
			want++
		}
		next := window + 1
		for !more(next) {
			next++
		}
		q, until := p.In(now, since)
		if q.Cap != want || q.Frac != 0 || q.Phase != 0 || until != next*den-now {
			t.Fatalf("window %d, first %d, of %+v: %+v, more in %d; want %d, more in %d", window, first, p, q, until, want, next*den-now)
		}
		unit := int64(0)
		if p.Cap == 0 {
			unit = (window+(wholes+p.Frac-1)/p.Frac)*den - now
		}
		if got := p.Unit(now); got != unit {
			t.Fatalf("%+v produces a unit in %d, want %d", p, got, unit)
		}
		p.Frac = 0
		if q, until := p.In(now, since); q.Cap != p.Cap || until != 0 || p.Unit(now) != 0 {
			t.Fatalf("whole units: %+v, more in %d, a unit in %d", q, until, p.Unit(now))
		}
	})
}

// weekdays are windows of 10 and 20 µs by turns.
func weekdays() *Calendar {
	return &Calendar{
		Number: func(now int64) int64 {
			n := now / 30 * 2
			if now%30 >= 10 {
				n++
			}
			return n
		},
		Start: func(n int64) int64 { return n/2*30 + n%2*10 },
		Least: 9,
	}
}

// TestPartsOfACalendar: the time until another unit is that until the begin of the window that has it; of
// a part that has it in more windows than anyone waits for, it is long.
func TestPartsOfACalendar(t *testing.T) {
	l := Limit{Kind: FixedWindow, N: 1, Per: 1, Calendar: weekdays()}
	p := of(t, l)
	if p.Den != 9 || p.Calendar != l.Calendar || p.Cap != 1 {
		t.Fatalf("%+v", p)
	}
	l.Kind = GCRA
	if _, err := l.Params(); err == nil || !strings.Contains(err.Error(), "fixed window") {
		t.Errorf("a calendar of another algorithm: %v", err)
	}
	for _, c := range []struct{ cap, frac, now, more int64 }{
		{1, wholes - 1, 3000, 10},
		{1, wholes - 1, 3010, 20},
		{1, wholes - 1, 30000, 10}, // from window 2000
		{1, wholes / 2, 3000, 10},
		{1, wholes / 2, 3015, 25},
		{0, wholes / 4, 3000, 100}, // window 200: in 207, after 204
		{1, 1048, 0, 15000},        // in window 1000
		{1, 1047, 0, 1000 * 9},
		{1, wholes / 4000, 0, 1000 * 9},
	} {
		p.Cap, p.Frac = c.cap, c.frac
		if _, more := p.In(c.now, c.now); more != c.more {
			t.Errorf("%+v: more in %d", c, more)
		}
	}
	for now := range int64(90) { // also where a window was asked for before
		start, end := p.Bounds(now)
		if n := p.Calendar.Number(now); start != p.Calendar.Start(n) || end != p.Calendar.Start(n+1) {
			t.Errorf("%d is from %d to %d", now, start, end)
		}
	}
}

// TestDeniedLeavesTheState as it was, also under another limit and where the clock stepped back a little; but that of a
// bucket drains at the rate of a faster limit from then on.
func TestDeniedLeavesTheState(t *testing.T) {
	for _, kind := range Kinds {
		p := of(t, Limit{Kind: kind, N: 10, Per: 10 * sec, Burst: 10})
		for name, q := range map[string]Params{
			"the limit":  p,
			"more units": of(t, Limit{Kind: kind, N: 12, Per: 10 * sec, Burst: 12}),
			"a burst":    of(t, Limit{Kind: kind, N: 10, Per: 10 * sec, Burst: 20}),
			"a period":   of(t, Limit{Kind: kind, N: 10, Per: 20 * sec, Burst: 10}),
		} {
			for _, used := range []int64{3, 10} {
				for _, at := range []int64{-1, 0, 1, 10 * sec, 25 * sec} {
					if used == 10 && at == -1 {
						continue // more than full
					}
					start := t0 - t0%(20*sec)
					var s State
					Step(p, &s, start, used)
					before := s.clone()
					d := Step(q, &s, start+at, q.Cap)
					if !d.Allowed && !kind.Windowed() && before.At > start+at && q.faster(&before) {
						if s.Num != q.Num || s.W != q.Den || Step(q, &s, start+at, 0).Remaining != d.Remaining {
							t.Errorf("%v, %s, %d used, at %d: %+v left %+v of %+v", kind, name, used, at, d, s, before)
						}
						continue
					}
					if !d.Allowed && !reflect.DeepEqual(s, before) {
						t.Errorf("%v, %s, %d used, at %d: %+v left %+v of %+v", kind, name, used, at, d, s, before)
					}
				}
			}
		}
	}
	// Of a bucket that is empty, whole units carry over to another limit: none.
	for _, kind := range []Kind{TokenBucket, LeakyBucket, GCRA} {
		p := of(t, Limit{Kind: kind, N: 10, Per: 10 * sec, Burst: 10})
		var s State
		Step(p, &s, t0, 10)
		before := s
		q := of(t, Limit{Kind: kind, N: 10, Per: 20 * sec, Burst: 10})
		if d := Step(q, &s, t0, 1); d.Allowed || !reflect.DeepEqual(s, before) {
			t.Errorf("%v: %+v left %+v of %+v", kind, d, s, before)
		}
	}
}

// TestBucketsFarAhead: a state of later than its bucket takes to drain, by a clock that stepped back, is that of a full one from
// now on, which who is denied writes, by whatever limit.
func TestBucketsFarAhead(t *testing.T) {
	for _, kind := range []Kind{TokenBucket, LeakyBucket, LeakyBucketShaping, GCRA} {
		p := of(t, Limit{Kind: kind, N: 1, Per: sec, Burst: 10})
		for _, s := range []State{
			{At: t0 + 1<<50, Num: 1 << 10, W: sec, Cap: 10},
			{At: t0 + 1<<43, Num: 1 << 20, W: sec, Cap: 10}, // 2^63
			{At: t0 + 1<<44, Num: 1 << 20, W: sec, Cap: 10}, // 2^64
			{At: t0 + 100*sec, Num: 1, W: sec, Cap: 10},
			{At: t0 + 100*sec, Num: 1, W: 2 * sec, Cap: 20},
			{At: t0 + 100*sec, Num: 3, W: sec, Cap: 20},
		} {
			was := s
			d := Step(p, &s, t0, 1)
			own := Params{Kind: kind, Cap: was.Cap, Num: was.Num, Den: was.W}
			if p.faster(&was) {
				own = p
				own.Cap = was.Cap
			}
			if d.Allowed || s.At != t0+own.FillTime() || s.Num != own.Num || s.W != own.Den || s.Cap != own.Cap {
				t.Errorf("%v: %+v left %+v of %+v", kind, d, s, was)
			}
			if sooner := s.clone(); Step(p, &sooner, t0+d.RetryAfter-1, 1).Allowed || !Step(p, &s, t0+d.RetryAfter, 1).Allowed {
				t.Errorf("%v: %+v was admitted sooner or not then, of %+v", kind, d, was)
			}
		}
	}
}

// TestUnitsCarryOver to another rate as whole ones.
func TestUnitsCarryOver(t *testing.T) {
	for _, kind := range []Kind{TokenBucket, LeakyBucket, LeakyBucketShaping, GCRA} {
		p := of(t, Limit{Kind: kind, N: 1, Per: sec, Burst: 10})
		q := of(t, Limit{Kind: kind, N: 3, Per: sec, Burst: 10})
		var s State
		Step(p, &s, t0, 5)
		if d := Step(q, &s, t0+sec/2, 6); d.Allowed || d.RetryAfter != 333_334 {
			t.Errorf("%v: %+v, half a unit more is used", kind, d)
		}
		// As many units of a slow limit are more than can be told, and drain at the rate of the fast one.
		slow := of(t, Limit{Kind: kind, N: 1, Per: MaxPeriod / 2, Burst: 1})
		s = State{}
		Step(of(t, Limit{Kind: kind, N: 1, Per: 1000, Burst: 1_000_000}), &s, t0, 1_000_000)
		if d := Step(slow, &s, t0, 1); d.Allowed || d.RetryAfter != 1_000_000*1000 {
			t.Errorf("%v: %+v, by a slow limit", kind, d)
		}
	}
}

// TestLongAndShortDelays: a shaping limit denies who would be delayed for longer than its longest
// delay, which may be a microsecond or longer than any queue.
func TestLongAndShortDelays(t *testing.T) {
	for _, c := range []struct {
		n, per, delay int64
		allowed       bool
		retry         int64
	}{
		{1, sec, 0, true, 0},
		{1, sec, 1, false, sec - 1},
		{1, sec, sec - 1, false, 1},
		{1, sec, sec, true, 0},
		{1 << 13, 1, 1 << 50, true, 0}, // 2^63
		{1 << 4, 1, 1 << 60, true, 0},  // 2^64
	} {
		p := of(t, Limit{Kind: LeakyBucketShaping, N: c.n, Per: c.per, Burst: 10})
		p.MaxDelay = c.delay
		var s State
		if d := Step(p, &s, t0, 1); !d.Allowed || d.Delay != 0 {
			t.Fatalf("%+v: first %+v", c, d)
		}
		cost, most := p.Charge(1)
		if room := s.At > t0 && most >= p.Den; cost != p.Den || room != c.allowed {
			t.Errorf("%+v: charges %d, at most %d", c, cost, most)
		}
		if d := Step(p, &s, t0, 1); d.Allowed != c.allowed || d.RetryAfter != c.retry {
			t.Errorf("%+v: %+v", c, d)
		}
	}
}

// TestWindowsThatEndElsewhere: a window of another length goes on until its end, in which a counter
// weighs the one before.
func TestWindowsThatEndElsewhere(t *testing.T) {
	start := t0 - t0%(70*sec)
	for kind, reset := range map[Kind]int64{FixedWindow: 6 * sec, SlidingWindowCounter: 16 * sec} {
		p := of(t, Limit{Kind: kind, N: 10, Per: 7 * sec})
		q := of(t, Limit{Kind: kind, N: 10, Per: 10 * sec})
		var s State
		Step(p, &s, start+8*sec, 3)
		if d := Step(q, &s, start+8*sec, 2); d.Remaining != 5 || d.ResetAfter != reset {
			t.Errorf("%v: %+v, want a reset in %d", kind, d, reset)
		}
	}
}

// TestDebitOfTheWindowBefore: a counter charges it with as much as leaves the estimate within the limit.
func TestDebitOfTheWindowBefore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const w, begin = 100, 1000
		limit := rapid.Int64Range(1, 20).Draw(t, "limit")
		p := Params{Kind: SlidingWindowCounter, Cap: limit, Num: 1, Den: w}
		cur, prev := rapid.Int64Range(0, limit).Draw(t, "this"), rapid.Int64Range(0, limit).Draw(t, "before")
		now := begin + rapid.Int64Range(0, w-1).Draw(t, "now")
		n := rapid.Int64Range(0, 2*limit).Draw(t, "n")
		want := prev
		for x := range n + 1 {
			if prev+x <= limit && (prev+x)*(begin+w-now) <= (limit-cur)*w {
				want = prev + x
			}
		}
		s := State{At: begin + w, V: cur, W: prev}
		d := Debit(p, &s, now, n, now-begin+1)
		if !d.Allowed || s.V != cur || s.W != want {
			t.Fatalf("%d and %d of %d, %d µs later: %d and %d after %d more, want %d", prev, cur, limit, now-begin, s.W, s.V, n, want)
		}
	})
}

// TestLimitsOfExactness of what a step adds up, by their largest values.
func TestLimitsOfExactness(t *testing.T) {
	for _, c := range []struct {
		p    Params
		want bool
	}{
		{Params{Cap: 1, Den: MaxExact / 2, Num: 1}, true},
		{Params{Cap: 1, Den: MaxExact / 2, Num: 2}, false},
		{Params{Cap: 1, Den: MaxExact/2 - 1, Num: 3}, true},
		{Params{Cap: 1, Den: MaxExact/2 + 1, Num: 1}, false},
		{Params{Cap: 1 << 40, Den: 1 << 24, Num: 1}, false},
	} {
		if got := c.p.exact(); got != c.want {
			t.Errorf("%+v: %v", c.p, got)
		}
	}
	// A refill of a year, and of a microsecond more.
	for _, c := range []struct {
		l  Limit
		ok bool
	}{
		{Limit{Kind: GCRA, N: 1, Per: MaxPeriod, Burst: 1}, true},
		{Limit{Kind: GCRA, N: 101, Per: 31312376470589, Burst: 102}, false},
	} {
		if _, err := c.l.Params(); err == nil != c.ok {
			t.Errorf("%+v: %v", c.l, err)
		}
	}
	for _, c := range []struct {
		p  Params
		ok bool
	}{
		{Params{Kind: GCRA, Cap: 4, Num: 1, Den: MaxPeriod / 4}, true},
		{Params{Kind: GCRA, Cap: 206, Num: 101, Den: 15504186407767}, false},
	} {
		if q := c.p.Scale(0.5); (q.Cap == c.p.Cap/2) != c.ok {
			t.Errorf("half of %+v is %+v", c.p, q)
		}
		if _, err := c.p.Part(0, 2); err == nil != c.ok {
			t.Errorf("one of two parts of %+v: %v", c.p, err)
		}
	}
	if _, err := (Limit{Kind: SlidingWindowLog, N: MaxLog + 1, Per: sec}).Params(); err == nil || !strings.Contains(err.Error(), fmt.Sprint("at most ", MaxLog, " ")) {
		t.Errorf("a log of too many units: %v", err)
	}
}

// TestScaleOfExtremes: the smallest part of a window is not nothing, a part of a rate that is too slow
// keeps no unit for others, and a part of the fastest rate is that part.
func TestScaleOfExtremes(t *testing.T) {
	one := of(t, Limit{Kind: FixedWindow, N: 1, Per: sec})
	if q := one.Scale(1e-9); q.Cap != 0 || q.Frac != 1 {
		t.Errorf("the smallest part: %+v", q)
	}
	p := Params{Kind: GCRA, Cap: 4, Num: 1, Den: MaxPeriod/4 + 1, Keep: 3}
	if q := p.Scale(0.5); q.Cap != 1 || q.Keep != 0 {
		t.Errorf("too slow: %+v", q)
	}
	p = of(t, Limit{Kind: GCRA, N: 18446744073710, Per: 1, Burst: 10}) // times 10^6 more than 2^64
	if q := p.Scale(0.5); q.Cap != 5 || q.Num*2 != q.Den*p.Num {
		t.Errorf("too fast: %+v", q)
	}
	p = Params{Kind: GCRA, Cap: 1024, Num: 1024, Den: 1<<34 + 1}
	if q, err := p.Part(0, 1024); err != nil || q.Cap != 1 || q.Num != 1 || q.Den != p.Den {
		t.Errorf("one of many parts: %+v, %v", q, err)
	}
	p = of(t, Limit{Kind: GCRA, N: 3, Per: 10 * sec, Burst: 5})
	if got := p.Least(11); got != 20*sec {
		t.Errorf("6 units of 3 in 10 s beyond a burst in %d", got)
	}
	p = of(t, Limit{Kind: SlidingWindowLog, N: 10, Per: MaxPeriod/2 + 1})
	if got := p.Least(11); got != p.Den {
		t.Errorf("a unit of the next window in %d", got)
	}
}

// TestChargeAndRead are what a script is told and replies: costs in the units of the state, a reserve
// only for who asks for something, and the wait of a log also where its limit is lower than it was.
func TestChargeAndRead(t *testing.T) {
	for _, kind := range Kinds {
		p := of(t, Limit{Kind: kind, N: 10, Per: 10 * sec, Burst: 10})
		p.Keep = 3
		scale := p.Den
		if kind.Windowed() {
			scale = 1
		}
		for n, most := range map[int64]int64{0: 10, 1: 6, 2: 5, 7: 0} {
			if cost, got := p.Charge(n); cost != n*scale || got != most*scale {
				t.Errorf("%v: %d units charge %d, at most %d", kind, n, cost, got)
			}
		}
	}
	p := of(t, Limit{Kind: SlidingWindowLog, N: 10, Per: 10 * sec})
	var s State
	for i := range int64(10) {
		Step(p, &s, t0+i*sec, 1)
	}
	lower, now := of(t, Limit{Kind: SlidingWindowLog, N: 5, Per: 10 * sec}), t0+9*sec
	for n := range int64(4) {
		d, r := Decide(lower, &s, now, n), lower.Read(&s, now, n)
		if d.Allowed || d.RetryAfter == 0 || lower.Decision(r, n, false) != d {
			t.Errorf("%d units: %+v of %+v, decided %+v", n, lower.Decision(r, n, false), r, d)
		}
	}
}

// TestBlockedCounter: who is blocked, and would have room, waits for the end of the block alone.
func TestBlockedCounter(t *testing.T) {
	p := of(t, Limit{Kind: SlidingWindowCounter, N: 10, Per: 10 * sec})
	for level := range int64(11) {
		r := Reading{Level: level, Ahead: 9 * sec, Blocked: 7}
		d, wait := p.Decision(r, 1, false), int64(7)
		if level == 10 {
			wait = 10 * sec // a tenth of the next window is over then
		}
		if d.Allowed || d.Remaining != 0 || d.RetryAfter != wait {
			t.Errorf("%+v: %+v", r, d)
		}
	}
	// Of a window that has not begun, because the clock stepped back.
	r := Reading{Level: 1, Previous: 8, Ahead: 15 * sec, Blocked: 7}
	if d := p.Decision(r, 1, false); d.RetryAfter != 7 {
		t.Errorf("%+v: %+v", r, d)
	}
}

// TestDelaysOfAll: a request that all limits admit is delayed by those that delay it, and one that is not
// admitted is delayed by none.
func TestDelaysOfAll(t *testing.T) {
	shaping := of(t, Limit{Kind: LeakyBucketShaping, N: 1, Per: sec, Burst: 10})
	other := of(t, Limit{Kind: GCRA, N: 1, Per: sec, Burst: 2})
	var s, o State
	for i := range int64(3) {
		out, all := StepAll([]Ask{{shaping, &s, 1}, {other, &o, 1}}, t0)
		delay := i * sec
		if i == 2 {
			delay = 0
		}
		if all != (i < 2) || !out[0].Allowed || out[0].Delay != delay || out[1].Delay != 0 {
			t.Errorf("request %d: %+v", i, out)
		}
	}
}

// TestOwedAges: a debt is of the time at which it was used, as far as that counts, in no part of no
// units, and never of more than the limit. Of a log it is in few parts.
func TestOwedAges(t *testing.T) {
	const w = 1600
	start := t0 - t0%w
	for _, c := range []struct {
		kind Kind
		used []Use // before start+100, in this order
		want []Use
	}{
		{FixedWindow, []Use{{1, 0}}, []Use{{1, 0}}},
		{FixedWindow, []Use{{3, 100}}, []Use{{3, 0}}},
		{FixedWindow, []Use{{3, 101}}, nil},
		{FixedWindow, []Use{{3, 0}, {9, 0}}, []Use{{10, 0}}},
		{SlidingWindowCounter, []Use{{3, 100}, {2, 101}}, []Use{{3, 0}, {2, w}}},
		{SlidingWindowCounter, []Use{{11, 101}}, []Use{{10, w}}},
		{SlidingWindowLog, []Use{{1, 0}}, []Use{{1, 0}}},
		{SlidingWindowLog, []Use{{3, 300}, {2, 100}}, []Use{{2, 100}, {3, 300}}},
		{SlidingWindowLog, []Use{{3, 250}}, []Use{{3, 200}}}, // rounded up to a sixteenth
		{SlidingWindowLog, []Use{{3, w}}, nil},
		{SlidingWindowLog, []Use{{3, w - 1}}, []Use{{3, w - 100}}},
		{SlidingWindowLog, []Use{{4, 300}, {4, 200}, {4, 100}}, []Use{{4, 100}, {4, 200}, {2, 300}}},
		{SlidingWindowLog, []Use{{4, 300}, {5, 200}, {5, 100}}, []Use{{5, 100}, {5, 200}}},
		{GCRA, []Use{{1, 0}}, []Use{{1, 0}}},
	} {
		p := of(t, Limit{Kind: c.kind, N: 10, Per: w, Burst: 10})
		var s State
		for _, u := range c.used {
			Owe(p, &s, start+100, u.Units, u.Age)
		}
		if got := Owed(p, &s, start+100); (len(got) != 0 || len(c.want) != 0) && !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v: %v are owed of %v, want %v", c.kind, got, c.used, c.want)
		}
	}
	p, s := of(t, Limit{Kind: SlidingWindowLog, N: 10, Per: 20}), State{}
	Owe(p, &s, start, 3, 1) // the time of a short window is exact
	if got := Owed(p, &s, start); len(got) != 1 || got[0] != (Use{3, 1}) {
		t.Errorf("%v are owed of a short window", got)
	}
	p, s = of(t, Limit{Kind: SlidingWindowLog, N: 10, Per: w}), State{}
	for now := start; now < start+3*w; now++ {
		if Owe(p, &s, now, 1, 0); len(s.Log) > 17 {
			t.Fatalf("%d parts", len(s.Log))
		}
	}
	// The shortest window.
	p, s = of(t, Limit{Kind: SlidingWindowCounter, N: 10, Per: 1}), State{}
	Owe(p, &s, start, 2, 0)
	Owe(p, &s, start, 3, 1)
	for later, want := range [][]Use{{{2, 0}, {3, 1}}, {{2, 1}}, nil} {
		if got := Owed(p, &s, start+int64(later)); len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want) {
			t.Errorf("%v are owed after %d windows of a microsecond, want %v", got, later, want)
		}
	}
	p = of(t, Limit{Kind: SlidingWindowLog, N: 10, Per: w})
	// What leaves the window is not forgiven.
	for _, c := range []struct{ later, want int64 }{{w - 1, 0}, {w, 3}} {
		s := State{}
		Owe(p, &s, start, 3, 0)
		Forgive(p, &s, start+c.later, start, 3, 3)
		if got := owedUnits(p, &s, start); got != c.want {
			t.Errorf("%d owed of what was forgiven %d µs later", got, c.later)
		}
	}
}

// TestRefundOfMoreThanThereIs returns what there is.
func TestRefundOfMoreThanThereIs(t *testing.T) {
	for _, kind := range Kinds {
		if kind == LeakyBucketShaping {
			continue // takes nothing back
		}
		p := of(t, Limit{Kind: kind, N: 10, Per: 10 * sec, Burst: 10})
		var s State
		start := t0 - t0%(10*sec)
		Step(p, &s, start, 2)
		Step(p, &s, start, 3)
		if back := Refund(p, &s, start, 9); back != 5 || Step(p, &s, start, 0).Remaining != 10 {
			t.Errorf("%v: %d back of 5", kind, back)
		}
	}
}

// TestKindsBeyondTheLast are none.
func TestKindsBeyondTheLast(t *testing.T) {
	for _, k := range []Kind{0, GCRA + 1, GCRA + 2} {
		if k.Valid() || k.Short() != "" {
			t.Errorf("%v is valid", k)
		}
	}
}
