package lease

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
)

// box is an Outbox that notes what it gets.
type box struct {
	mu    sync.Mutex
	calls int
	got   []lua.Taken
	times []time.Time // of each call that brought something
}

func (b *box) GiveBack(items []lua.Taken) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls++
	if len(items) > 0 {
		b.times = append(b.times, time.Now())
	}
	b.got = append(b.got, items...)
	return true
}

func (b *box) GiveBackSoon(items []lua.Taken) { b.GiveBack(items) }

// units returns when the units of each item were charged, and how many they are, and forgets them.
func (b *box) units() (out [][2]int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range b.got {
		out = append(out, [2]int64{t.At, t.Units})
	}
	b.got = nil
	return out
}

// at returns when something was brought, since a time.
func (b *box) at(start time.Time) (out []time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, at := range b.times {
		out = append(out, at.Sub(start))
	}
	return out
}

func newTable(t *testing.T, age time.Duration, keys int64) (*Table, *box, *lua.Args) {
	t.Helper()
	p, err := algo.Limit{Kind: algo.GCRA, N: 100, Per: 3600 * 1e6, Burst: 100}.Params()
	if err != nil {
		t.Fatal(err)
	}
	b, args := new(box), lua.NewArgs(p)
	table := New(Config{
		Size: 10, Age: age, Max: keys, Names: lua.NewNamer("p"), Outbox: b,
		Start: func(fn func(context.Context)) bool { fn(t.Context()); return true },
	})
	t.Cleanup(table.Close)
	return table, b, &args
}

// fill brings n units more, as one call, of which the first has the number 1.
func fill(t *testing.T, ls *Lease, n int64) {
	t.Helper()
	if !ls.Begin() {
		t.Fatal("a call is under way")
	}
	ls.Fill(Answer{Decision: algo.Decision{Allowed: true, Remaining: 50}, Sent: time.Now(), Units: n, At: 1})
}

// TestUnitsAreSpentOnce: units that were taken are not held, those that were put back are,
// and the oldest grant is given back when a third one comes.
func TestUnitsAreSpentOnce(t *testing.T) {
	table, b, args := newTable(t, time.Hour, 10)
	ls := table.Find("k", args, true)
	fill(t, ls, 5)
	fill(t, ls, 5)
	now := time.Now()
	units, ok := ls.Spend(7, now)
	if !ok || units.Sum() != 7 || ls.View(now).Held != 3 {
		t.Fatalf("%v, %d taken, %+v", ok, units.Sum(), ls.View(now))
	}
	units.Undo(6) // 5 of the older grant, 1 of the newer one
	if v := ls.View(now); v.Held != 9 || v.Remaining != 50 {
		t.Fatalf("%+v", v)
	}
	fill(t, ls, 5)
	if got, want := b.units(), [][2]int64{{1, 5}}; !slices.Equal(got, want) {
		t.Errorf("%v were given back, want %v", got, want)
	}
	if rest, ok := ls.Spend(20, now); ok || rest.Sum() != 9 {
		t.Errorf("%v, %d taken of 9", ok, rest.Sum())
	}
}

// TestUndoAfterTheGrantMovedOn: units that are put back into a grant which the lease does
// not have any more go to Redis, with numbers that were not given back before.
func TestUndoAfterTheGrantMovedOn(t *testing.T) {
	table, b, args := newTable(t, time.Hour, 10)
	ls := table.Find("k", args, true)
	fill(t, ls, 5)
	units, _ := ls.Spend(2, time.Now())
	fill(t, ls, 5)
	fill(t, ls, 5)
	units.Undo(2)
	if got, want := b.units(), [][2]int64{{1, 3}, {1, 2}}; !slices.Equal(got, want) {
		t.Errorf("%v were given back, want %v", got, want)
	}
	if held := ls.View(time.Now()).Held; held != 10 {
		t.Errorf("%d are held", held)
	}
}

