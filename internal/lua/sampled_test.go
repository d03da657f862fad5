package lua_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// TestReportClockStepsBack: a process that dies is called dead after its time to live,
// though the clock steps back meanwhile, and one that lives is not.
func TestReportClockStepsBack(t *testing.T) {
	c, names := lua.NewClient(newClient(t)), lua.NewNamer("p")
	now, life := int64(1_760_000_000_000_000), int64(4*second)
	report := func(process int64, rate int64) (alive, dead, fleet int64) {
		t.Helper()
		asked := []lua.Asked{{ID: "k", Rate: rate}}
		alive, dead, err := c.Report(t.Context(), now, names, process, life, asked)
		if err != nil {
			t.Fatal(err)
		}
		return alive, dead, asked[0].Fleet
	}
	report(1, 70)
	if alive, dead, fleet := report(2, 5); alive != 2 || dead != 0 || fleet != 75 {
		t.Fatalf("%d alive, dead: %d, %d asked for", alive, dead, fleet)
	}
	now -= 3600 * second
	for range 2 {
		if alive, dead, _ := report(2, 5); alive != 2 || dead != 0 {
			t.Errorf("%d alive, dead: %d", alive, dead)
		}
		now += life / 2
	}
	now++
	if _, dead, _ := report(2, 5); dead != 1 {
		t.Errorf("dead: %d", dead)
	}
	if more, err := c.Bury(t.Context(), now, names, 1, false); more || err != nil {
		t.Error(more, err)
	}
	if alive, dead, fleet := report(2, 5); alive != 1 || dead != 0 || fleet != 5 {
		t.Errorf("%d alive, dead: %d, %d asked for", alive, dead, fleet)
	}
}

// TestRareReportsAreNotDeaths: a process is dead when its own time to live is over, whatever that of the one
// that asks; the dead are not counted, and each that is taken out names the next one.
func TestRareReportsAreNotDeaths(t *testing.T) {
	c, names := lua.NewClient(newClient(t)), lua.NewNamer("p")
	now := int64(1_760_000_000_000_000)
	report := func(process, life, wantAlive, wantDead int64) {
		t.Helper()
		alive, dead, err := c.Report(t.Context(), now, names, process, life*second, []lua.Asked{{ID: "k", Rate: 10}})
		if err != nil || alive != wantAlive || dead != wantDead {
			t.Errorf("%d alive, dead: %d, %v, want %d, %d", alive, dead, err, wantAlive, wantDead)
		}
	}
	report(1, 600, 1, 0)
	report(2, 700, 2, 0)
	now += 599 * second
	report(3, 4, 3, 0)
	if more, err := c.Bury(t.Context(), now, names, 1, false); more || err != nil {
		t.Error(more, err)
	}
	report(3, 4, 3, 0)
	now += 102 * second
	report(4, 4, 1, 1)
	b := lua.Bury{Now: now, Names: names, Process: 1}
	for _, next := range []int64{3, 2, 0} {
		if err := c.One(t.Context(), &b); err != nil || b.More || b.Dead != next {
			t.Fatalf("%+v, %v, next is %d", b, err, next)
		}
		b.Process = b.Dead
	}
	report(4, 4, 1, 0)
}

