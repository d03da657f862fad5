package redislink

import (
	"testing"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
)

// TestShapingReturnsNothing: a give-back that asks the server for nothing says nothing about
// it. The breaker once took it for an answer, between failures.
func TestShapingReturnsNothing(t *testing.T) {
	l := unused(t, 128)
	d := &doer{}
	only(l).wire.lua = lua.NewClient(d)
	srv := l.Server("a")
	report := func(class breaker.Class, times int) {
		for range times {
			p, _ := srv.Breaker.Acquire()
			p.Report(class, breaker.ProofWrite, 0)
		}
	}
	report(breaker.ClassOK, 50) // so that the ratio of failures does not open it
	report(breaker.ClassUnavailable, 9)
	a := args(t, algo.LeakyBucketShaping)
	called := 0
	o := &Op{ID: "a", Taken: &lua.Taken{Keys: names.KeysOf(a.Kind, "a"), Params: *a, Units: 3}, After: func(*Op, bool) { called++ }}
	if err := l.Ask(t.Context(), srv, o, l.Budget); err != nil || o.Given != 0 || called != 1 {
		t.Errorf("%d given back, %v, After was called %d times", o.Given, err, called)
	}
	report(breaker.ClassUnavailable, 1)
	if state := srv.Breaker.State(); d.calls != 0 || state != breaker.Open {
		t.Errorf("%d calls; after 10 consecutive failures the breaker is %v", d.calls, state)
	}
	if len(srv.queue.flights) != 0 {
		t.Error("a call is in flight")
	}
}
