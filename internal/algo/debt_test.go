package algo

import (
	"testing"

	"pgregory.net/rapid"
)

// TestOwedIsWhatTheAlgorithmStillHolds: what is owed is never less than what the
// algorithm itself would still count against the limit, never more than was
// admitted, and nothing once the key would be as if never used.
func TestOwedIsWhatTheAlgorithmStillHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawParams(t, drawKind(t))
		var s, debt State
		now := t0 + rapid.Int64Range(0, 10*sec).Draw(t, "start")
		admitted := int64(0)
		for range rapid.IntRange(1, 30).Draw(t, "requests") {
			n := rapid.Int64Range(1, p.Cap).Draw(t, "cost")
			if Step(p, &s, now, n).Allowed {
				Owe(p, &debt, now, n)
				admitted += n
			}
			now += rapid.Int64Range(0, 2*p.Den/p.Num+1).Draw(t, "pause")
		}
		d := Step(p, &s, now, 0)
		owed := Owed(p, &debt, now)
		used := p.Cap - d.Remaining
		if p.Kind == SlidingWindowLog {
			// Weighed as the counter would: an estimate of the log.
			used = 0
		}
		if owed < used || owed > admitted || owed > p.Cap {
			t.Fatalf("%+v: %d owed, %d in use, %d admitted", p, owed, used, admitted)
		}
		later := now + 2*p.Den + p.fillTime() + 1
		if owed := Owed(p, &debt, later); owed != 0 {
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
