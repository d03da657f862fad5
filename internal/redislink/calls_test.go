package redislink

import (
	"context"
	"encoding"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
)

// TestBoundsOfCalls: a call and a command take exactly as much work, and as many keys, as they may.
func TestBoundsOfCalls(t *testing.T) {
	log, gcra := args(t, algo.SlidingWindowLog), args(t, algo.GCRA)
	log.Cap = algo.MaxLog
	set := func(id string, keys int) *Op {
		o := &Op{ID: id}
		for range keys {
			o.All = append(o.All, lua.Item{Keys: names.KeysOf(algo.GCRA, id), Params: *gcra, Cost: 1})
		}
		return o
	}
	type step struct {
		o        *Op
		ok       bool
		commands int
		items    int // of the first command
	}
	for name, steps := range map[string][]step{
		"work of a call": {
			{decision(log, "a", -1000), true, 1, 1}, {decision(log, "b", -1000), true, 2, 1}, {decision(log, "c", -1000), true, 3, 1},
			{decision(log, "d", -999), true, 4, 1}, {decision(log, "e", -2), false, 4, 1}, {decision(log, "f", -1), true, 4, 1}, {decision(log, "g", -1), false, 4, 1},
		},
		"work of a command": {{decision(log, "a", -500), true, 1, 1}, {decision(log, "b", -500), true, 1, 2}, {decision(log, "c", -1), true, 2, 2}},
		"work of one key":   {{decision(log, "a", 500), true, 1, 1}, {decision(log, "a", 500), true, 1, 1}, {decision(log, "a", 500), true, 2, 1}, {decision(log, "b", 501), true, 3, 1}},
		"callers of one key": {
			{decision(log, "a", 143), true, 1, 1}, {decision(log, "a", 143), true, 1, 1}, {decision(log, "a", 143), true, 1, 1}, {decision(log, "a", 143), true, 1, 1},
			{decision(log, "a", 143), true, 1, 1}, {decision(log, "a", 143), true, 1, 1}, {decision(log, "a", 143), true, 2, 1}, // 1001
		},
		"a large one alone": {{decision(log, "a", -9000), true, 1, 1}, {decision(gcra, "b", 1), false, 1, 1}},
		"debts of one key":  {{decision(gcra, "a", -2), true, 1, 1}, {decision(gcra, "a", -2), true, 1, 2}},
		"keys":              {{set("a", callKeys-1), true, 1, 1}, {set("b", 2), false, 1, 1}, {decision(gcra, "c", 1), true, 2, 1}, {decision(gcra, "d", 1), false, 2, 1}, {decision(gcra, "c", 1), true, 2, 1}},
		"after one":         {{decision(gcra, "a", 1), true, 1, 1}, {set("b", callKeys), false, 1, 1}},
		"many keys alone":   {{set("a", callKeys+1), true, 1, 1}, {decision(gcra, "b", 1), false, 1, 1}},
	} {
		f := newFlight(nil)
		for i, s := range steps {
			if ok := f.add(s.o); ok != s.ok || f.used != s.commands || f.commands[0].items != s.items {
				t.Errorf("%s, %d: taken %v, %d commands, %d items", name, i, ok, f.used, f.commands[0].items)
			}
		}
	}
	several := set("a", 3)
	if got := several.space(1000); got != 3*callKeys {
		t.Errorf("three keys of a large call take %d of it", got)
	}
	several.All[1].Params = *log
	if got := several.space(1000); got != 3*1000 {
		t.Errorf("three keys, one a log, take %d", got)
	}
	f := newFlight(nil)
	peek := decision(gcra, "a", 0)
	peek.Count = 3
	if f.add(peek); f.commands[0].decide.Items[0].Count != 1 || !f.peeks || !f.commands[0].peeks {
		t.Errorf("%d callers of a peek", f.commands[0].decide.Items[0].Count)
	}
	for i, c := range []struct {
		id      string
		cost    int64
		repeats bool
	}{{"a", 1, true}, {"b", 1, true}} { // a was there, although in another command
		if f.add(decision(gcra, c.id, c.cost)); f.commands[1].decide.Repeats != c.repeats || f.peeks || f.commands[1].peeks {
			t.Errorf("%d: repeats %v, peeks %v", i, !c.repeats, f.peeks)
		}
	}
	f = newFlight(nil)
	for i, c := range []struct {
		id      string
		cost    int64
		repeats bool
	}{{"a", 1, false}, {"b", 1, false}, {"a", 1, false}, {"a", 2, true}, {"c", 1, true}} {
		if f.add(decision(gcra, c.id, c.cost)); f.commands[0].decide.Repeats != c.repeats {
			t.Errorf("%d: repeats %v", i, !c.repeats)
		}
	}
}