// TestBuryInParts: a process with many keys is taken out in calls of a few, also when
// somebody else goes on.
func TestBuryInParts(t *testing.T) {
	rdb := newClient(t)
	c, names := lua.NewClient(rdb), lua.NewNamer("p")
	now, life := int64(1_760_000_000_000_000), int64(4*second)
	const parts = 3
	for process := int64(1); process <= 2; process++ {
		for part := range parts {
			asked := make([]lua.Asked, lua.MaxAsked)
			for i := range asked {
				asked[i] = lua.Asked{ID: fmt.Sprint("k", part*lua.MaxAsked+i), Rate: 10 * process}
			}
			if _, _, err := c.Report(t.Context(), now, names, process, life, asked); err != nil {
				t.Fatal(err)
			}
		}
	}
	// It leaves, and dies in the middle of it.
	if more, err := c.Bury(t.Context(), now, names, 1, true); !more || err != nil {
		t.Fatal(more, err)
	}
	_, dead, err := c.Report(t.Context(), now, names, 2, life, nil)
	if dead != 1 || err != nil {
		t.Fatal(dead, err)
	}
	calls := 1
	for more := true; more; calls++ {
		if more, err = c.Bury(t.Context(), now, names, 1, false); err != nil || calls > 2*parts {
			t.Fatal(calls, err)
		}
	}
	if calls < parts {
		t.Errorf("%d calls", calls)
	}
	sums := rdb.HGetAll(t.Context(), "p:v1:sampled:{all}").Val()
	delete(sums, "") // the era
	if len(sums) != parts*lua.MaxAsked {
		t.Errorf("%d sums", len(sums))
	}
	for key, sum := range sums {
		if sum != "20" {
			t.Fatalf("%s: %s", key, sum)
		}
	}
	if n := rdb.Exists(t.Context(), "p:v1:sampled:{all}:1").Val(); n != 0 {
		t.Error("its own are still there")
	}
	// One that lives is not buried.
	if more, err := c.Bury(t.Context(), now, names, 2, false); more || err != nil || rdb.HLen(t.Context(), "p:v1:sampled:{all}:2").Val() == 0 {
		t.Error("one that lives was buried", err)
	}
}

// TestLostReports: whichever of the keys of a fleet Redis loses, the sums are right again when all have reported.
func TestLostReports(t *testing.T) {
	const sums = "p:v1:sampled:{all}"
	for _, lost := range [][]string{{sums}, {sums + ":p"}, {sums + ":1"}, {sums + ":3"}, {sums, sums + ":p"}, {sums + ":1", sums + ":2", sums + ":3"}} {
		rdb := newClient(t)
		c, names := lua.NewClient(rdb), lua.NewNamer("p")
		now, life := int64(1_760_000_000_000_000), int64(4*second)
		report := func(process int64, rates ...int64) (dead int64, asked []lua.Asked) {
			t.Helper()
			for i, rate := range rates {
				asked = append(asked, lua.Asked{ID: fmt.Sprint("k", i), Rate: rate})
			}
			_, dead, err := c.Report(t.Context(), now, names, process, life, asked)
			if err != nil {
				t.Fatal(err)
			}
			return dead, asked
		}
		report(1, 10, 1)
		report(2, 20, 2)
		report(3, 30, 3)
		if n := rdb.Del(t.Context(), lost...).Val(); n != int64(len(lost)) {
			t.Fatalf("%d of %v", n, lost)
		}
		now += 3 * second // of which the third process sees no more
		report(1, 10, 1)
		report(2, 20)
		now += 3 * second
		if dead, _ := report(1, 10, 1); dead == 3 {
			if more, err := c.Bury(t.Context(), now, names, 3, false); more || err != nil {
				t.Error(more, err)
			}
		}
		report(1, 10, 1)
		report(2, 25, 2)
		if _, asked := report(1, 10, 1); asked[0].Fleet != 35 || asked[1].Fleet != 3 {
			t.Errorf("without %v: %v", lost, asked)
		}
		for process := int64(1); process <= 2; process++ {
			if _, err := c.Bury(t.Context(), now, names, process, true); err != nil {
				t.Error(err)
			}
		}
		if left := rdb.Exists(t.Context(), sums, sums+":p", sums+":1", sums+":2").Val(); left != 0 {
			t.Errorf("without %v: %d keys are left", lost, left)
		}
	}
}

// TestReportsWithoutMemory: a server that has none rejects the first report of a process as it does all others. Else that would show that
// charges are accepted.
func TestReportsWithoutMemory(t *testing.T) {
	rdb := newClient(t)
	c, names := lua.NewClient(rdb), lua.NewNamer("p")
	report := func(process int64) error {
		_, _, err := c.Report(t.Context(), 1_760_000_000_000_000, names, process, 4*second, []lua.Asked{{ID: "k", Rate: 1}})
		return err
	}
	for process := range int64(2) {
		for _, memory := range []string{"1", "0"} {
			if err := rdb.ConfigSet(t.Context(), "maxmemory", memory).Err(); err != nil {
				t.Fatal(err)
			}
			if err := report(1 + process); redis.IsOOMError(err) != (memory == "1") || memory == "0" && err != nil {
				t.Errorf("process %d, maxmemory %s: %v", process, memory, err)
			}
		}
	}
}

