package algo

import (
	"math"
	"testing"
)

// TestScaleIsThePart: the size is the part of the size, rounded down to a unit at least, and
// the rate is at most the part of the rate, and less by little.
func TestScaleIsThePart(t *testing.T) {
	for _, l := range []Limit{
		{N: 10, Per: sec, Burst: 10}, {N: 100, Per: 60 * sec, Burst: 7}, {N: 1, Per: 86400 * sec, Burst: 1}, {N: 999_983, Per: sec, Burst: 1000},
		{N: 3, Per: 7 * sec, Burst: 100}, {N: 1_000_000, Per: sec, Burst: 1}, {N: 1 << 40, Per: sec, Burst: 1 << 20},
	} {
		for _, kind := range Kinds {
			l.Kind = kind
			p, err := l.Params()
			if err != nil {
				continue
			}
			for _, share := range []float64{1, 0.5, 1.0 / 3, 0.3, 0.1, 1.0 / 7, 0.01, 1e-6} {
				q := p.Scale(share)
				units := int64(float64(p.Cap)*share + 1e-9)
				if !kind.Windowed() {
					units = max(1, units)
				}
				if q.Cap != units {
					t.Errorf("%+v at %v has %d, want %d", l, share, q.Cap, units)
				}
				if kind.Windowed() {
					if first, more := q.In(0, 0); first.Cap != max(1, units) || q.Cap == 0 && more <= 0 {
						t.Errorf("%+v at %v has %d in the first window, and another in %d", l, share, first.Cap, more)
					}
					if q.Num != p.Num || q.Den != p.Den {
						t.Errorf("%+v at %v has another window: %+v", l, share, q)
					}
					continue
				}
				if !q.exact() || q.FillTime() > MaxPeriod || gcd(q.Num, q.Den) != 1 {
					t.Errorf("%+v at %v is not exact, or not reduced: %+v", l, share, q)
				}
				rate, want := float64(q.Num)/float64(q.Den), float64(p.Num)/float64(p.Den)*share
				if q.FillTime() < MaxPeriod/2 && (rate > want*(1+1e-9) || rate < want*(1-1e-3)) {
					t.Errorf("%+v at %v has %v per µs, want %v: %+v", l, share, rate, want, q)
				}
			}
			for _, share := range []float64{0, -1, 1.5, math.NaN(), math.Inf(1)} {
				if q := p.Scale(share); q != p {
					t.Errorf("%+v at %v: %+v, want it as it is", l, share, q)
				}
			}
		}
	}
}

// TestFractionsOfWindows: in any number of windows a part has its fractions, to a unit
// or two, in whatever phase, and no part of a unit in the first, but one unit at least. What it
// says of the next window with another unit is so.
func TestFractionsOfWindows(t *testing.T) {
	for _, share := range []float64{0.5, 0.3, 1.0 / 7, 0.123456, 0.1, 0.0999, 0.001} {
		for phase := int64(0); phase < wholes; phase += wholes / 16 {
			limit := Params{Kind: FixedWindow, Cap: 10, Num: 1, Den: sec}
			p := limit.Scale(share)
			p.Phase = phase
			for _, first := range []int64{0, 7, t0 / sec} {
				all, next := int64(0), int64(0)
				for n := range int64(3000) {
					q, more := p.In((first+n)*sec+7, first*sec)
					if n == 0 && q.Cap != max(1, p.Cap) {
						t.Fatalf("%+v has %d in the first window", p, q.Cap)
					}
					if all += q.Cap; q.Frac != 0 || q.Phase != 0 || q.Cap > 10 {
						t.Fatalf("%+v is %+v", p, q)
					}
					if another := n > 0 && q.Cap > p.Cap; another != (n > 0 && n == next) {
						t.Fatalf("%+v: another unit in window %d: %v; said was %d", p, n, another, next)
					}
					if p.Frac > 0 && (n == 0 || n == next) {
						if next = n + (more+7)/sec; more <= 0 || (more+7)%sec != 0 {
							t.Fatalf("%+v: %d until another unit", p, more)
						}
					}
					want := 10 * share * float64(n+1)
					if got := float64(all); got <= want-2-want*1e-4 || got >= want+1.01 {
						t.Fatalf("%v of 10 has %v in %d windows, want %v", share, got, n+1, want)
					}
				}
			}
		}
	}
}

// TestScaleTooSlow: where no exact rate is left, one unit at a time is: at most as often as
// the part of the rate says, or once in the longest period.
func TestScaleTooSlow(t *testing.T) {
	p := Params{Kind: GCRA, Cap: 4, Num: 1, Den: MaxPeriod / 4, Keep: 1}
	q := p.Scale(0.1)
	if q.Cap != 1 || q.Keep != 0 || q.Num != 1 || q.Den != MaxPeriod {
		t.Errorf("%+v", q)
	}
	// The rate leaves 2^53 at any factor; ten of its units of time are one of the part's.
	p = Params{Kind: TokenBucket, Cap: 2, Num: MaxExact/2 - 1, Den: MaxExact / 8}
	if q := p.Scale(0.1); q.Cap != 1 || q.Num != 1 || q.Den != 10 {
		t.Errorf("%+v", q)
	}
}