// TestNoncesDiffer: each command of each call of each link has a nonce of its own.
func TestNoncesDiffer(t *testing.T) {
	seen := map[string]bool{}
	gcra := args(t, algo.SlidingWindowLog)
	for range 2 {
		l := unused(t, 128)
		l.wire.lua = lua.NewClient(process(func(_ context.Context, cmd redis.Cmder) error {
			all := cmd.Args()
			if n, ok := all[2].(int); ok && cmd.Name() == "evalsha" {
				m, ok := all[3+n+1].(encoding.BinaryMarshaler)
				if !ok {
					t.Fatalf("%v", all)
				}
				text, err := m.MarshalBinary()
				if err != nil || len(text) < 17 || seen[string(text)] || !strings.HasPrefix(string(text), l.wire.nonces.process) {
					t.Errorf("the nonce %q, %v", text, err)
				}
				seen[string(text)] = true
			}
			cmd.SetErr(rejection("OOM"))
			return cmd.Err()
		}))
		for range 2 {
			several := &Op{ID: "c", All: []lua.Item{{Keys: names.KeysOf(gcra.Kind, "c"), Params: *gcra, Cost: 1}}, done: make(chan struct{}, 1), ctx: t.Context(), deadline: time.Now().Add(time.Minute)}
			back := &Op{ID: "d", Taken: &lua.Taken{Keys: names.KeysOf(gcra.Kind, "d"), Params: *gcra, Units: 1}, done: make(chan struct{}, 1), ctx: t.Context(), deadline: time.Now().Add(time.Minute)}
			fly(l, append(permitOps(), decision(gcra, "a", 1), several, back)...)
		}
		if text := l.Nonce("end"); len(text) < 20 || !strings.HasPrefix(text, l.wire.nonces.process) || !strings.HasSuffix(text, "end") {
			t.Errorf("%q", text)
		}
	}
	if len(seen) != 16 {
		t.Errorf("%d nonces", len(seen))
	}
}

// TestDeadlinesOfCalls: a call has until the last of its callers has to leave, and three budgets more where it does not
// run in its caller's goroutine, as the first one never does, so that its connection is not lost. It says when it was sent, and how long it took.
func TestDeadlinesOfCalls(t *testing.T) {
	for _, c := range []struct {
		ends   bool
		learnt uint64
		own    bool
	}{{false, 1, false}, {true, 0, false}, {true, 1, true}} {
		synctest.Test(t, func(t *testing.T) {
			l, a := unused(t, 128), args(t, algo.GCRA)
			var took time.Duration
			l.wire.events.onCall = func(_ context.Context, c Call) { took = c.Took }
			q, began := only(l), time.Now()
			q.wire.ends, q.learnt = c.ends, c.learnt
			l.wire.lua = lua.NewClient(process(func(ctx context.Context, cmd redis.Cmder) error {
				want := 50 * time.Millisecond
				if !c.own {
					want += 150 * time.Millisecond
				}
				if end, ok := ctx.Deadline(); !ok || end.Sub(began) != want || ctx.Err() != nil {
					t.Errorf("%+v: until %v, %v", c, end.Sub(began), ctx.Err())
				}
				time.Sleep(7 * time.Millisecond)
				cmd.(interface{ SetVal([]int64) }).SetVal(granted)
				return nil
			}))
			o := decision(a, "a", 1)
			if class, err := q.do(t.Context(), o, 50*time.Millisecond); class != breaker.ClassOK || !o.Sent.Equal(began) || took != 7*time.Millisecond {
				t.Errorf("%+v: %v, %v, sent at %v, took %v", c, class, err, o.Sent, took)
			}
			synctest.Wait()
			if q.learnt != c.learnt+1 || q.trip != 7*time.Millisecond/8 && q.trip != 0 || q.least != 7*time.Millisecond || len(q.flights)+q.landing != 0 {
				t.Errorf("%+v: learnt of %d calls, %v, %v", c, q.learnt, q.trip, q.least)
			}
		})
	}
}

// TestRoundTrips: the least recent one, which a longer one changes by an eighth of the difference, and a shorter one at once.
func TestRoundTrips(t *testing.T) {
	q := only(unused(t, 128))
	for i, c := range []struct{ took, trip, least time.Duration }{
		{800, 100, 800}, {900, 200, 800}, {200, 200, 200}, {1000, 300, 200}, {50, 50, 50}, {50, 50, 50}, {130, 60, 50},
	} {
		if q.learn(time.Time{}, c.took, c.took, 1); q.trip != c.trip || q.least != c.least || q.learnt != uint64(i+1) {
			t.Errorf("%d: %v, %v after %d calls; want %v, %v", i, q.trip, q.least, q.learnt, c.trip, c.least)
		}
	}
}

