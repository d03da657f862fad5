package lease

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
)

// bring ends a call for more with an answer, which was sent now unless it says when.
func bring(t *testing.T, ls *Lease, a Answer) {
	t.Helper()
	if !ls.Begin() {
		t.Fatal("a call is under way")
	}
	if a.Sent.IsZero() {
		a.Sent = time.Now()
	}
	ls.Fill(a)
}

// TestSmallLeases: a single unit is spent, put back and given back like any other, and none of
// them is more than there is.
func TestSmallLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, b, args := newTable(t, time.Hour, 10)
		ls := table.Find("k", args, true)
		bring(t, ls, Answer{Units: 1, At: 7})
		now := time.Now()
		if v := ls.View(now); v.Held != 1 || v.Until != now.Add(time.Hour) {
			t.Errorf("a lease of 1 unit: %+v", v)
		}
		units, ok := ls.Spend(1, now)
		if !ok {
			t.Fatal("the only unit is not spent")
		}
		if more, ok := ls.Spend(1, now); ok || more.Sum() != 0 {
			t.Error("a second unit of one is spent")
		}
		units.Undo(0)
		if held := ls.View(now).Held; held != 0 {
			t.Errorf("%d units are held after none was put back", held)
		}
		units.Undo(1)
		if held := ls.View(now).Held; held != 1 {
			t.Errorf("%d units are held after 1 was put back", held)
		}
		var none Units
		none.Undo(1) // of no lease
		b.GiveBack(table.sweep(now.Add(time.Hour), false))
		if got, want := b.units(), [][2]int64{{7, 1}}; !slices.Equal(got, want) {
			t.Errorf("%v were given back, want %v", got, want)
		}
	})
}

// TestViewOfTwoGrants: Until is the end of the grant that ends first, of those that still have
// units.
func TestViewOfTwoGrants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, _, args := newTable(t, time.Hour, 10)
		now := time.Now()
		older := table.Find("older ends first", args, true)
		bring(t, older, Answer{Units: 1})
		bring(t, older, Answer{Units: 5, Sent: now.Add(time.Minute)})
		if v := older.View(now); v.Held != 6 || v.Until != now.Add(time.Hour) {
			t.Errorf("%+v", v)
		}
		older.Spend(1, now)
		if v := older.View(now); v.Held != 5 || v.Until != now.Add(time.Hour+time.Minute) {
			t.Errorf("with the older one spent: %+v", v)
		}
		newer := table.Find("newer ends first", args, true)
		bring(t, newer, Answer{Units: 5, Sent: now.Add(time.Minute)})
		bring(t, newer, Answer{Units: 2})
		if v := newer.View(now); v.Held != 7 || v.Until != now.Add(time.Hour) {
			t.Errorf("%+v", v)
		}
		// At their end units are over, to the nanosecond.
		if v := newer.View(now.Add(time.Hour)); v.Held != 5 || v.Until != now.Add(time.Hour+time.Minute) {
			t.Errorf("when one is over: %+v", v)
		}
		if units, ok := newer.Spend(6, now.Add(time.Hour)); ok || units.Sum() != 5 {
			t.Errorf("%d units are spent of 5", units.Sum())
		}
	})
}

// TestUnitsEndWithTheirWindow: units of a window that ends before the lease's age are over with
// it.
func TestUnitsEndWithTheirWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, _, _ := newTable(t, time.Hour, 10)
		p, err := algo.Limit{Kind: algo.FixedWindow, N: 100, Per: 3600 * 1e6}.Params()
		if err != nil {
			t.Fatal(err)
		}
		args := lua.NewArgs(p)
		ls := table.Find("k", &args, true)
		bring(t, ls, Answer{Units: 3, Decision: algo.Decision{ResetAfter: 60e6}})
		now := time.Now()
		if v := ls.View(now); v.Held != 3 || v.Until != now.Add(time.Minute) || v.ResetAt != now.Add(time.Minute) {
			t.Errorf("%+v", v)
		}
	})
}

// TestWhenToAskForMore: when at most half of the lease is left, or less than a quarter of its
// time, but not before the time at which Redis may have more.
func TestWhenToAskForMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, _, args := newTable(t, time.Hour, 10)
		ls := table.Find("k", args, true)
		wants := func(after time.Duration) bool {
			at := ls.made.Add(after)
			return ls.Wants(ls.View(at), at)
		}
		bring(t, ls, Answer{Units: 6})
		if wants(0) {
			t.Error("with more than half of the lease")
		}
		if wants(45 * time.Minute) {
			t.Error("with a quarter of the time left")
		}
		if !wants(45*time.Minute + 1) {
			t.Error("not with less than a quarter of the time left")
		}
		ls.Spend(1, time.Now())
		if !wants(0) {
			t.Error("not with half of the lease")
		}
		bring(t, ls, Answer{Decision: algo.Decision{RetryAfter: 1}})
		if wants(time.Microsecond - 1) {
			t.Error("before Redis can have more")
		}
		if !wants(time.Microsecond) {
			t.Error("not when Redis may have more")
		}
		bring(t, ls, Answer{Decision: algo.Decision{RetryAfter: 60e6}})
		if wants(time.Minute - 1) {
			t.Error("before Redis can have more")
		}
		bring(t, ls, Answer{Decision: algo.Decision{Allowed: true}})
		if !wants(0) {
			t.Error("not although Redis had more earlier than it said")
		}
	})
}

