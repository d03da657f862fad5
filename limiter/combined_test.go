package limiter

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/lua"
)

// partsOf are parts with their results; those without a limit were not asked.
func partsOf(results ...Result) *multiDecision {
	a := &multiDecision{results: results}
	for i, res := range results {
		a.parts = append(a.parts, Part{Name: string(rune('a' + i)), Limiter: new(Limiter)})
		a.asked = append(a.asked, res.Limit != Limit{})
		a.asks = append(a.asks, ask{key: string(rune('k' + i)), n: 3})
	}
	return a
}

// TestResultsOfParts: the result of several limits is allowed when all are, and has the least that remains, the longest
// times, and of a denial the limit that denies for longest.
func TestResultsOfParts(t *testing.T) {
	x, y, z := FixedWindow(PerSecond(1)), FixedWindow(PerSecond(2)), GCRA(PerSecond(3), 3)
	for name, c := range map[string]struct {
		of   []Result
		want Result
		name string
	}{
		"allowed": {
			[]Result{
				{Allowed: true, Admitted: 1, Limit: x, Remaining: 5, Delay: 2, ResetAfter: 3, Source: SourceRedis, Claim: 0.5},
				{Allowed: true, Admitted: 2, Limit: y, Remaining: 4, Delay: 1, ResetAfter: 4, Source: SourceLocal, Claim: 0.25},
				{Allowed: true, Admitted: 3, Limit: z, Remaining: 4, Delay: 1, ResetAfter: 1, Source: SourceOpen},
			},
			Result{Allowed: true, Admitted: 2, Limit: y, Remaining: 4, Delay: 2, ResetAfter: 4, Source: SourceLocal, Claim: 0.25}, "",
		},
		"the first has least": {
			[]Result{{Allowed: true, Admitted: 1, Limit: x, Remaining: 1, Source: SourceRedis}, {Allowed: true, Admitted: 2, Limit: y, Remaining: 4}},
			Result{Allowed: true, Admitted: 1, Limit: x, Remaining: 1, Source: SourceRedis}, "",
		},
		"one denies": {
			[]Result{
				{Allowed: true, Admitted: 1, Limit: x, Remaining: 0, Delay: 2, ResetAfter: 3},
				{Limit: y, Remaining: 4, RetryAfter: 7, ResetAfter: 9, Source: SourceCache, Claim: 0.125},
				{Allowed: true, Limit: z, Remaining: 2},
			},
			Result{Limit: y, Remaining: 0, RetryAfter: 7, ResetAfter: 9, Source: SourceCache, Claim: 0.125}, "b",
		},
		"two deny": {
			[]Result{{Limit: x, RetryAfter: 7, Source: SourceRedis}, {Limit: y, RetryAfter: 8, Source: SourceCache, BeyondClaim: true}, {Limit: z, RetryAfter: 8}},
			Result{Limit: y, RetryAfter: 8, Source: SourceCache, BeyondClaim: true}, "b",
		},
		"the first denies for longest": {
			[]Result{{Limit: x, RetryAfter: 9, Source: SourceRedis, BeyondClaim: true}, {Limit: y, RetryAfter: 8, Source: SourceCache}},
			Result{Limit: x, RetryAfter: 9, Source: SourceRedis, BeyondClaim: true}, "a",
		},
		"one was not asked": {
			[]Result{{Allowed: true, Remaining: -1, ResetAfter: 99}, {Allowed: true, Admitted: 2, Limit: y, Remaining: 4}, {RetryAfter: 5, BeyondClaim: true}},
			Result{Allowed: true, Admitted: 2, Limit: y, Remaining: 4}, "",
		},
	} {
		a := partsOf(c.of...)
		got := a.result()
		if got.Result != c.want || got.Denied != c.name {
			t.Errorf("%s: %+v, denied by %q; want %+v by %q", name, got.Result, got.Denied, c.want, c.name)
		}
		var parts []PartResult
		for i, res := range c.of {
			if a.asked[i] {
				parts = append(parts, PartResult{a.parts[i].Name, res})
			}
		}
		if !reflect.DeepEqual(got.Parts, parts) {
			t.Errorf("%s: %+v", name, got.Parts)
		}
		denies := false
		for i, res := range c.of {
			denies = denies || a.asked[i] && !res.Allowed
		}
		if a.denied() != denies {
			t.Errorf("%s: denied %v", name, !denies)
		}
	}
}

