package sampled

import (
	"hash/maphash"
	"math"
	"testing"
)

// near reports whether two numbers differ by less than what floating point adds.
func near(a, b float64) bool { return math.Abs(a-b) < 1e-6 }

// TestNumbersOfAPlan: what a process may admit, by what it is asked for, what the fleet is asked for and what it knew before.
func TestNumbersOfAPlan(t *testing.T) {
	for i, c := range []struct {
		before                demand
		own, intervals, fleet float64
		processes             int
		fleetThen             float64 // as it counts
		quota, most           float64
	}{
		{demand{}, 30, 1, 80, 4, 80, 35, 44.693064}, {demand{}, 30, 1, 200, 4, 200, 15, 23.745967}, {demand{}, 30, 1, 10, 2, 30, 65, 65},
		{demand{}, 30, 1, 30, 1, 30, 100, 100}, {demand{}, 30, 1, 30, 0, 30, 100, 100}, {demand{}, 0, 1, 99, 1, 99, 1, 1}, {demand{}, 1, 1, 100, 9, 100, 1, 4},
		// A step begins at 16 + (1.5·2·√64 + 2)/4.
		{demand{16, 40, true}, 22.5, 4, 40, 1, 40, 82.5, 82.5}, {demand{16, 40, true}, 23, 4, 40, 1, 57.5, 65.5, 65.5}, {demand{16, 40, false}, 23, 4, 40, 1, 40, 83, 83},
		{demand{16, 40, true}, 23, 4, 60, 1, 60, 63, 63}, {demand{0, 10, true}, 5, 4, 5, 1, 200, 2.5, 6.662278}, {demand{0, 10, true}, 0.5, 4, 5, 1, 5, 95.5, 95.5},
		{demand{16, 40, true}, 0, 4, 40, 1, 40, 60, 60},
	} {
		d := c.before
		p := d.next(c.own, c.intervals, c.fleet, 100, c.processes)
		if d != (demand{c.own, d.fleet, true}) || !near(d.fleet, c.fleetThen) || p.own != c.own || !near(p.quota, c.quota) || !near(p.most, c.most) {
			t.Errorf("%d: %+v, %+v", i, d, p)
		}
	}
	if p := (plan{own: 9, quota: 15, most: 1}).expect(30); p.own != 30 || p.quota != 15 || !near(p.most, 23.745967) {
		t.Errorf("%+v", p)
	}
	if p := alone(7, 100, 0.25); p != (plan{own: 7, quota: 25, most: 26}) {
		t.Errorf("%+v", p)
	}
	if a, b := first(100, 0.25), first(1, 0.25); a != 25 || b != 1 {
		t.Error(a, b)
	}
}

// TestNumbersOfTheLastIntervals: their mean, of ten at most, from a step on.
func TestNumbersOfTheLastIntervals(t *testing.T) {
	for i, c := range []struct {
		of   recent
		add  float64
		want recent
	}{
		{recent{}, 0, recent{0, 1}}, {recent{}, 50, recent{50, 1}}, {recent{100, 1}, 122, recent{222, 2}}, {recent{100, 1}, 123, recent{123, 1}}, {recent{200, 2}, 78, recent{278, 3}},
		{recent{200, 2}, 77, recent{77, 1}}, {recent{0, 5}, 2, recent{2, 6}}, {recent{0, 5}, 3, recent{3, 1}}, {recent{900, 9}, 100, recent{1000, 10}}, {recent{1000, 10}, 110, recent{1010, 10}},
	} {
		if c.of.add(c.add); c.of != c.want {
			t.Errorf("%d: %+v, want %+v", i, c.of, c.want)
		}
	}
	for r, want := range map[recent]float64{{}: 0, {100, 1}: 100, {100, 4}: 25} {
		if r.mean() != want {
			t.Errorf("%+v: %v", r, r.mean())
		}
	}
}

