package algo

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

func drawKind(t *rapid.T) Kind { return rapid.SampledFrom(Kinds[:]).Draw(t, "kind") }

func drawParams(t *rapid.T, kind Kind) Params {
	for {
		l := Limit{
			Kind:  kind,
			N:     rapid.Int64Range(1, 50).Draw(t, "n"),
			Per:   rapid.Int64Range(1, 3*sec).Draw(t, "per"),
			Burst: rapid.Int64Range(1, 50).Draw(t, "burst"),
		}
		if p, err := l.Params(); err == nil {
			return p
		}
	}
}

// drawState uses a key at random times up to the returned one.
func drawState(t *rapid.T, p Params) (State, int64) {
	var s State
	now := t0 + rapid.Int64Range(0, 10*sec).Draw(t, "start")
	for range rapid.IntRange(0, 30).Draw(t, "requests") {
		Step(p, &s, now, rapid.Int64Range(1, p.Cap).Draw(t, "cost"))
		now += rapid.Int64Range(0, 2*p.Den/p.Num+1).Draw(t, "pause")
	}
	return s, now
}

func TestRetryAfterIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawParams(t, drawKind(t))
		s, now := drawState(t, p)
		n := rapid.Int64Range(1, p.Cap).Draw(t, "n")
		d := Step(p, &s, now, n)
		if d.Allowed != (d.RetryAfter == 0) {
			t.Fatalf("allowed %v with a retry after %d", d.Allowed, d.RetryAfter)
		}
		if d.Allowed {
			return
		}
		early, there := s.clone(), s.clone()
		if Step(p, &early, now+d.RetryAfter-1, n).Allowed {
			t.Fatalf("%+v: admitted 1 µs before the retry after %d", p, d.RetryAfter)
		}
		if got := Step(p, &there, now+d.RetryAfter, n); !got.Allowed {
			t.Fatalf("%+v: denied after exactly %d: %+v", p, d.RetryAfter, got)
		}
	})
}

func TestKeyIsFullyResetAfterResetAfter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawParams(t, drawKind(t))
		s, now := drawState(t, p)
		later := now + Step(p, &s, now, 0).ResetAfter
		var fresh State
		if got, want := Step(p, &s, later, 0), Step(p, &fresh, later, 0); got != want {
			t.Fatalf("%+v: at the reset %+v, a fresh key %+v", p, got, want)
		}
	})
}

func TestRemainingIsTheLargestCostAdmitted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawParams(t, drawKind(t))
		s, now := drawState(t, p)
		left := Step(p, &s, now, 0).Remaining
		all, more := s.clone(), s.clone()
		if left > 0 && !Step(p, &all, now, left).Allowed {
			t.Fatalf("%+v: %d remaining, denied", p, left)
		}
		if left < p.Cap && Step(p, &more, now, left+1).Allowed {
			t.Fatalf("%+v: %d remaining, %d admitted", p, left, left+1)
		}
	})
}

func TestDeniedAndPeekChangeNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawParams(t, drawKind(t))
		s, now := drawState(t, p)
		before := s.clone()
		n := rapid.SampledFrom([]int64{0, p.Cap}).Draw(t, "n")
		if d := Step(p, &s, now, n); n > 0 && d.Allowed {
			return
		}
		after := s.clone()
		if !reflect.DeepEqual(before, after) {
			t.Fatalf("%+v changed to %+v", before, after)
		}
	})
}

// TestNoWindowAboveItsLimit checks what each algorithm promises about any
// stretch of time, by brute force over what was admitted.
func TestNoWindowAboveItsLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawParams(t, drawKind(t))
		var s State
		var admitted []unit
		now := t0 + rapid.Int64Range(0, sec).Draw(t, "start")
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			n := rapid.Int64Range(1, p.Cap).Draw(t, "cost")
			if Step(p, &s, now, n).Allowed {
				admitted = append(admitted, unit{now, n})
			}
			now += rapid.Int64Range(0, p.Den/p.Num+1).Draw(t, "pause")
		}
		withinLimit(t, p, admitted)
	})
}

// unit is n units used at a time.
type unit struct{ at, n int64 }

// withinLimit fails when what was used, in the order of time, is more than p
// allows in some stretch of time.
func withinLimit(t *rapid.T, p Params, used []unit) {
	for i, first := range used {
		sum := int64(0)
		for _, u := range used[i:] {
			sum += u.n
			span := u.at - first.at
			switch p.Kind {
			case FixedWindow:
				if first.at/p.Den == u.at/p.Den && sum > p.Cap {
					t.Fatalf("%+v: %d in one window", p, sum)
				}
			case SlidingWindowLog:
				if span < p.Den && sum > p.Cap {
					t.Fatalf("%+v: %d within %d µs", p, sum, span)
				}
			case SlidingWindowCounter:
				// An estimate, but never above the limit in an aligned
				// window, nor above twice of it in any.
				if first.at/p.Den == u.at/p.Den && sum > p.Cap || span < p.Den && sum > 2*p.Cap {
					t.Fatalf("%+v: %d within %d µs", p, sum, span)
				}
			default:
				if sum*p.Den > p.Full()+span*p.Num {
					t.Fatalf("%+v: %d within %d µs", p, sum, span)
				}
			}
		}
	}
}

// TestClockStepBack: a clock that steps back neither grants nor locks.
func TestClockStepBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawParams(t, drawKind(t))
		s, now := drawState(t, p)
		before := Step(p, &s, now, 0).Remaining
		now -= rapid.SampledFrom([]int64{1, 1000, p.Den, 3600 * sec, 30 * 24 * 3600 * sec}).Draw(t, "step")
		n := rapid.Int64Range(1, p.Cap).Draw(t, "n")
		if n > before && Step(p, &s, now, n).Allowed {
			t.Fatalf("%+v: %d admitted with %d remaining before the clock stepped back", p, n, before)
		}
		// Whoever keeps asking is admitted within two windows, or two times the
		// time that an empty bucket takes to fill.
		worst := 2 * p.Den
		if !p.Kind.Windowed() {
			worst = 2 * p.FillTime()
		}
		if p.Kind == SlidingWindowCounter {
			worst = 4 * p.Den
		}
		for end := now + worst; ; {
			d := Step(p, &s, now, p.Cap)
			if d.Allowed {
				return
			}
			if now += d.RetryAfter; now > end {
				t.Fatalf("%+v: locked for %d µs", p, now-end+worst)
			}
		}
	})
}

// TestCounterRetryAfterBruteForce holds the closed formula against a search.
func TestCounterRetryAfterBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := rapid.Int64Range(1, 40).Draw(t, "window")
		p := Params{Kind: SlidingWindowCounter, Cap: rapid.Int64Range(1, 20).Draw(t, "limit"), Num: 1, Den: w}
		i := rapid.Int64Range(100, 103).Draw(t, "window number")
		s := State{At: (i + 1) * w, V: rapid.Int64Range(0, 25).Draw(t, "current"), W: rapid.Int64Range(0, 25).Draw(t, "previous")}
		now := i*w + rapid.Int64Range(0, w-1).Draw(t, "elapsed")
		n := rapid.Int64Range(1, p.Cap).Draw(t, "n")

		want := int64(0)
		for {
			try := s.clone()
			if Step(p, &try, now+want, n).Allowed {
				break
			}
			want++
		}
		if got := Step(p, &s, now, n).RetryAfter; got != want {
			t.Fatalf("%+v at %d: retry after %d, brute force %d", p, now, got, want)
		}
	})
}
