package algo

import (
	"testing"

	"pgregory.net/rapid"
)

// TestReadingIsTheDecision: what a script replies of the state that a decision has left
// behind is enough to compute the decision.
func TestReadingIsTheDecision(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawParams(t, drawKind(t))
		s, now := drawState(t, p)
		if p.Kind == LeakyBucketShaping {
			p.MaxDelay = rapid.Int64Range(0, 3*sec).Draw(t, "longest delay")
		}
		p.Keep = rapid.Int64Range(0, p.Cap-1).Draw(t, "keep")
		if rapid.IntRange(0, 3).Draw(t, "blocked") == 0 {
			Block(&s, now, rapid.Int64Range(1, 2*sec).Draw(t, "block"))
		}
		if rapid.IntRange(0, 3).Draw(t, "stepped back") == 0 {
			now -= rapid.Int64Range(0, 4*p.Den).Draw(t, "step")
		}
		n := rapid.Int64Range(-p.Cap, p.Cap-p.Keep).Draw(t, "n")
		_, most := p.Charge(n)
		fits := p.Read(&s, now, n).Level <= most
		var want Decision
		if n < 0 {
			want = Debit(p, &s, now, -n, rapid.Int64Range(0, 3*p.Den).Draw(t, "age"))
		} else {
			want = Decide(p, &s, now, n)
		}
		r := p.Read(&s, now, n)
		if n < 0 {
			r.Blocked = 0
		}
		if got := p.Decision(r, n, want.Allowed); got != want {
			t.Fatalf("%+v, cost %d, state %+v, read as %+v: %+v, want %+v", p, n, s, r, got, want)
		}
		if n > 0 && r.Blocked == 0 && p.Kind != SlidingWindowCounter && fits != want.Allowed {
			t.Fatalf("%+v, cost %d: admitted %v although it fits: %v", p, n, want.Allowed, fits)
		}
	})
}
