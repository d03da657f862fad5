package lease

import (
	"context"
	"fmt"
	"hash/maphash"
	"runtime"
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
		b.GiveBack(table.sweep(now.Add(time.Hour)))
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
		if back := table.sweep(time.Now().Add(time.Hour)); len(back) != 0 {
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
		b.GiveBack(table.sweep(time.Now().Add(time.Hour)))
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

// TestALeaseInUseIsKept: one with units, or with a call for more under way, makes no room for
// another key. One that is not used makes room, and what a late call brings to it goes back.
func TestALeaseInUseIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, b, args := newTable(t, time.Hour, 1)
		now := time.Now()
		ls := table.Find("k", args, true)
		kept := func(at time.Duration, want bool) {
			t.Helper()
			b.GiveBack(table.sweep(now.Add(at)))
			if found := table.Find("k", args, false) == ls; found != want {
				t.Errorf("after %v: kept: %v", at, found)
			}
		}
		bring(t, ls, Answer{Units: 2, Sent: now.Add(3 * time.Hour)})
		bring(t, ls, Answer{Units: 1})
		kept(3*time.Hour, true) // the older one has units until later than the newer one
		if got, want := b.units(), [][2]int64{{0, 1}}; !slices.Equal(got, want) {
			t.Errorf("%v were given back, want %v", got, want)
		}
		ls.Begin()
		kept(9*time.Hour, true) // a call is under way
		ls.End()
		b.units()
		used := table.Find("k", args, true)
		bring(t, used, Answer{Units: 1, Sent: now.Add(9 * time.Hour)})
		kept(10*time.Hour, true)
		kept(11*time.Hour-1, true) // was used until less than its age ago
		kept(11*time.Hour, false)
		b.units()
		bring(t, ls, Answer{Units: 4, At: 1, Sent: now.Add(11 * time.Hour)})
		if got, want := b.units(), [][2]int64{{1, 4}}; !slices.Equal(got, want) {
			t.Errorf("%v were given back of a lease that is none any more, want %v", got, want)
		}
		if units, ok := ls.Spend(1, now.Add(11*time.Hour)); ok {
			t.Errorf("%d units of a lease that is none any more", units.Sum())
		}
		if again := table.Find("k", args, true); again == nil || again == ls {
			t.Error("no new lease in place of the one that was not used")
		}
	})
}

// TestSweeps: what is over is given back within a quarter of a lease's age, by itself, until no
// lease is left or the table is closed.
func TestSweeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		table, b, args := newTable(t, time.Hour, 10)
		time.Sleep(time.Hour)
		if b.calls != 0 {
			t.Error("sweeps without a lease")
		}
		ls := table.Find("k", args, true)
		time.Sleep(5 * time.Minute)
		bring(t, ls, Answer{Units: 2})
		time.Sleep(9 * time.Hour)
		synctest.Wait()
		if got, want := b.at(start), []time.Duration{2*time.Hour + 15*time.Minute}; !slices.Equal(got, want) {
			t.Errorf("given back at %v, want %v", got, want)
		}
		// The lease is used until an hour and five minutes after it was made, and in the table
		// for another hour; the sweep at 2 hours and 15 minutes is the last.
		if b.calls != 9 {
			t.Errorf("%d sweeps", b.calls)
		}
		if table.Find("k", args, false) != nil || table.count.Load() != 0 {
			t.Error("a lease is left")
		}
		bring(t, table.Find("k", args, true), Answer{Units: 2})
		table.Close()
		calls := b.calls
		time.Sleep(9 * time.Hour)
		synctest.Wait()
		if b.calls != calls {
			t.Error("sweeps after Close")
		}
	})
}

// TestShortLeases: sweeps are at least a millisecond apart.
func TestShortLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		table, b, args := newTable(t, 2*time.Millisecond, 10)
		ls := table.Find("k", args, true)
		time.Sleep(time.Millisecond)
		bring(t, ls, Answer{Units: 2})
		time.Sleep(9 * time.Millisecond)
		synctest.Wait()
		if got, want := b.at(start), []time.Duration{3 * time.Millisecond}; !slices.Equal(got, want) {
			t.Errorf("given back at %v, want %v", got, want)
		}
		if b.calls != 5 { // until a lease's age after its last units
			t.Errorf("%d sweeps", b.calls)
		}
	})
}

