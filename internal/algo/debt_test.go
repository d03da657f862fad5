package algo

import (
	"testing"

	"pgregory.net/rapid"
)

// owedUnits is how many units are owed.
func owedUnits(p Params, s *State, now int64) (n int64) {
	for _, use := range Owed(p, s, now) {
		n += use.Units
	}
	return n
}

// TestOwedIsWhatTheAlgorithmStillHolds: what is owed is never less than what the
// algorithm itself would still count against the limit, never more than was
// admitted, and nothing once the key would be as if never used.
func TestOwedIsWhatTheAlgorithmStillHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawParams(t, drawKind(t))
		var s, debt State
		now := t0 + rapid.Int64Range(0, 10*sec).Draw(t, "start")
		admitted, times := int64(0), []unit(nil)
		for range rapid.IntRange(1, 30).Draw(t, "requests") {
			n := rapid.Int64Range(1, p.Cap).Draw(t, "cost")
			if Step(p, &s, now, n).Allowed {
				Owe(p, &debt, now, n, 0)
				admitted += n
				times = append(times, unit{now, n})
			}
			now += rapid.Int64Range(0, 2*p.Den/p.Num+1).Draw(t, "pause")
		}
		d := Step(p, &s, now, 0)
		owed := owedUnits(p, &debt, now)
		used := p.Cap - d.Remaining
		if owed < used || owed > admitted || owed > p.Cap && p.Kind != SlidingWindowCounter {
			t.Fatalf("%+v: %d owed, %d in use, %d admitted", p, owed, used, admitted)
		}
		if p.Kind.Windowed() {
			// What is charged leaves a state that counts as if it had been used there. The
			// times of a log are known to a 16th of its window.
			var charged State
			for _, use := range Owed(p, &debt, now) {
				Debit(p, &charged, now, use.Units, use.Age)
			}
			at := now + rapid.Int64Range(0, 2*p.Den).Draw(t, "then")
			most := Step(p, &s, at, 0).Remaining
			least := most
			if p.Kind == SlidingWindowLog {
				least = p.Cap
				for _, u := range times {
					if u.at > at-p.Den-p.Den/16-1 {
						least -= u.n
					}
				}
			}
			if got := Step(p, &charged, at, 0).Remaining; got < least || got > most {
				t.Fatalf("%+v: %d µs after a debt of %d was charged %d are left, want %d to %d", p, at-now, owed, got, least, most)
			}
		}
		later := now + 2*p.Den + p.FillTime() + 1
		if owed := owedUnits(p, &debt, later); owed != 0 {
			t.Fatalf("%+v: %d still owed when all has passed", p, owed)
		}
	})
}

func TestWarmLeavesWhatRemained(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawParams(t, drawKind(t))
		remaining := rapid.Int64Range(-1, p.Cap+1).Draw(t, "remaining")
		now := t0 + rapid.Int64Range(0, 10*sec).Draw(t, "now")
		s := Warm(p, now, remaining)
		want := max(0, min(remaining, p.Cap))
		if got := Step(p, &s, now, 0).Remaining; got != want {
			t.Fatalf("%+v: %d remaining, want %d", p, got, want)
		}
		if want > 0 && !Step(p, &s, now, want).Allowed {
			t.Fatalf("%+v: %d remained, but were denied", p, want)
		}
	})
}