// TestLinksOfFunctions: functions are used where they are asked for, and given up once where the server has none, with a
// line in the log; a caller never waits in its own goroutine for the library.
func TestLinksOfFunctions(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Protocol: 2, ContextTimeoutEnabled: true})
	defer rdb.Close()
	for _, asked := range []bool{false, true} {
		log := &lines{}
		l, err := New(Config{Client: rdb, Prefix: "p", Functions: asked, Logger: slog.New(log)})
		if err != nil {
			t.Fatal(err)
		}
		if inUse, _ := l.wire.lua.Functions(); inUse != asked || l.wire.ends == asked || l.FunctionsError() != nil {
			t.Errorf("asked for %v: in use %v, calls end %v, %v", asked, inUse, l.wire.ends, l.FunctionsError())
		}
		var forms []string
		l.wire.lua = lua.NewClient(process(func(_ context.Context, cmd redis.Cmder) error {
			if forms = append(forms, cmd.Name()); cmd.Name() == "fcall" {
				cmd.SetErr(rejection("ERR unknown command 'FCALL'"))
				return cmd.Err()
			}
			cmd.(interface{ SetVal([]int64) }).SetVal(granted)
			return nil
		}))
		if asked {
			l.wire.lua.UseFunctions(rdb)
		}
		for range 3 {
			if o := decision(args(t, algo.GCRA), "a", 1); l.Ask(t.Context(), l.Server("a"), o, l.Budget) != nil {
				t.Error(o.Err)
			}
		}
		want := 3
		if asked {
			want++
		}
		if len(forms) != want || (l.FunctionsError() != nil) != asked || len(log.said) != want-3 {
			t.Errorf("asked for %v: %v, %v, %q", asked, forms, l.FunctionsError(), log.said)
		}
	}
}

// TestPanicsOfTheClient: a hook of the user's that panics is an error of the commands that were not answered.
func TestPanicsOfTheClient(t *testing.T) {
	l := unused(t, 128)
	only(l).sameSlot = true
	l.wire.lua = lua.NewClient(process(func(context.Context, redis.Cmder) error { panic("hook") }))
	a := args(t, algo.GCRA)
	ops := []*Op{decision(a, "a", 1), decision(a, "b", 1)}
	fly(l, ops...)
	for _, o := range ops {
		if o.Class != breaker.ClassUnavailable || o.Err == nil || !strings.Contains(o.Err.Error(), "panicked: hook") || NeverExecuted(o.Err) {
			t.Errorf("%v, %v", o.Class, o.Err)
		}
	}
	errs := []error{ErrOpen, nil}
	l.wire.do(t.Context(), &only(l).clock, []lua.Command{&lua.Beat{}, &lua.Beat{}}, errs)
	if !errors.Is(errs[0], ErrOpen) || errs[1] == nil {
		t.Errorf("%v", errs)
	}
}

// TestHookThatPanicsEndsTheCall: a caller that recovers from what a hook of the user's does leaves no call that is never over,
// and no request that is never sent.
func TestHookThatPanicsEndsTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, a := unused(t, 1), args(t, algo.GCRA)
		q, next := only(l), decision(a, "next", 1)
		l.wire.lua, l.wire.ends, q.learnt = lua.NewClient(&doer{answers: []any{granted}}), true, 1
		l.wire.events.onCall = func(context.Context, Call) {
			l.wire.events.onCall = nil
			if _, ok := q.start(t.Context(), next, l.Budget, false); !ok {
				t.Error("it does not wait for its turn")
			}
			panic("hook")
		}
		func() {
			defer func() {
				if v := recover(); v != "hook" {
					t.Errorf("recovered %v", v)
				}
			}()
			_, _ = l.Do(t.Context(), l.Server("k"), decision(a, "k", 1), l.Budget)
		}()
		if class, err := q.await(t.Context(), next); class != breaker.ClassOK {
			t.Errorf("the next call: %v, %v", class, err)
		}
		synctest.Wait()
		if n := len(q.flights); n != 0 {
			t.Errorf("%d calls are in flight", n)
		}
	})
}

