package algo

import (
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestGiveBackToAnotherState: what was charged to a state that is lost, by a reset or
// an eviction, is not given back to the one that begins anew.
func TestGiveBackToAnotherState(t *testing.T) {
	for _, kind := range Kinds {
		p := params(t, Limit{Kind: kind, N: 10, Per: 3600 * sec, Burst: 10})
		var s State
		Step(p, &s, t0, 8)
		s = State{}
		if got := ask(p, &s, t0+1, 11); got != 10 {
			t.Fatalf("%v: %d admitted", kind, got)
		}
		if got := GiveBack(p, &s, t0+2, t0, 8, 8); got != 0 || ask(p, &s, t0+2, 1) != 0 {
			t.Errorf("%v: %d of another state were given back", kind, got)
		}
		if kind == LeakyBucketShaping {
			continue
		}
		// What was charged since is, also when the clock stepped back meanwhile.
		if got := GiveBack(p, &s, t0+1, t0+1, 5, 5); got != 5 {
			t.Errorf("%v: %d of 5 were given back", kind, got)
		}
		back := t0 - 100*sec
		if !Step(p, &s, back, 1).Allowed || GiveBack(p, &s, back, back, 1, 1) != 1 {
			t.Errorf("%v: what was charged after the clock stepped back was not given back", kind)
		}
	}
}

// TestGiveBackStaysWithinTheLimit: whatever is given back and whenever, what is used stays
// within the limit, also of what begins anew.
func TestGiveBackStaysWithinTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawParams(t, drawKind(t))
		var s State
		var used []unit
		given := map[int]bool{}
		now := t0 + rapid.Int64Range(0, sec).Draw(t, "start")
		begun := 0 // the first that was used since the last reset
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			now += rapid.Int64Range(0, p.Den/p.Num+1).Draw(t, "pause")
			if rapid.IntRange(0, 20).Draw(t, "reset") == 0 {
				withinLimit(t, p, used[begun:])
				now++
				s, begun = State{}, len(used)
			}
			if len(used) > 0 && rapid.IntRange(0, 2).Draw(t, "what") == 0 {
				i := rapid.IntRange(0, len(used)-1).Draw(t, "which")
				if given[i] {
					continue
				}
				given[i] = true
				if i < begun {
					if got := GiveBack(p, &s, now, used[i].at, used[i].n, used[i].n); got != 0 {
						t.Fatalf("%+v: %d of a lost state were given back", p, got)
					}
					continue
				}
				n := rapid.Int64Range(1, used[i].n).Draw(t, "unused")
				if got := GiveBack(p, &s, now, used[i].at, used[i].n, n); got < 0 || got > n {
					t.Fatalf("%+v: %d of %d were given back", p, got, n)
				}
				used[i].n -= n
				continue
			}
			n := rapid.Int64Range(1, p.Cap).Draw(t, "cost")
			if Step(p, &s, now, n).Allowed {
				used = append(used, unit{now, n})
			}
		}
		withinLimit(t, p, used[begun:])
	})
}

// TestGiveBackAtOnce: what is given back in the moment in which it was taken is
// there again.
func TestGiveBackAtOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := drawKind(t)
		p := drawParams(t, kind)
		s, now := drawState(t, p)
		before := Step(p, &s, now, 0)
		n := rapid.Int64Range(1, p.Cap).Draw(t, "n")
		if !Step(p, &s, now, n).Allowed {
			return
		}
		want := n
		if kind == LeakyBucketShaping {
			want, before.Remaining = 0, before.Remaining-n
		}
		if got := GiveBack(p, &s, now, now, n, n); got != want {
			t.Fatalf("%+v: %d of %d were given back", p, got, n)
		}
		if after := Step(p, &s, now, 0); after.Remaining != before.Remaining {
			t.Fatalf("%+v: %d remaining, and %d after %d were taken and given back", p, before.Remaining, after.Remaining, n)
		}
	})
}

// TestDebitsAreOne: a debt that is charged in several calls is the same as in one.
func TestDebitsAreOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawParams(t, drawKind(t))
		s, now := drawState(t, p)
		if rapid.Bool().Draw(t, "blocked") {
			Block(&s, now, sec)
		}
		n := rapid.Int64Range(1, 2*p.Cap).Draw(t, "n")
		age := rapid.Int64Range(0, 3*p.Den).Draw(t, "age")
		apart := s.clone()
		Debit(p, &s, now, n, age)
		for n > 0 {
			part := rapid.Int64Range(1, n).Draw(t, "part")
			Debit(p, &apart, now, part, age)
			n -= part
		}
		if got, want := apart.clone(), s.clone(); !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v: in one %+v, apart %+v", p, want, got)
		}
	})
}

