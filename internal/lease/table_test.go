package lease

import (
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

// TestALeaseInUseIsKept: one with units, or with a call for more under way, makes no room for
// another key. One that is not used makes room, and what a late call brings to it goes back.
func TestALeaseInUseIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, b, args := newTable(t, time.Hour, 1)
		now := time.Now()
		ls := table.Find("k", args, true)
		kept := func(at time.Duration, want bool) {
			t.Helper()
			b.GiveBack(table.sweep(now.Add(at), false))
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
		table.sweep(now.Add(time.Hour), false)
		if table.Find("k", args, false) != nil || table.Find("k", &other, false) != ls {
			t.Error("the lease that is used is not the one that stays")
		}
		table.sweep(now.Add(time.Hour), false)
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
		for _, back := range table.sweep(time.Now().Add(time.Hour), false) {
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