// TestPartsKeepWhatIsKept: each part keeps its share of what is kept for critical calls,
// rounded up, and leaves one unit at least.
func TestPartsKeepWhatIsKept(t *testing.T) {
	p := Params{Kind: FixedWindow, Cap: 10, Num: 1, Den: sec, Keep: 2}
	for size, want := range map[int64]int64{10: 2, 5: 1, 6: 2, 2: 1, 1: 0} {
		if got := p.keepOf(size); got != want {
			t.Errorf("of %d it keeps %d, want %d", size, got, want)
		}
	}
	q, err := p.Part(0, 2)
	if err != nil || q.Cap != 5 || q.Keep != 1 || q.Den != p.Den {
		t.Errorf("%+v, %v", q, err)
	}
	if p.Keep = 0; p.keepOf(5) != 0 {
		t.Error("something is kept of nothing")
	}
	big := Params{Kind: GCRA, Cap: 7, Num: 1, Den: MaxExact / 16}
	if q, err := big.Part(0, 7); err == nil {
		t.Errorf("%+v leaves 2^53", q)
	}
	slow := Params{Kind: GCRA, Cap: 7, Num: 1, Den: MaxPeriod / 7}
	if q, err := slow.Part(0, 7); err != nil || q.Cap != 1 || q.Den != 7*(MaxPeriod/7) {
		t.Errorf("%+v, %v", q, err)
	}
	if q, err := (Params{Kind: GCRA, Cap: 3, Num: 1, Den: MaxPeriod / 3}).Part(0, 2); err == nil {
		t.Errorf("%+v takes more than 366 days to refill", q)
	}
}

// TestLateLeavesRoom: what is used later leaves room for what the rate lets through until
// then.
func TestLateLeavesRoom(t *testing.T) {
	bucket := Params{Kind: TokenBucket, Cap: 10, Num: 1, Den: sec}
	for d, want := range map[int64]int64{0: 10, 1: 9, sec: 9, sec + 1: 8, 9*sec - 1: 1, 9 * sec: 1} {
		if q, ok := bucket.Late(d); !ok || q.Cap != want {
			t.Errorf("%d µs later: %+v, %v", d, q, ok)
		}
	}
	for _, d := range []int64{9*sec + 1, 10 * sec, 11 * sec} {
		if q, ok := bucket.Late(d); ok {
			t.Errorf("%d µs later: %+v", d, q)
		}
	}
	bucket.Keep = 5
	if _, ok := bucket.Late(5 * sec); ok {
		t.Error("what is kept is used")
	}
	log := Params{Kind: SlidingWindowLog, Cap: 10, Num: 1, Den: MaxPeriod - 10}
	if q, ok := log.Late(10); !ok || q.Den != MaxPeriod {
		t.Errorf("%+v, %v", q, ok)
	}
	if _, ok := log.Late(11); ok {
		t.Error("a window that is too long")
	}
	if _, ok := (Params{Kind: LeakyBucketShaping, Cap: 10, Num: 1, Den: sec}).Late(0); ok {
		t.Error("shaping has its own delays")
	}
	if q, ok := (Params{Kind: FixedWindow, Cap: 10, Num: 1, Den: sec}).Late(5); !ok || q.Cap != 10 || q.Den != sec {
		t.Error("a fixed window changes", q, ok)
	}
	bucket.Keep = 2
	if got := bucket.RetryAfterReset(10*sec, 3); got != 5*sec {
		t.Errorf("room for 3 and 2 after %d µs", got)
	}
	if got := log.RetryAfterReset(10*sec, 3); got != 0 {
		t.Errorf("a log has no level: %d", got)
	}
}

// TestLimitsAtTheBorder: what is just representable is accepted, and one more is not.
func TestLimitsAtTheBorder(t *testing.T) {
	for _, c := range []struct {
		l  Limit
		ok bool
	}{
		{Limit{FixedWindow, 1, 1, 0, nil}, true},
		{Limit{FixedWindow, 1, 0, 0, nil}, false},
		{Limit{FixedWindow, MaxExact, MaxPeriod, 0, nil}, true},
		{Limit{FixedWindow, MaxExact + 1, 1, 0, nil}, false},
		{Limit{FixedWindow, 1, MaxPeriod + 1, 0, nil}, false},
		{Limit{SlidingWindowLog, MaxLog, sec, 0, nil}, true},
		{Limit{SlidingWindowLog, MaxLog + 1, sec, 0, nil}, false},
		{Limit{SlidingWindowCounter, MaxExact, 1, 0, nil}, true},
		{Limit{SlidingWindowCounter, MaxExact/2 + 1, 2, 0, nil}, false},
		{Limit{GCRA, 1, 1, 1, nil}, true},
		{Limit{GCRA, 1, 1, 0, nil}, false},
		{Limit{GCRA, 1e9 + 1, 1, (MaxExact - 1e9 - 1) / 2, nil}, true},
		{Limit{GCRA, 1e9 + 1, 1, (MaxExact-1e9-1)/2 + 1, nil}, false},
		{Limit{GCRA, 1, MaxPeriod, 1, nil}, true},
		{Limit{GCRA, 1, MaxPeriod, 2, nil}, false},
	} {
		if _, err := c.l.Params(); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.l, err)
		}
	}
}