// TestLateUseStaysWithin: what is charged under the late limit may be used up to
// that much later.
func TestLateUseStaysWithin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawParams(t, drawKind(t))
		late := rapid.Int64Range(0, 2*sec).Draw(t, "late")
		q, ok := p.Late(late)
		if !ok {
			return
		}
		var s State
		var used []unit
		now := t0 + rapid.Int64Range(0, sec).Draw(t, "start")
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			n := rapid.Int64Range(1, q.Cap).Draw(t, "cost")
			if d := Step(q, &s, now, n); d.Allowed {
				most := min(late, q.UntilBorder(d)-1)
				used = append(used, unit{now + rapid.Int64Range(0, most).Draw(t, "later"), n})
			}
			now += rapid.Int64Range(0, p.Den/p.Num+1).Draw(t, "pause")
		}
		slices.SortFunc(used, func(a, b unit) int { return int(a.at - b.at) })
		withinLimit(t, p, used)
	})
}

// TestPartsAddUpToTheLimit: the parts of a limit are together exactly the limit.
func TestPartsAddUpToTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawParams(t, drawKind(t))
		n := rapid.Int64Range(1, p.Cap).Draw(t, "parts")
		sum := int64(0)
		for i := range n {
			q, err := p.Part(i, n)
			if err != nil {
				t.Fatal(err)
			}
			sum += q.Cap
			if p.Kind.Windowed() && q.Den != p.Den || !p.Kind.Windowed() && q.Num*n*p.Den != p.Num*q.Den {
				t.Fatalf("part %d of %d of %+v is %+v", i, n, p, q)
			}
		}
		if sum != p.Cap {
			t.Fatalf("%d parts of %+v have %d units", n, p, sum)
		}
	})
}

// TestRetryAfterReset: what a bucket told of its reset tells when there is room
// for more.
func TestRetryAfterReset(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawParams(t, rapid.SampledFrom([]Kind{TokenBucket, LeakyBucket, GCRA}).Draw(t, "kind"))
		s, now := drawState(t, p)
		n := rapid.Int64Range(1, p.Cap).Draw(t, "n")
		d := Step(p, &s, now, n)
		if !d.Allowed {
			return
		}
		dry := s.clone()
		want := Step(p, &dry, now, n).RetryAfter
		if got := max(0, p.RetryAfterReset(d.ResetAfter, n)); got < want || got > want+1 {
			t.Fatalf("%+v, reset after %d: %d µs until %d units, want %d", p, d.ResetAfter, got, n, want)
		}
	})
}

// TestGiveBackAfterAChange: units of an earlier limit do not bring that limit back. What the key admits
// is at most what was given back more than without.
func TestGiveBackAfterAChange(t *testing.T) {
	for _, kind := range Kinds {
		for name, limits := range map[string][2]Limit{
			"a larger burst":  {{N: 10, Per: sec, Burst: 10}, {N: 10, Per: sec, Burst: 100}},
			"a smaller burst": {{N: 10, Per: sec, Burst: 100}, {N: 10, Per: sec, Burst: 10}},
			"a higher rate":   {{N: 10, Per: sec, Burst: 10}, {N: 100, Per: sec, Burst: 100}},
			"a lower rate":    {{N: 100, Per: sec, Burst: 100}, {N: 10, Per: sec, Burst: 10}},
			"another rate":    {{N: 7, Per: sec, Burst: 50}, {N: 13, Per: sec, Burst: 50}},
		} {
			t.Run(kind.String()+", "+name, func(t *testing.T) {
				limits[0].Kind, limits[1].Kind = kind, kind
				before, after := params(t, limits[0]), params(t, limits[1])
				for _, then := range []int64{0, 1, 100_000} {
					var s State
					if !Step(before, &s, t0, 3).Allowed {
						t.Fatal("denied")
					}
					now := t0 + then
					for Step(after, &s, now, 1).Allowed {
					}
					without := s.clone()
					given := GiveBack(before, &s, now, t0, 3, 3)
					more, regained := int64(0), int64(0)
					for Step(after, &s, now, 1).Allowed {
						more++
					}
					for Step(after, &without, now, 1).Allowed {
						regained++
					}
					if given < 0 || given > 3 || more > min(3, given+1)+regained || more < given-1 {
						t.Errorf("%v later: %d given back, and then %d admitted, %d without", then, given, more, regained)
					}
					same := before.Num == after.Num && before.Den == after.Den
					if bucket := kind != LeakyBucketShaping && !kind.Windowed(); bucket && then == 0 && (given > 0) != same {
						t.Errorf("%d given back", given)
					}
				}
			})
		}
	}
}