// TestDropVoidsWhatIsUnderWay: what was held and what a call brings that was under way at a
// reset is neither spent nor given back: the reset has removed its charge.
func TestDropVoidsWhatIsUnderWay(t *testing.T) {
	table, b, args := newTable(t, time.Hour, 10)
	ls := table.Find("k", args, true)
	fill(t, ls, 5)
	units, _ := ls.Spend(2, time.Now())
	if !ls.Begin() {
		t.Fatal("a call is under way")
	}
	table.Drop("k")
	ls.Fill(Answer{Decision: algo.Decision{Allowed: true}, Sent: time.Now(), Units: 10, At: 1})
	units.Undo(2)
	if held, got := ls.View(time.Now()).Held, b.units(); held != 0 || got != nil {
		t.Errorf("%d are held, %v were given back", held, got)
	}
	fill(t, ls, 4)
	if held := ls.View(time.Now()).Held; held != 4 {
		t.Errorf("%d are held after the next call", held)
	}
}

// TestCloseGivesBack: everything, once; then there are no leases.
func TestCloseGivesBack(t *testing.T) {
	table, b, args := newTable(t, time.Hour, 10)
	fill(t, table.Find("a", args, true), 4)
	fill(t, table.Find("b", args, true), 6)
	table.Close()
	table.Close()
	var sum int64
	for _, u := range b.units() {
		sum += u[1]
	}
	if sum != 10 || table.Find("c", args, true) != nil {
		t.Errorf("%d of 10 units were given back; a lease after Close: %v", sum, table.Find("c", args, true))
	}
}

// TestUnusedLeasesMakeRoom: there are at most Max leases, and one that was not used for its
// age makes room for another key.
func TestUnusedLeasesMakeRoom(t *testing.T) {
	table, b, args := newTable(t, time.Hour, 1)
	fill(t, table.Find("a", args, true), 4)
	if ls := table.Find("b", args, true); ls != nil {
		t.Fatal("a second lease of one")
	}
	later := time.Now().Add(time.Hour)
	b.GiveBack(table.sweep(later, false))
	if got, want := b.units(), [][2]int64{{1, 4}}; !slices.Equal(got, want) {
		t.Errorf("%v were given back, want %v", got, want)
	}
	if ls := table.Find("b", args, true); ls != nil {
		t.Error("a lease that was used until a moment ago made room")
	}
	table.sweep(later.Add(time.Hour), false)
	if ls := table.Find("b", args, true); ls == nil {
		t.Error("a lease that is not used made no room")
	}
}

// TestLeasesAreSafe spends, fills and drops from many goroutines, for the race detector:
// no unit is spent twice.
func TestLeasesAreSafe(t *testing.T) {
	table, _, args := newTable(t, time.Hour, 10)
	var filled, spent sync.Map
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			var in, out int64
			for j := range 2000 {
				ls := table.Find("k", args, true)
				if (i+j)%4 == 0 && ls.Begin() {
					ls.Fill(Answer{Decision: algo.Decision{Allowed: true}, Sent: time.Now(), Units: 3, At: 1})
					in += 3
				}
				units, ok := ls.Spend(2, time.Now())
				if ok {
					out += 2
				} else {
					units.Undo(2)
				}
			}
			filled.Store(i, in)
			spent.Store(i, out)
		})
	}
	wg.Wait()
	sum := func(m *sync.Map) (n int64) {
		m.Range(func(_, v any) bool { n += v.(int64); return true })
		return n
	}
	if in, out := sum(&filled), sum(&spent); out > in {
		t.Errorf("%d units were spent of %d", out, in)
	}
}

// TestViewsTakeNoLock while nothing is put in, also after several answers, with units and without.
func TestViewsTakeNoLock(t *testing.T) {
	table, _, args := newTable(t, time.Hour, 10)
	ls := table.Find("k", args, true)
	for i := range int64(4) {
		fill(t, ls, i)
		ls.mu.Lock()
		view := make(chan View, 1)
		go func() { view <- ls.View(time.Now()) }()
		select {
		case v := <-view:
			if v.Remaining != 50 {
				t.Errorf("%+v", v)
			}
		case <-time.After(10 * time.Second):
			t.Error("a view waits for the lock")
		}
		ls.mu.Unlock()
	}
}