// TestAskAfterAReset: a reset may give Redis more at once, whatever it said before, also in the
// answer of a call that was under way.
func TestAskAfterAReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, _, args := newTable(t, time.Hour, 10)
		ls := table.Find("k", args, true)
		wants := func() bool { return ls.Wants(ls.View(time.Now()), time.Now()) }
		bring(t, ls, Answer{Decision: algo.Decision{RetryAfter: 60e6}})
		if wants() {
			t.Fatal("before Redis can have more")
		}
		table.Drop("k")
		if !wants() {
			t.Error("not after a reset")
		}
		ls.Begin()
		table.Drop("k")
		ls.Fill(Answer{Decision: algo.Decision{RetryAfter: 60e6}, Sent: time.Now()})
		if !wants() {
			t.Error("not after a reset during a call")
		}
	})
}

// TestRoom: what is missing to a full lease is asked for, and never nothing.
func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, _, args := newTable(t, time.Hour, 10)
		ls := table.Find("k", args, true)
		for _, c := range []struct{ want, units int64 }{{10, 4}, {6, 4}, {2, 5}, {1, 6}, {1, 7}} {
			if got := ls.Room(time.Now()); got != c.want {
				t.Errorf("room for %d with %d held, want %d", got, ls.View(time.Now()).Held, c.want)
			}
			bring(t, ls, Answer{Units: c.units})
		}
		if ls.Size() != 10 {
			t.Errorf("a full lease has %d units", ls.Size())
		}
	})
}

// TestWhatRedisSaid: what is left for others is what Redis said, with what it charged to others
// in the same call and without the headroom that must stay, and never below nothing.
func TestWhatRedisSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, _, args := newTable(t, time.Hour, 10)
		kept := *args
		kept.Keep = 20
		ls := table.Find("k", &kept, true)
		now := time.Now()
		for _, c := range []struct{ remaining, behind, want int64 }{{50, 3, 33}, {20, 0, 0}, {10, 0, 0}, {21, 0, 1}} {
			bring(t, ls, Answer{Decision: algo.Decision{Remaining: c.remaining, ResetAfter: 5e6}, Behind: c.behind})
			if v := ls.View(now); v.Remaining != c.want || v.ResetAt != now.Add(5*time.Second) {
				t.Errorf("%+v: %+v", c, v)
			}
		}
		ls.Note(8, now.Add(time.Minute))
		if v := ls.View(now); v.Remaining != 8 || v.ResetAt != now.Add(time.Minute) {
			t.Errorf("after a note: %+v", v)
		}
	})
}

// TestAnswersWithoutUnits: an answer that brings no units moves no grant out.
func TestAnswersWithoutUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, b, args := newTable(t, time.Hour, 10)
		ls := table.Find("k", args, true)
		bring(t, ls, Answer{Units: 2})
		bring(t, ls, Answer{Units: 3})
		bring(t, ls, Answer{})
		if held := ls.View(time.Now()).Held; held != 5 || b.calls != 0 {
			t.Errorf("%d of 5 units are held, %d calls of the outbox", held, b.calls)
		}
	})
}

// TestNothingIsGivenBack: a grant that is spent is not given back, and asks nothing of the
// outbox when it makes room.
func TestNothingIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, b, args := newTable(t, time.Hour, 10)
		ls := table.Find("k", args, true)
		bring(t, ls, Answer{Units: 2})
		ls.Spend(2, time.Now())
		bring(t, ls, Answer{Units: 3})
		bring(t, ls, Answer{Units: 3})
		if b.calls != 0 {
			t.Error("the outbox was asked for nothing")
		}
		ls.Spend(6, time.Now())
		if back := table.sweep(time.Now().Add(time.Hour), false); len(back) != 0 {
			t.Errorf("%v are given back of nothing", back)
		}
	})
}

// TestUndoAfterTheEnd: units that are put back when their grant was over and swept go to Redis at
// once.
func TestUndoAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, b, args := newTable(t, time.Hour, 10)
		ls := table.Find("k", args, true)
		bring(t, ls, Answer{Units: 5, At: 1})
		units, _ := ls.Spend(2, time.Now())
		b.GiveBack(table.sweep(time.Now().Add(time.Hour), false))
		units.Undo(2)
		if got, want := b.units(), [][2]int64{{1, 3}, {1, 2}}; !slices.Equal(got, want) {
			t.Errorf("%v were given back, want %v", got, want)
		}
	})
}

// TestResetWhileSomebodySpends: who has read a grant just before a reset gets nothing of it
// afterwards.
func TestResetWhileSomebodySpends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, _, args := newTable(t, time.Hour, 10)
		ls := table.Find("k", args, true)
		bring(t, ls, Answer{Units: 2})
		g := ls.grants[1].Load()
		table.Drop("k")
		if got := g.take(1); got != 0 {
			t.Errorf("%d units of a grant that a reset has removed", got)
		}
	})
}

// TestOneCallAtATime: a second call for more does not begin before the first has ended, and who
// waits for one does so until it ends, its own deadline, or its context.
func TestOneCallAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, _, args := newTable(t, time.Hour, 10)
		ls := table.Find("k", args, true)
		await := func(ctx context.Context, want time.Duration) {
			t.Helper()
			begin := time.Now()
			ls.Await(ctx, begin.Add(time.Minute))
			if got := time.Since(begin); got != want {
				t.Errorf("waits %v, want %v", got, want)
			}
		}
		await(t.Context(), 0) // no call
		if !ls.Begin() || ls.Begin() {
			t.Fatal("not one call")
		}
		await(t.Context(), time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		await(ctx, time.Second)
		time.AfterFunc(2*time.Second, ls.End)
		await(t.Context(), 2*time.Second)
		if !ls.Begin() {
			t.Error("no call after the end of one")
		}
		ls.End()
	})
}