// TestApart: which rejections say that the keys of a command must be sent apart, and what is learnt of them.
func TestApart(t *testing.T) {
	for err, c := range map[error]struct{ apart, oneSlot bool }{
		rejection("CROSSSLOT Keys in request don't hash to the same slot"):   {true, true},
		rejection("TRYAGAIN Multiple keys request during rehashing of slot"): {true, false},
		rejection("OOM command not allowed"):                                 {false, false},
	} {
		srv := unused(t, 128).Server("k")
		if got := srv.Apart(&Error{breaker.ClassBug, err}); got != c.apart || srv.OneSlot() != c.oneSlot {
			t.Errorf("%v: apart %v, one slot %v", err, got, srv.OneSlot())
		}
	}
}

// TestPhases: those of processes are numbers of 20 bits.
func TestPhases(t *testing.T) {
	l, least, most := unused(t, 128), int64(1<<62), int64(0)
	for range 100 {
		l.fleet.id = randomName()
		least, most = min(least, l.Phase()), max(most, l.Phase())
	}
	if least < 0 || least > 1<<18 || most >= 1<<20 || most < 3<<18 {
		t.Errorf("from %d to %d", least, most)
	}
}

// TestMapIsKeptUpToDate: a request to a cluster reads its map, and one that failed does so soon again.
func TestMapIsKeptUpToDate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &masters{began: time.Now(), ranges: []redis.ClusterSlot{slotsOf(0, 16383, "a")}}
		l, err := New(Config{Client: known{m}, Prefix: "p", Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close(func() {})
		fails := false
		l.wire.lua = lua.NewClient(process(func(_ context.Context, cmd redis.Cmder) error {
			if fails {
				cmd.SetErr(rejection("CLUSTERDOWN"))
				return cmd.Err()
			}
			cmd.(interface{ SetVal([]int64) }).SetVal([]int64{1, 0, 0, 0})
			return nil
		}))
		for i, want := range []int{1, 1, 1, 2, 2} {
			fails = i == 1
			err := l.Exec(t.Context(), "k", &lua.Beat{Key: "k", ID: "a"})
			synctest.Wait()
			if (err != nil) != fails || len(m.asked) != want {
				t.Errorf("%d: %v, asked at %v", i, err, m.asked)
			}
			time.Sleep(130 * time.Millisecond)
		}
		time.Sleep(4 * time.Second)
		if errs := l.AskAll(t.Context(), []*Op{{ID: "k", Command: &lua.Beat{Key: "k", ID: "a"}}}); errs[0] != nil || len(m.asked) != 2 {
			t.Errorf("%v, asked at %v", errs, m.asked)
		}
		if len(l.Servers()) != 2 || l.Server("k").Addr != "a" {
			t.Errorf("%d servers", len(l.Servers()))
		}
	})
}

// TestWhenTheNumberIsAsked: with the first limiter, when Redis was asked, and when it cannot be.
func TestWhenTheNumberIsAsked(t *testing.T) {
	for name, ask := range map[string]func(*Link){
		"claim": func(l *Link) { _ = l.Claim("gcra", 1) },
		"beat":  func(l *Link) { l.Beat(l.Server("k")) },
		"use":   func(l *Link) { l.UseShare() },
	} {
		counting(t, 0, func(t *testing.T, l *Link, _ *counter, _ *[]time.Duration) {
			l.fleet.ask = func(context.Context) (int, error) { return 7, nil }
			ask(l)
			synctest.Wait()
			if l.fleet.peers.n != 7 {
				t.Errorf("%s: %d processes", name, l.fleet.peers.n)
			}
		})
	}
}

// TestFifo: what waits keeps its order, and those who have left are passed over.
func TestFifo(t *testing.T) {
	var q fifo
	var all [8]*Op
	for i := range all {
		all[i] = new(Op)
		q.push(all[i])
	}
	if o := q.pop(); o != all[0] || q.len() != 7 {
		t.Errorf("%d wait", q.len())
	}
	all[5].state = left
	if q.keep(func(o *Op) bool { return o != all[6] && o != all[7] && o != all[5] }); q.len() != 4 || q.waiting[q.head] != all[1] {
		t.Errorf("%d stay", q.len())
	}
	all[1].state = left
	var offered []*Op
	q.take(2, func(o *Op) bool { offered = append(offered, o); return o == all[3] })
	if len(offered) != 2 || offered[0] != all[2] || offered[1] != all[3] || q.len() != 2 {
		t.Errorf("%d were offered, %d wait", len(offered), q.len())
	}
	if q.pop() != all[2] || q.pop() != all[4] || q.pop() != nil || q.len() != 0 {
		t.Error("another order")
	}
}
