package algo

import (
	"testing"

	"pgregory.net/rapid"
)

// TestTwoLimitsOfOneKey: while some processes know of a change and others do not, as in a deploy, a bucket admits no
// more than by the larger burst and the higher rate, whatever is given back.
func TestTwoLimitsOfOneKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]Kind{TokenBucket, LeakyBucket, LeakyBucketShaping, GCRA}).Draw(t, "kind")
		limits := []Params{drawParams(t, kind), drawParams(t, kind)}
		if rapid.Bool().Draw(t, "same rate") {
			limits[1].Num, limits[1].Den = limits[0].Num, limits[0].Den
		}
		most, rate := float64(max(limits[0].Cap, limits[1].Cap)), 0.0
		for _, p := range limits {
			rate = max(rate, float64(p.Num)/float64(p.Den))
		}
		s, now := State{}, int64(t0)
		var used []unit
		var by []Params
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			now += rapid.Int64Range(0, 1+int64(2/rate)).Draw(t, "pause")
			p := rapid.SampledFrom(limits).Draw(t, "limit")
			if i := len(used) - 1; i >= 0 && rapid.IntRange(0, 4).Draw(t, "what") == 0 {
				if back := GiveBack(by[i], &s, now, used[i].at, used[i].n, used[i].n); back < 0 || back > used[i].n {
					t.Fatalf("%d of %d were given back", back, used[i].n)
				}
				used, by = used[:i], by[:i]
				continue
			}
			n := rapid.Int64Range(1, p.Cap).Draw(t, "cost")
			if before := s.clone(); Step(p, &s, now, n).Allowed {
				used, by = append(used, unit{now, n}), append(by, p)
			} else if (s.At != before.At || s.V != before.V || s.Cap != before.Cap) && !p.faster(&before) {
				t.Fatalf("a denial wrote %+v after %+v", s, before)
			}
		}
		for i, first := range used {
			sum := int64(0)
			for _, u := range used[i:] {
				sum += u.n
				if span := u.at - first.at; float64(sum) > most+rate*float64(span)+1e-6 {
					t.Fatalf("%v: %d within %d µs, by %+v and %+v", kind, sum, span, limits[0], limits[1])
				}
			}
		}
	})
}

// TestTurnsOfTwoLimits: two processes that ask in turn, by limits of any algorithm with windows of one length, get no more
// at once than the larger.
func TestTurnsOfTwoLimits(t *testing.T) {
	for _, kind := range Kinds {
		for name, limits := range map[string][2]Limit{
			"another burst":          {{N: 10, Per: sec, Burst: 10}, {N: 10, Per: sec, Burst: 100}},
			"another rate":           {{N: 100, Per: sec, Burst: 100}, {N: 10, Per: sec, Burst: 100}},
			"another burst and rate": {{N: 10, Per: sec, Burst: 10}, {N: 100, Per: sec, Burst: 100}},
		} {
			t.Run(kind.String()+", "+name, func(t *testing.T) {
				var s State
				var all [2]Params
				most, admitted := int64(0), int64(0)
				for i, l := range limits {
					l.Kind = kind
					all[i] = params(t, l)
					most = max(most, all[i].Cap)
				}
				for i := range 1000 {
					if Step(all[i%2], &s, t0, 1).Allowed {
						admitted++
					}
				}
				if admitted > most {
					t.Errorf("%d admitted at once, of at most %d", admitted, most)
				}
			})
		}
	}
}

// TestStepBackWithTwoLimits: where the clock steps back, a denial by the smaller limit cuts nothing that the larger one has
// used.
func TestStepBackWithTwoLimits(t *testing.T) {
	for _, kind := range []Kind{TokenBucket, LeakyBucket, LeakyBucketShaping, GCRA} {
		for _, rates := range [][2]int64{{10, 10}, {10, 20}, {20, 10}} {
			a := params(t, Limit{Kind: kind, N: rates[0], Per: sec, Burst: 10})
			b := params(t, Limit{Kind: kind, N: rates[1], Per: sec, Burst: 100})
			var s State
			now, admitted := int64(t0), 0
			for Step(b, &s, now, 1).Allowed {
				admitted++
			}
			for range 5 {
				now -= 3600 * sec
				if Step(a, &s, now, 1).Allowed {
					t.Fatalf("%v, %v: the smaller limit has room", kind, rates)
				}
				for Step(b, &s, now, 1).Allowed {
					admitted++
				}
			}
			if admitted != 100 {
				t.Errorf("%v, %v: %d admitted", kind, rates, admitted)
			}
		}
	}
}

// TestGiveBackThroughAFasterLimit: what a faster limit has drained is not given back, although the slow one has written again.
func TestGiveBackThroughAFasterLimit(t *testing.T) {
	for _, kind := range []Kind{TokenBucket, LeakyBucket, GCRA} {
		slow := params(t, Limit{Kind: kind, N: 1, Per: sec, Burst: 100})
		fast := params(t, Limit{Kind: kind, N: 1000, Per: sec, Burst: 100})
		var s State
		if !Step(slow, &s, t0, 50).Allowed || !Step(fast, &s, t0, 1).Allowed {
			t.Fatal("denied")
		}
		now, admitted := int64(t0+sec/10), 0
		for Step(slow, &s, now, 1).Allowed {
			admitted++
		}
		given := GiveBack(slow, &s, now, t0, 50, 50)
		for Step(slow, &s, now, 1).Allowed {
			admitted++
		}
		if admitted != 100 || given != 0 {
			t.Errorf("%v: %d admitted, %d given back", kind, admitted, given)
		}
	}
}

// TestWaitsAfterAChange: a caller who is denied right after a change of the limit is admitted when RetryAfter says, and not before.
func TestWaitsAfterAChange(t *testing.T) {
	const hour, day = 3600 * sec, 86400 * sec
	for _, kind := range []Kind{TokenBucket, LeakyBucket, LeakyBucketShaping, GCRA} {
		for _, c := range [][2]Limit{
			{{N: 10, Per: day, Burst: 10}, {N: 1000, Per: hour, Burst: 10}},
			{{N: 1, Per: 5 * sec, Burst: 1}, {N: 7, Per: sec, Burst: 1}},
			{{N: 100, Per: hour, Burst: 1000}, {N: 100, Per: sec, Burst: 100}},
			{{N: 1000, Per: sec, Burst: 1000}, {N: 10, Per: day, Burst: 10}},
			{{N: 7, Per: 3 * sec, Burst: 50}, {N: 5, Per: 3 * sec, Burst: 20}},
			{{N: 10, Per: sec, Burst: 50}, {N: 10, Per: sec, Burst: 20}},
		} {
			for _, cost := range []int64{1, 3} {
				c[0].Kind, c[1].Kind = kind, kind
				before, after := params(t, c[0]), params(t, c[1])
				cost = min(cost, after.Cap)
				var s State
				for Step(before, &s, t0, 1).Allowed {
				}
				d := Step(after, &s, t0, cost)
				sooner := s.clone()
				if d.Allowed || d.RetryAfter > hour || Step(after, &sooner, t0+d.RetryAfter-1, cost).Allowed || !Step(after, &s, t0+d.RetryAfter, cost).Allowed {
					t.Errorf("%v, %+v to %+v, cost %d: %+v", kind, c[0], c[1], cost, d)
				}
			}
		}
	}
}