// TestManyLeases: each key, and each limit of a key, has its own lease, also where several keys
// have one place in the part of the table that is read without a lock.
func TestManyLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, _, args := newTable(t, time.Hour, 1<<20)
		other := *args
		other.Keep = 20
		seen := map[*Lease]bool{}
		for i := range 2 * slots {
			id := fmt.Sprint(i)
			for _, a := range []*lua.Args{args, &other} {
				ls := table.Find(id, a, true)
				if ls.id != id || ls.params.Keep != a.Keep || seen[ls] {
					t.Fatalf("key %s has the lease of %s with another limit", id, ls.id)
				}
				seen[ls] = true
				if table.slots[maphash.String(table.seed, id)%slots].Load() != ls {
					t.Fatalf("a new lease of key %s is not found without a lock", id)
				}
			}
		}
		for i := range 2 * slots {
			id := fmt.Sprint(i)
			for _, a := range []*lua.Args{args, &other, args} {
				if ls := table.Find(id, a, false); ls == nil || ls.id != id || ls.params.Keep != a.Keep {
					t.Fatalf("key %s has another's lease", id)
				}
				// The one who asked last is found without a lock.
				if got := table.slots[maphash.String(table.seed, id)%slots].Load(); got.id != id || got.params.Keep != a.Keep {
					t.Fatalf("key %s is not found without a lock", id)
				}
			}
		}
	})
}

// TestTwoLimitsOfAKey: when one of them is not used, the other stays, and is swept and reset.
func TestTwoLimitsOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, _, args := newTable(t, time.Hour, 10)
		other := *args
		other.Keep = 20
		now := time.Now()
		table.Find("k", args, true)
		ls := table.Find("k", &other, true)
		bring(t, ls, Answer{Units: 2, Sent: now.Add(time.Hour)})
		table.sweep(now.Add(time.Hour))
		if table.Find("k", args, false) != nil || table.Find("k", &other, false) != ls {
			t.Error("the lease that is used is not the one that stays")
		}
		table.sweep(now.Add(time.Hour))
		table.Drop("k")
		if held := ls.View(now).Held; held != 0 {
			t.Errorf("%d units are held after a reset", held)
		}
	})
}

// TestGiveBacksHaveOneOrder: the same leases are given back in the same order in each run, which
// a simulation that is run again relies on.
func TestGiveBacksHaveOneOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, _, args := newTable(t, time.Hour, 100)
		for i := range 50 {
			bring(t, table.Find(fmt.Sprint(i), args, true), Answer{Units: 2})
		}
		var ids []string
		for _, back := range table.sweep(time.Now().Add(time.Hour)) {
			ids = append(ids, back.Keys.ID())
		}
		if len(ids) != 50 || !slices.IsSorted(ids) {
			t.Errorf("%v", ids)
		}
	})
}

// TestViewsAreWhole: a view has the units and the words of Redis of the same answer, or of
// answers as a whole, while others arrive.
func TestViewsAreWhole(t *testing.T) {
	table, _, args := newTable(t, time.Hour, 10)
	ls := table.Find("k", args, true)
	now := time.Now()
	const answers = 20_000
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := int64(1); i <= answers && ls.Begin(); i++ {
			ls.Fill(Answer{Decision: algo.Decision{Remaining: i}, Sent: now, Units: i})
		}
	}()
	for v := (View{}); v.Remaining < answers; {
		if v = ls.View(now); v.Remaining > 0 && v.Held != 2*v.Remaining-1 {
			t.Errorf("%d held with answer %d: not those of the last two answers", v.Held, v.Remaining)
			break
		}
	}
	<-done

	// While an answer is put in, a view waits for it.
	ls.mu.Lock()
	ls.writes.Add(1)
	begun, view := make(chan struct{}), make(chan View, 1)
	go func() {
		close(begun)
		view <- ls.View(now)
	}()
	<-begun
	for range 1000 {
		runtime.Gosched()
	}
	if len(view) > 0 {
		t.Error("a view of half an answer")
	}
	ls.seen.Store(&seen{remaining: 9})
	ls.writes.Add(1)
	ls.mu.Unlock()
	if v := <-view; v.Remaining != 9 {
		t.Errorf("%+v", v)
	}
}