// TestBeatClockStepsBack: the clock steps back, those who live are counted all the time,
// and those who died no longer than a life.
func TestBeatClockStepsBack(t *testing.T) {
	c := lua.NewClient(newClient(t))
	now, life := int64(1_760_000_000_000_000), int64(6*second)
	beat := func(id string) int64 {
		t.Helper()
		n, err := c.Beat(t.Context(), now, "peers", id, life)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	beat("dies")
	beat("a")
	beat("b")
	for _, step := range []int64{-3600 * second, -life / 2, life / 2} {
		now += step
		if n := beat("a"); n != 3 {
			t.Errorf("%d alive after a step of %d", n, step)
		}
		beat("b")
	}
	now += life / 2
	beat("a")
	now += life/2 + 1
	if n := beat("b"); n != 2 {
		t.Errorf("%d alive, of whom one died", n)
	}
}

// TestAllAsFunctions: with the library loaded nothing is sent as a script.
func TestAllAsFunctions(t *testing.T) {
	redistest.Since(t, 7, 0, "functions")
	srv := redistest.Start(t)
	rdb := redistest.Client(t, srv)
	c, names := lua.NewClient(rdb), lua.NewNamer("p")
	c.UseFunctions(rdb)
	ctx := t.Context()
	check := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, kind := range algo.Kinds {
		p, err := algo.Limit{Kind: kind, N: 10, Per: 60 * second, Burst: 10}.Params()
		check("limit", err)
		item := lua.Item{Keys: names.KeysOf(kind, "k"), Params: lua.NewArgs(p), Cost: 1}
		for _, cost := range []int64{1, 0} {
			item.Cost = cost
			_, _, err = c.Decide(ctx, 0, fmt.Sprint("n", cost), []lua.Item{item}, nil)
			check("a decision", err)
		}
		item.Cost = 1
		_, err = c.DecideAll(ctx, 0, "a", []lua.Item{item, {Keys: names.KeysOf(kind, "other"), Params: item.Params, Cost: 1}})
		check("a decision on several", err)
		if kind != algo.LeakyBucketShaping {
			_, err = c.GiveBack(ctx, 0, "g", []lua.Taken{{Keys: item.Keys, Params: item.Params, Units: 1}})
			check("giving back", err)
		}
		_, err = c.Block(ctx, 0, item.Keys, item.Params, second)
		check("a block", err)
		end, errs := lua.Unblock{Keys: item.Keys}, make([]error, 1)
		c.Do(ctx, []lua.Command{&end}, errs)
		if check("the end of a block", errs[0]); !end.Was {
			t.Errorf("%v: there was no block", kind)
		}
	}
	_, err := c.Beat(ctx, 0, names.Peers(0), "id", second)
	check("a heartbeat", err)
	_, err = c.Acquire(ctx, 0, "n", &lua.PermitAsk{Key: names.Permits("k"), Most: 1, TTL: second, Callers: []string{"c"}})
	check("a permit", err)
	_, err = c.KeepPermits(ctx, 0, second, []lua.Holders{{Key: names.Permits("k"), Callers: []string{"c"}}})
	check("keeping permits", err)
	_, _, err = c.Report(ctx, 0, names, 1, second, []lua.Asked{{ID: "k", Rate: 1}})
	check("a report", err)
	_, err = c.Bury(ctx, 0, names, 1, true)
	check("leaving", err)
	publish, errs := lua.Publish{Names: names, Process: "p", Life: second, Text: []byte("text")}, make([]error, 1)
	c.Do(ctx, []lua.Command{&publish}, errs)
	if check("publishing", errs[0]); publish.Processes != 1 {
		t.Errorf("%d processes", publish.Processes)
	}
	for _, command := range []string{"eval", "evalsha", "eval_ro", "evalsha_ro"} {
		if n := redistest.Calls(t, srv, command); n > 0 {
			t.Errorf("%d calls of %s", n, command)
		}
	}
	if used, why := c.Functions(); !used {
		t.Errorf("functions were given up: %v", why)
	}
}
