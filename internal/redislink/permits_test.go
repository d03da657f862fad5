package redislink

import (
	"context"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/lua"
)

// permitOps ask for permits of a and c, and give one of b back.
func permitOps() (ops []*Op) {
	for _, o := range []Op{
		{ID: "a", Permits: &lua.PermitAsk{ID: "a", Key: names.Permits("a"), Most: 1, TTL: 1000, Callers: []string{"first"}}},
		{ID: "b", Leave: &lua.Leaver{ID: "b", Key: names.Permits("b"), Caller: "second"}},
		{ID: "c", Permits: &lua.PermitAsk{ID: "c", Key: names.Permits("c"), Most: 1, TTL: 1000, Callers: []string{"third"}}},
	} {
		o.done, o.ctx, o.deadline = make(chan struct{}, 1), context.Background(), time.Now().Add(time.Minute)
		ops = append(ops, &o)
	}
	return ops
}

// TestPermitsOfOneCommand: each of those who share a command gets its own answer; the one whose key holds
// something else gets an error alone.
func TestPermitsOfOneCommand(t *testing.T) {
	const now = 1_760_000_000_000_000
	for name, c := range map[string]struct {
		answers []any
		classes []breaker.Class
	}{
		"together":       {[]any{[]int64{now, 1, 0, 0, 1, 2, 3, 4, 0}}, []breaker.Class{breaker.ClassOK, breaker.ClassOK, breaker.ClassOK}},
		"one is broken":  {[]any{[]int64{now, -1, 0, 0, 0, 2, 3, 4, 0}}, []breaker.Class{breaker.ClassBug, breaker.ClassOK, breaker.ClassOK}},
		"cluster":        {[]any{rejection("CROSSSLOT"), []int64{now, 1, 0, 0, 1}, int64(1), []int64{now, 2, 3, 4, 0}}, []breaker.Class{breaker.ClassOK, breaker.ClassOK, breaker.ClassOK}},
		"migrating slot": {[]any{rejection("TRYAGAIN"), []int64{now, 1, 0, 0, 1}, int64(1), &net.OpError{Op: "read", Err: net.ErrClosed}}, []breaker.Class{breaker.ClassOK, breaker.ClassOK, breaker.ClassUnavailable}},
	} {
		t.Run(name, func(t *testing.T) {
			l := unused(t, 128)
			d := &doer{answers: c.answers}
			l.wire.lua = lua.NewClient(d)
			ops := permitOps()
			fly(l, ops...)
			for i, o := range ops {
				if o.Class != c.classes[i] || (o.Err == nil) != (o.Class == breaker.ClassOK) {
					t.Errorf("request %d: %v, %v", i, o.Class, o.Err)
				}
			}
			if got := ops[0].Got; ops[0].Err == nil && (got.Held != 1 || !slices.Equal(got.Granted, []bool{true})) {
				t.Errorf("the first: %+v", got)
			}
			if got := ops[2].Got; ops[2].Err == nil && (got.Held != 2 || got.Ahead != 3 || got.NextEnd != 4 || !slices.Equal(got.Granted, []bool{false})) {
				t.Errorf("the third: %+v", got)
			}
			if d.calls != len(c.answers) {
				t.Errorf("%d commands, want %d", d.calls, len(c.answers))
			}
		})
	}
}

// TestReleaseIsSentAfterItsCaller: a call that gives a permit back is made also when all its callers have
// left before it was written: otherwise the permit would be held until its time to live ends.
func TestReleaseIsSentAfterItsCaller(t *testing.T) {
	for i, want := range []bool{true, false, true} { // withdrawn
		l := unused(t, 128)
		q, o := only(l), permitOps()[i]
		q.mu.Lock()
		f := q.gather(o)
		f.ticket, _ = q.breaker.Acquire()
		d := q.depart(o, errBudget)
		q.mu.Unlock()
		if was := d.why == errUnsent; was != want || was != (f.written.Load() == withdrawn) {
			t.Errorf("request %d: withdrawn %v", i, was)
		}
		d.ticket.Done(breaker.ClassAborted, 0)
	}
}
