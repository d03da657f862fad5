package algo

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// TestKeepRemains: what must remain does, whoever else may use it; a wait is
// exact; and but for that nothing differs from a limit that keeps nothing.
func TestKeepRemains(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawParams(t, drawKind(t))
		s, now := drawState(t, p)
		free := p
		p.Keep = rapid.Int64Range(0, p.Cap-1).Draw(t, "keep")
		n := rapid.Int64Range(1, p.Cap-p.Keep).Draw(t, "n")
		left := Step(p, &s, now, 0).Remaining
		other := s.clone()
		d := Decide(p, &s, now, n)
		if d.Allowed != (left >= n+p.Keep) || d.Allowed != (d.RetryAfter == 0) {
			t.Fatalf("%+v: %d of %d remaining: %+v", p, n, left, d)
		}
		if d.Allowed {
			if want := Decide(free, &other, now, n); d != want {
				t.Fatalf("%+v: admitted with %+v, and %+v without a reserve", p, d, want)
			}
			return
		}
		early, there := s.clone(), s.clone()
		if Decide(p, &early, now+d.RetryAfter-1, n).Allowed {
			t.Fatalf("%+v: admitted 1 µs before the retry after %d", p, d.RetryAfter)
		}
		if !Decide(p, &there, now+d.RetryAfter, n).Allowed {
			t.Fatalf("%+v: denied after exactly %d", p, d.RetryAfter)
		}
	})
}

// TestReservePart: the reserve is the part asked for, rounded up, and a share or a
// part of a limit has its part of it.
func TestReservePart(t *testing.T) {
	for _, c := range []struct {
		size int64
		f    float64
		keep int64
		ok   bool
	}{
		{10, 0.2, 2, true}, {10, 0.21, 3, true}, {3, 0.1, 1, true}, {2, 0.9, 2, false}, {1, 0.5, 1, false},
		{100, 0.29, 29, true}, {1 << 40, 0.5, 1 << 39, true}, {7, 1.0 / 7, 1, true}, {10, 1 - 1e-15, 10, false},
	} {
		p, ok := Params{Kind: FixedWindow, Cap: c.size, Num: 1, Den: 1}.Reserve(c.f)
		if p.Keep != c.keep || ok != c.ok {
			t.Errorf("%v of %d: %d, %v", c.f, c.size, p.Keep, ok)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		p := drawParams(t, drawKind(t))
		p, ok := p.Reserve(rapid.Float64Range(0.001, 0.999).Draw(t, "f"))
		if !ok {
			return
		}
		q := p.Scale(rapid.Float64Range(0.001, 1).Draw(t, "share"))
		if q.Keep < 0 || q.Keep >= max(1, q.Cap) || q.Cap > 1 && q.Keep == 0 {
			t.Fatalf("%+v of %+v", q, p)
		}
		if want := float64(p.Keep) / float64(p.Cap) * float64(q.Cap); q.Cap > 1 && math.Abs(float64(q.Keep)-want) > 1 {
			t.Fatalf("%+v of %+v: %v kept", q, p, want)
		}
	})
}