// TestHooksOfParts: the hook of each part that was asked is called, and of an error that of the part alone.
func TestHooksOfParts(t *testing.T) {
	x := FixedWindow(PerSecond(1))
	yes, no := Result{Allowed: true, Limit: x, Remaining: 1}, Result{Limit: x, RetryAfter: 2}
	fails := errors.New("no answer")
	for name, c := range map[string]struct {
		allowed bool
		err     error
		failed  int
		peeks   bool
		want    map[int]DecisionInfo
	}{
		"allowed": {allowed: true, want: map[int]DecisionInfo{0: {Result: yes}, 1: {Result: no}}},
		"denied":  {want: map[int]DecisionInfo{0: {Result: yes, NotCharged: true}, 1: {Result: no}}},
		"failed":  {err: fails, failed: 1, want: map[int]DecisionInfo{1: {Err: fails}}},
		"before":  {err: fails, failed: 2, want: map[int]DecisionInfo{2: {Err: fails}}},
		"peeks":   {allowed: true, peeks: true, want: map[int]DecisionInfo{}},
	} {
		a, told := partsOf(yes, no, Result{}), map[int]DecisionInfo{}
		for i := range a.parts {
			a.parts[i].Limiter.hook = func(_ context.Context, d DecisionInfo) { told[i] = d }
			if c.peeks {
				a.asks[i].n = 0
			}
		}
		a.callHooks(t.Context(), c.allowed, c.failed, c.err, time.Second)
		for i, want := range c.want {
			want.Key, want.Cost, want.Took = string(rune('k'+i)), 3, time.Second
			c.want[i] = want
		}
		if !reflect.DeepEqual(told, c.want) {
			t.Errorf("%s: %+v, want %+v", name, told, c.want)
		}
	}
}

// TestEither: of two parts of a key that denied, what says when to come back, and how much there is.
func TestEither(t *testing.T) {
	a := Result{RetryAfter: 1, Remaining: 1, ResetAfter: 9, BeyondClaim: true, Source: SourceLocal, Claim: 0.5}
	b := Result{RetryAfter: 2, Remaining: 3, ResetAfter: 8, BeyondClaim: true, Source: SourceCache}
	for _, c := range []struct{ beyondA, beyondB bool }{{true, true}, {true, false}, {false, true}, {false, false}} {
		a.BeyondClaim, b.BeyondClaim = c.beyondA, c.beyondB
		want := Result{RetryAfter: 1, Remaining: 3, ResetAfter: 9, BeyondClaim: c.beyondA && c.beyondB, Source: SourceLocal, Claim: 0.5}
		for _, got := range []Result{either(a, b), either(b, a)} {
			if got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		}
	}
	same := b
	same.RetryAfter, same.BeyondClaim = a.RetryAfter, a.BeyondClaim
	if got := either(a, same); got.Source != SourceLocal {
		t.Errorf("%+v: the first one holds", got)
	}
}

// TestDecisionsAreUsedAgain: nothing of a decision is left in the memory that the next one uses.
func TestDecisionsAreUsedAgain(t *testing.T) {
	one, err := NewLocal(FixedWindow(PerSecond(5)))
	if err != nil {
		t.Fatal(err)
	}
	m := &Multi{parts: []Part{{Name: "a", Limiter: one}, {Name: "b", Limiter: one}}, clients: []int{0, 1}}
	for range 100 { // the pool may lose one
		a := m.begin("k", []CallOption{AtMost(4)}, make([]receipt, 2))
		if !a.fewer || a.asks[0].n != 4 || len(a.receipts) != 2 {
			t.Fatalf("%+v", a)
		}
		a.specs[1], a.requests[1].n, a.results[1].Admitted, a.asked[1], a.end, a.unsure = new(spec), 7, 7, true, time.Now(), true
		items := []lua.Item{{Cost: 7}}
		a.items = items
		m.finished(a)
		if a.specs[1] != nil || a.requests[1].n != 0 || a.results[1].Admitted != 0 || a.asked[1] || a.asks[0] != (ask{}) || a.receipts != nil || !a.end.IsZero() || a.fewer || a.unsure || items[0].Cost != 0 {
			t.Fatalf("%+v is left", a)
		}
		b := m.begin("k", nil, nil)
		if b.fewer || b.asks[1].n != 1 || b.receipts != nil || b.unsure || b.asked[0] || b.asked[1] {
			t.Fatalf("%+v is left", b)
		}
		if b == a {
			return
		}
	}
	t.Error("no memory is used again")
}