// TestNumbersOfAnInterval: how much it begins with, what it leaves to the next one, and with which probability each is
// admitted.
func TestNumbersOfAnInterval(t *testing.T) {
	for i, c := range []struct {
		of    carry
		left  int64
		part  plan
		units int64
		then  float64
		p     float64
	}{
		{0.25, 1, plan{own: 20, quota: 2.5, most: 10}, 3, 0.75, (3.75 + math.Sqrt(3.75)) / 20}, {0.25, 1, plan{own: 5, quota: 2.5, most: 10}, 3, 0.75, 1},
		{0.9, 0, plan{own: 20, quota: 0.3, most: 0.5}, 1, 0, 0.1}, {0, 0, plan{own: 20, quota: 0.1, most: 5}, 0, 0.1, (0.1 + math.Sqrt(0.1)) / 20},
		{0, 0, plan{quota: 0.1, most: 5}, 0, 0.1, 1}, {0, 0, plan{own: 20, quota: 1 - 1e-10, most: 5}, 1, -1e-10, 0.1}, {0, 9, plan{own: 20, quota: 9, most: 12}, 12, 0, (12 + math.Sqrt(12)) / 20},
		{0, -3, plan{own: 20, quota: 1, most: 12}, -2, 0, 0}, {0, 0, plan{own: 1e12, quota: 1e12, most: 1e12}, math.MaxInt32, 0, (math.MaxInt32 + math.Sqrt(math.MaxInt32)) / 1e12},
	} {
		units, p := c.of.begin(c.left, c.part)
		if units != c.units || !near(float64(c.of), c.then) || math.Abs(p-c.p) > 1e-9 {
			t.Errorf("%d: %d, %v, %v", i, units, c.of, p)
		}
	}
	var k sample
	for p, want := range map[float64]uint64{0: 0, 0.25: 1 << 62, 0.5: 1 << 63, 1: always, 2: always} {
		before := k.salt.Load()
		if k.admit(p); k.threshold.Load() != want || k.salt.Load() == before {
			t.Errorf("%v: below %d", p, k.threshold.Load())
		}
	}
}

// TestIntervalsWithoutAReport: a process that has no plan has its share, one that has keeps it, whether that was made with
// Redis or without.
func TestIntervalsWithoutAReport(t *testing.T) {
	var k sample
	k.again(7, 100, 0.25)
	if k.left.Load() != 25 || !k.local.Load() || k.plan != (plan{own: 7, quota: 25, most: 26}) {
		t.Errorf("without a plan: %d, %v, %+v", k.left.Load(), k.local.Load(), k.plan)
	}
	k.again(9, 100, 0.5)
	if k.left.Load() != 26 || !k.local.Load() || k.plan != (plan{own: 9, quota: 25, most: 26}) {
		t.Errorf("with its share: %d, %v, %+v", k.left.Load(), k.local.Load(), k.plan)
	}
	k.begin(plan{own: 10, quota: 15, most: 15}, false)
	k.again(30, 100, 0.5)
	if k.left.Load() != 23 || k.local.Load() || !near(k.plan.most, 23.745967) || k.plan.own != 30 {
		t.Errorf("with a plan: %d, %v, %+v", k.left.Load(), k.local.Load(), k.plan)
	}
	k.denied.Store(40)
	k.begin(plan{own: 10, quota: 50, most: 15}, false)
	if k.left.Load() != 40 || k.plan.most != 15 {
		t.Errorf("for a cost of 40: %d, %+v", k.left.Load(), k.plan)
	}
}

// TestTable: it has as many keys as it may, each once, each with random numbers of its own, and finds what was found last by
// one load.
func TestTable(t *testing.T) {
	table := &sampleTable{seed: maphash.MakeSeed(), max: 2}
	begun := 0
	begin := func(*sample) { begun++ }
	a, made := table.add("a b", begin)
	if !made || a.key != "a b" || a.id != "a%20b" || begun != 1 {
		t.Errorf("%+v, %v, %d", a, made, begun)
	}
	if again, made := table.add("a b", begin); made || again != a || table.count.Load() != 1 {
		t.Errorf("twice: %v, %d keys", made, table.count.Load())
	}
	b, _ := table.add("b", begin)
	if c, made := table.add("c", begin); c != nil || made || table.count.Load() != 2 {
		t.Errorf("one too many: %v, %d keys", made, table.count.Load())
	}
	if a.salt.Load() == b.salt.Load() || a.draw(1) == a.draw(2) || a.draw(1) == b.draw(1) {
		t.Error("keys share random numbers")
	}
	if all := table.all(); len(all) != 2 {
		t.Errorf("%d keys", len(all))
	}
	k, h := table.find("b")
	if k != b || table.cells[h%tableCells].Load() != b {
		t.Error("it is not found by one load")
	}
	table.cells[h%tableCells].Store(a) // another key of the same cell
	if k, _ := table.find("b"); k != b {
		t.Error("it is hidden by another key")
	}
	same := &sample{key: "b"} // which no other way leads to
	table.cells[h%tableCells].Store(same)
	if k, _ := table.find("b"); k != same {
		t.Error("what was found last is searched for")
	}
	table.cells[h%tableCells].Store(b)
	table.drop(b)
	if k, _ := table.find("b"); k != nil || table.cells[h%tableCells].Load() != nil || table.count.Load() != 1 {
		t.Errorf("it was dropped: %+v, %d keys", k, table.count.Load())
	}
}
