package redislink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
)

var names = lua.NewNamer("p")

// unused is a link whose client is never asked.
func unused(t *testing.T, inFlight int) *Link {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Protocol: 2}) // with 3 it has goroutines of its own
	t.Cleanup(func() { _ = rdb.Close() })
	l, err := New(Config{Client: rdb, Prefix: "p", Budget: 50 * time.Millisecond, MaxInFlight: inFlight})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// args are those of 10 per hour.
func args(t *testing.T, kind algo.Kind) *lua.Args {
	t.Helper()
	p, err := algo.Limit{Kind: kind, N: 10, Per: 3600_000_000, Burst: 10}.Params()
	if err != nil {
		t.Fatal(err)
	}
	a := lua.NewArgs(p)
	return &a
}

// decision asks for cost units of id.
func decision(a *lua.Args, id string, cost int64) *Op {
	o := &Op{done: make(chan struct{}, 1)}
	o.ID, o.Args, o.Keys, o.Cost = id, a, names.KeysOf(a.Kind, id), cost
	o.ctx, o.deadline = context.Background(), time.Now().Add(time.Minute)
	return o
}

// inFlight is n calls in flight.
func inFlight(n int) []*flight {
	all := make([]*flight, n)
	for i := range all {
		all[i] = newFlight(nil)
		all[i].callers = 1
	}
	return all
}

// write notes that f is written now.
func write(f *flight) { _ = (&nonce{of: f}).Open() }

// only is the queue of a link with one server.
func only(l *Link) *queue { return l.servers.only.queue }

// TestOwnCallEndsWithItsCaller: one that began with just the time that an answer may take has less when it is sent. It
// keeps its caller waiting, so it is no probe, whose time is the budget.
func TestOwnCallEndsWithItsCaller(t *testing.T) {
	for _, own := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			q := only(unused(t, 128))
			o := decision(args(t, algo.GCRA), "a", 1)
			o.deadline = time.Now().Add(q.wire.fair - time.Microsecond)
			q.mu.Lock()
			f := q.gather(o)
			f.own = own
			q.mu.Unlock()
			ticket, _ := q.breaker.Acquire()
			if !q.begin(f, ticket) || f.probes == own || f.deadline.Equal(o.deadline) != own {
				t.Errorf("own: %v, a probe: %v, with %v", own, f.probes, time.Until(f.deadline))
			}
			q.timer.Stop()
		})
	}
}

// TestBudgetIsExact: a caller has left when its budget ends, neither before nor after, whether
// its request waits for its turn or for an answer; and after three quarters of the time that
// its context leaves, if that is less.
func TestBudgetIsExact(t *testing.T) {
	for _, sent := range []bool{false, true} {
		for left, want := range map[time.Duration]time.Duration{
			time.Hour: 50 * time.Millisecond, 60 * time.Millisecond: 50 * time.Millisecond, 40 * time.Millisecond: 30 * time.Millisecond,
		} {
			synctest.Test(t, func(t *testing.T) {
				q, a := only(unused(t, 128)), args(t, algo.GCRA)
				q.flights = inFlight(depth) // so that nothing is sent
				ctx, cancel := context.WithTimeout(t.Context(), left)
				defer cancel()
				start, o := time.Now(), decision(a, "a", 1)
				if _, ok := q.start(ctx, o, 50*time.Millisecond, true); !ok {
					t.Fatal("nothing to await")
				}
				if sent {
					q.mu.Lock()
					f := q.gather(q.waiting.pop())
					f.ticket, _ = q.breaker.Acquire()
					f.sent = start
					q.mu.Unlock()
				}
				class, err := q.await(ctx, o)
				if took := time.Since(start); took != want || !errors.Is(err, errBudget) || class == breaker.ClassOK {
					t.Errorf("sent %v, %v left: %v, %v after %v, want %v", sent, left, class, err, took, want)
				}
			})
		}
	}
}

// TestFreeLeavesWhatACallHas: a request is used again when it was answered or sent home from the queue, and
// not while a call that its caller has left still has it, or the queue.
func TestFreeLeavesWhatACallHas(t *testing.T) {
	for name, c := range map[string]struct{ sent, cancelled, free bool }{
		"sent home": {free: true}, "left its call": {sent: true}, "left the queue": {cancelled: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := unused(t, 128)
			q, a := only(l), args(t, algo.GCRA)
			q.flights = inFlight(depth) // so that nothing is sent
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			o := decision(a, "a", 1)
			if _, ok := q.start(ctx, o, 50*time.Millisecond, true); !ok {
				t.Fatal("nothing to await")
			}
			if c.sent {
				q.mu.Lock()
				f := q.gather(q.waiting.pop())
				f.ticket, _ = q.breaker.Acquire()
				q.mu.Unlock()
			}
			if c.cancelled {
				cancel()
			}
			_, _ = q.await(ctx, o)
			if l.Free(o); (o.ID == "") != c.free {
				t.Errorf("%s: %+v", name, o)
			}
			if c.free && q.waiting.len() > 0 {
				t.Errorf("%s: still in the queue", name)
			}
		})
	}
}

// TestCallerThatLeavesIsNotAFailure: a caller who leaves a call early must not speak for
// Redis; that it is late is reported all the same, by whoever finds out.
func TestCallerThatLeavesIsNotAFailure(t *testing.T) {
	l := unused(t, 128)
	q, a := only(l), args(t, algo.GCRA)
	q.mu.Lock()
	first, second := decision(a, "a", 1), decision(a, "a", 1)
	q.waiting.push(second)
	f := q.gather(first)
	f.ticket, _ = q.breaker.Acquire()
	f.sent = time.Now().Add(-time.Second)
	q.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if class, _ := q.leave(ctx, first, context.Canceled); class != breaker.ClassCaller {
		t.Errorf("who cancels is %v", class)
	}
	if class, err := q.leave(t.Context(), second, errBudget); class != breaker.ClassUnavailable || err != errUnsent {
		t.Errorf("the last to leave is %v with %v", class, err)
	}
	if got := q.breaker.Snapshot().LastFailure; got != breaker.ClassUnavailable {
		t.Errorf("the breaker has heard of %v", got)
	}
}

// heldErr is a context whose second Err waits until it is let: the first is before its caller leaves.
type heldErr struct {
	context.Context
	lets  chan struct{}
	asked int
}

func (c *heldErr) Err() error {
	if c.asked++; c.asked == 2 {
		<-c.lets
	}
	return c.Context.Err()
}

// TestCallThatAllLeaveSaysNothing: a call that ends because all its callers have left is no failure of the server, even if
// it ends before the last of them has said why it left.
func TestCallThatAllLeaveSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, ended := unused(t, 128), false
		q := only(l)
		l.wire.lua = lua.NewClient(process(func(ctx context.Context, _ redis.Cmder) error {
			<-ctx.Done()
			ended = true
			return ctx.Err()
		}))
		ctx, cancel := context.WithCancel(t.Context())
		held := &heldErr{Context: ctx, lets: make(chan struct{})}
		c := begin(held, q, "a", time.Minute)
		cancel()
		synctest.Wait()
		if now := look(q); !ended || now.calls != 0 {
			t.Fatalf("the call has not ended: %+v", now)
		}
		held.lets <- struct{}{}
		synctest.Wait()
		if got := q.breaker.Snapshot().LastFailure; c.class != breaker.ClassCaller || got != breaker.ClassOK {
			t.Errorf("%+v, and the breaker has heard of %v", c, got)
		}
	})
}

// TestCancelledInItsOwnCall: a caller that makes its own call and whose context is cancelled learns that when the call has ended
// without an answer, and nothing is decided for it.
func TestCancelledInItsOwnCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := unused(t, 128)
		l.wire.ends, only(l).learnt = true, 1
		l.wire.lua = lua.NewClient(process(func(ctx context.Context, _ redis.Cmder) error {
			end, _ := ctx.Deadline()
			time.Sleep(time.Until(end))
			return context.DeadlineExceeded
		}))
		ctx, cancel := context.WithCancel(t.Context())
		c := begin(ctx, only(l), "a", 50*time.Millisecond)
		time.Sleep(10 * time.Millisecond)
		cancel()
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()
		if !c.done || c.took != 50*time.Millisecond || c.class != breaker.ClassCaller || !errors.Is(c.err, context.Canceled) {
			t.Errorf("%+v", c)
		}
	})
}

// TestShortBudgetIsNotAFailure: a caller who had less time than an answer may take says
// nothing of Redis.
func TestShortBudgetIsNotAFailure(t *testing.T) {
	l := unused(t, 128)
	for took, want := range map[time.Duration]breaker.Class{
		15 * time.Millisecond: breaker.ClassAborted,
		24 * time.Millisecond: breaker.ClassAborted,
		25 * time.Millisecond: breaker.ClassSlow,
		50 * time.Millisecond: breaker.ClassSlow,
	} {
		if got := classify(t.Context(), errBudget, took, only(l).wire.fair); got != want {
			t.Errorf("no answer after %v is %v, want %v", took, got, want)
		}
		if want == breaker.ClassSlow {
			want = breaker.ClassUnavailable
		}
		if got := classify(t.Context(), errUnsent, took, only(l).wire.fair); got != want {
			t.Errorf("no connection after %v is %v, want %v", took, got, want)
		}
	}
}

// TestItems: callers of a key are one item only if nothing stands between
// them that the second could tell from the first.
func TestItems(t *testing.T) {
	for asked, want := range map[string]string{
		"a1":                "a1x1",
		"a1 a1 a1":          "a1x3",
		"a1 b1 a1 b1":       "a1x2 b1x2",
		"a1 a2 a1":          "a1x1 a2x1 a1x1",
		"a1 a2 b1 a2 a1 a1": "a1x1 a2x2 b1x1 a1x2",
		"a0 a0":             "a0x1 a0x1",
	} {
		for kind, merges := range map[algo.Kind]bool{algo.GCRA: true, algo.LeakyBucketShaping: false} {
			a := args(t, kind)
			f := newFlight(nil)
			for _, s := range strings.Fields(asked) {
				f.add(decision(a, s[:1], int64(s[1]-'0')))
			}
			if f.used != 1 {
				t.Fatalf("%s became %d commands", asked, f.used)
			}
			items := f.commands[0].decide.Items
			var got []string
			for _, it := range items {
				got = append(got, fmt.Sprintf("%s%dx%d", it.Keys.ID(), it.Cost, it.Count))
			}
			if merges && strings.Join(got, " ") != want {
				t.Errorf("%s became %v, want %s", asked, got, want)
			}
			if !merges && len(items) != len(f.ops) {
				t.Errorf("%s, each with a delay of its own, became %v", asked, got)
			}
			if len(f.of) != len(f.ops) {
				t.Errorf("%s: %d places", asked, len(f.of))
			}
		}
	}
	// Another limit is another question.
	one, two := args(t, algo.GCRA), args(t, algo.GCRA)
	two.Cap++
	f := newFlight(nil)
	f.add(decision(one, "a", 1))
	f.add(decision(two, "a", 1))
	if n := len(f.commands[0].decide.Items); n != 2 {
		t.Errorf("two limits became %d items", n)
	}
}

// TestCommands: what can share a command does, and all of it leaves in one call.
func TestCommands(t *testing.T) {
	acquire := func(id string) *Op { return &Op{ID: id, Permits: &lua.PermitAsk{ID: id, Callers: []string{"c"}}} }
	leave := func(id string) *Op { return &Op{ID: id, Leave: &lua.Leaver{ID: id, Caller: "c"}} }
	gcra, window, log := args(t, algo.GCRA), args(t, algo.FixedWindow), args(t, algo.SlidingWindowLog)
	log.Cap = algo.MaxLog
	back := func(id string) *Op {
		return &Op{ID: id, Taken: &lua.Taken{Keys: names.KeysOf(algo.GCRA, id), Params: *gcra, Units: 1}}
	}
	for name, c := range map[string]struct {
		ops     func() []*Op
		oneSlot bool
		want    int
	}{
		"one algorithm":      {func() []*Op { return []*Op{decision(gcra, "a", 1), decision(gcra, "b", 2)} }, false, 1},
		"debts":              {func() []*Op { return []*Op{decision(gcra, "a", 1), decision(gcra, "b", -2)} }, false, 1},
		"two algorithms":     {func() []*Op { return []*Op{decision(gcra, "a", 1), decision(window, "b", 2)} }, false, 2},
		"peeks":              {func() []*Op { return []*Op{decision(gcra, "a", 1), decision(gcra, "b", 0)} }, false, 2},
		"two slots":          {func() []*Op { return []*Op{decision(gcra, "a", 1), decision(gcra, "b", 1)} }, true, 2},
		"give-backs":         {func() []*Op { return []*Op{back("a"), back("b")} }, false, 1},
		"give-backs, slots":  {func() []*Op { return []*Op{back("a"), back("b")} }, true, 2},
		"work of a log":      {func() []*Op { return []*Op{decision(log, "a", -600), decision(log, "b", -600)} }, false, 2},
		"asked, left":        {func() []*Op { return []*Op{acquire("a"), leave("b"), acquire("a")} }, false, 1},
		"asked, left, slots": {func() []*Op { return []*Op{acquire("a"), leave("b"), acquire("a")} }, true, 2},
		"permits":            {func() []*Op { return []*Op{{ID: "a", Keep: &lua.Holders{}}, {ID: "b", Keep: &lua.Holders{}}} }, false, 1},
		"permits, slots":     {func() []*Op { return []*Op{{ID: "a", Keep: &lua.Holders{}}, {ID: "b", Keep: &lua.Holders{}}} }, true, 2},
		"whatever else":      {func() []*Op { return []*Op{{ID: "a", Command: &lua.Beat{}}, {ID: "a", Command: &lua.Beat{}}} }, false, 2},
		"one slot, two keys": {func() []*Op { return []*Op{decision(gcra, "a", 1), decision(gcra, "a", 2)} }, true, 1},
	} {
		q := only(unused(t, 128))
		q.sameSlot = c.oneSlot
		f := newFlight(q.wire)
		f.sameSlot = q.sameSlot
		for _, o := range c.ops() {
			if !f.add(o) {
				t.Errorf("%s: no place for %s", name, o.ID)
			}
		}
		if f.used != c.want {
			t.Errorf("%s: %d commands, want %d", name, f.used, c.want)
		}
	}
	// A call is bounded by its work, but takes any request alone.
	f := newFlight(nil)
	if !f.add(decision(log, "a", -2*callWork)) || f.add(decision(log, "b", -1)) {
		t.Error("a call is not bounded by its work")
	}
}

type rejection string

func (r rejection) Error() string { return string(r) }
func (rejection) RedisError()     {}

// doer answers commands in order.
type doer struct {
	answers []any // an error, or what is replied
	calls   int
	args    [][]any
}

func (d *doer) Process(_ context.Context, cmd redis.Cmder) error {
	a := d.answers[min(d.calls, len(d.answers)-1)]
	d.calls++
	d.args = append(d.args, slices.Clone(cmd.Args()))
	if err, ok := a.(error); ok {
		cmd.SetErr(err)
		return err
	}
	if n, ok := a.(int64); ok {
		cmd.(*redis.IntCmd).SetVal(n)
		return nil
	}
	cmd.(interface{ SetVal([]int64) }).SetVal(a.([]int64))
	return nil
}

func (d *doer) Pipelined(ctx context.Context, fn func(redis.Pipeliner) error) ([]redis.Cmder, error) {
	p := new(pipe)
	_ = fn(p)
	var first error
	for _, cmd := range p.cmds {
		if err := d.Process(ctx, cmd); err != nil && first == nil {
			first = err
		}
	}
	return p.cmds, first
}

type pipe struct {
	redis.Pipeliner
	cmds []redis.Cmder
}

func (p *pipe) Process(_ context.Context, cmd redis.Cmder) error {
	p.cmds = append(p.cmds, cmd)
	return nil
}

// granted is the reply to a decision on one of 10.
var granted = []int64{1_760_000_000_000_000, 360_000_000}

// fly makes one call of some requests, and returns it with them answered.
func fly(l *Link, ops ...*Op) {
	q := only(l)
	q.mu.Lock()
	for _, o := range ops[1:] {
		q.waiting.push(o)
	}
	f := q.gather(ops[0])
	q.mu.Unlock()
	q.fly(f)
}

// TestWhatWasChargedApartIsAnswered: when the keys of a command are sent apart and the
// server is lost midway, those that were charged must not be owed.
func TestWhatWasChargedApartIsAnswered(t *testing.T) {
	for name, refusal := range map[string]string{
		"cluster":        "CROSSSLOT Keys in request don't hash to the same slot",
		"migrating slot": "TRYAGAIN Multiple keys request during rehashing of slot",
	} {
		t.Run(name, func(t *testing.T) {
			l := unused(t, 128)
			l.wire.lua = lua.NewClient(&doer{answers: []any{rejection(refusal), granted, &net.OpError{Op: "dial", Err: errors.New("refused")}}})
			a := args(t, algo.GCRA)
			first, second := decision(a, "a", 1), decision(a, "b", 1)
			fly(l, first, second)
			if first.Err != nil || first.Class != breaker.ClassOK || first.Out.Remaining != 9 {
				t.Errorf("the first, which was charged: %+v, %v", first.Out, first.Err)
			}
			if !NeverExecuted(second.Err) || second.Class != breaker.ClassUnavailable {
				t.Errorf("the second, which was not: %v, %v", second.Class, second.Err)
			}
			if learnt := l.servers.only.OneSlot(); learnt != (name == "cluster") {
				t.Errorf("keys of one slot only: %v", learnt)
			}
		})
	}
}

// TestFullCalls: full calls that are slow become half as large, and one key larger with every few that leave half of the time; until one
// was slow, twice as large where there was time for several as long, whatever the way takes. Others say nothing.
func TestFullCalls(t *testing.T) {
	const ms = time.Millisecond
	type step struct {
		keys int
		took time.Duration
		want int
	}
	for name, c := range map[string]struct {
		sameSlot bool
		least    time.Duration
		steps    []step
	}{
		"one command": {steps: []step{
			{63, time.Hour, 64}, {64, 20 * ms, 64}, {64, 20*ms + 1, 32},
			{31, time.Hour, 32}, {64, 21 * ms, 32}, {256, 21 * ms, 32},
			{32, ms, 32}, {32, ms, 32}, {32, ms, 32}, {32, ms, 32}, {32, ms, 32}, {32, ms, 32}, {32, 20 * ms, 32}, {32, 10*ms + 1, 32}, {32, 10 * ms, 32}, {31, ms, 32}, {33, ms, 33},
			{33, ms, 33}, {33, 21 * ms, 16}, {16, ms, 16}, {16, ms, 16}, {16, ms, 16}, {16, ms, 16}, {16, ms, 16}, {16, ms, 16}, {16, ms, 16}, {16, ms, 17},
			{17, 21 * ms, 8}, {8, 21 * ms, 4}, {4, 21 * ms, 2}, {2, 21 * ms, 1}, {1, 21 * ms, 1},
		}},
		"a command each": {sameSlot: true, steps: []step{
			{3, ms, 4}, {4, 5*ms + 1, 4}, {4, 5 * ms, 8}, {8, ms, 16}, {16, ms, 32}, {32, ms, 64}, {64, ms, 64},
			{64, 21 * ms, 32}, {32, ms, 32},
		}},
		"far away": {sameSlot: true, least: 8 * ms, steps: []step{
			{4, 11*ms + 1, 4}, {4, 11 * ms, 8}, {8, 21 * ms, 4}, {4, 14*ms + 1, 4},
			{4, 14 * ms, 4}, {4, 14 * ms, 4}, {4, 14 * ms, 4}, {4, 14 * ms, 4}, {4, 14 * ms, 4}, {4, 14 * ms, 4}, {4, 14 * ms, 4}, {4, 14 * ms, 5},
		}},
	} {
		q := newQueue(&wire{fair: 20 * ms}, "", nil, c.sameSlot)
		q.least, q.each = c.least, 1 // a key takes the server nothing
		for i, s := range c.steps {
			if q.fit(time.Time{}, s.took, s.keys); q.full != s.want || q.room() != s.want {
				t.Fatalf("%s, step %d: full calls have %d keys, the next one has room for %d, not %d", name, i, q.full, q.room(), s.want)
			}
		}
	}
}

// TestFullCallsGrowWithTheirAnswers: full calls become larger each time that as many as are in flight were in time: the first ones
// do not show what those behind them take.
func TestFullCallsGrowWithTheirAnswers(t *testing.T) {
	for _, c := range []struct {
		slowed        bool
		flying, stuck int
		after         int
	}{
		{false, 0, 0, 1}, {false, 3, 0, 3}, {false, 15, 0, 15}, {false, 15, 12, 3},
		{true, 3, 0, larger}, {true, 15, 0, 15}, {true, 15, 5, 10},
	} {
		q := newQueue(&wire{fair: 20 * time.Millisecond}, "", nil, true)
		q.slowed, q.flights, q.stuck = c.slowed, inFlight(c.flying), c.stuck
		for range 3 {
			n := 0
			for full := q.full; q.full == full && n < 100; n++ {
				q.fit(time.Time{}, time.Millisecond, full)
			}
			if n != c.after {
				t.Errorf("%+v: of %d keys after %d", c, q.full, n)
			}
		}
	}
}

// TestLateByItself: a full call that is slow, while one that was sent after it was in time, says nothing of how large they are.
func TestLateByItself(t *testing.T) {
	const ms = time.Millisecond
	start := time.Now()
	at := func(i int) time.Time { return start.Add(time.Duration(i) * ms) }
	for i, c := range []struct {
		sent int // of one that was answered
		took time.Duration
		keys int
		want int // after one that was sent at 10 ms was slow
	}{
		{11, ms, callKeys, callKeys},
		{10, ms, callKeys, callKeys / 2},     // at the same time
		{9, ms, callKeys, callKeys / 2},      // before it
		{11, ms, callKeys - 1, callKeys / 2}, // is smaller
		{11, 20 * ms, callKeys, callKeys},
		{11, 20*ms + 1, callKeys, callKeys / 2}, // was slow as well
	} {
		q := newQueue(&wire{fair: 20 * ms}, "", nil, false)
		q.learn(at(c.sent), c.took, c.took, c.keys)
		q.full, q.smaller = callKeys, time.Time{}
		q.learn(at(1), ms, ms, callKeys) // one that comes late is not the last one that was sent
		if q.learn(at(10), 21*ms, 21*ms, callKeys); q.full != c.want || q.smaller.IsZero() != (c.want == callKeys) {
			t.Errorf("case %d: full calls have %d keys, smaller since %v", i, q.full, q.smaller)
		}
	}
}

// TestBusyServerIsNotFar: calls that are full, and wait for each other on a server that is asked for more than it can answer,
// do not let a server near by count as far, however long that lasts, also where all are full; others do, as it may have moved. A
// server that is far from the first call on counts as far where all are full, too.
func TestBusyServerIsNotFar(t *testing.T) {
	for _, c := range []struct {
		full, keys int
		first      time.Duration
		want       bool
	}{
		{callKeys, callKeys, far / 2, false}, {callKeys, callKeys - 1, far / 2, true}, {callKeys, callKeys, far, true},
		{firstKeys, firstKeys, far / 2, false}, {firstKeys, firstKeys - 1, far / 2, true}, {firstKeys, firstKeys, far, true},
	} {
		q := only(unused(t, 128))
		q.wire.connections, q.flights, q.full = 20, inFlight(depth), c.full
		q.learn(time.Time{}, c.first, c.first, c.keys)
		for range 3 * memory {
			q.learn(time.Time{}, 12*far, 12*far, c.keys)
		}
		if got := q.ready(); got != c.want || q.full != c.full {
			t.Errorf("%+v: far %v, full calls have %d keys", c, got, q.full)
		}
	}
}

// TestCallsWithoutAnAnswerAreNotInTime: a full call whose callers had too little time to see whether it is slow does not
// make the next ones larger.
func TestCallsWithoutAnAnswerAreNotInTime(t *testing.T) {
	q := newQueue(&wire{fair: 20 * time.Millisecond}, "", nil, true)
	for range 100 {
		f := newFlight(q.wire)
		f.space, f.sent, f.callers = callKeys*q.full, time.Now(), 1
		write(f)
		q.depart(&Op{state: flying, flight: f}, errBudget)
	}
	if q.full != firstKeys || q.good != 0 {
		t.Errorf("calls of %d keys, %d good", q.full, q.good)
	}
}

// TestCallsBehindASlowOneSayNothing: a call that was sent before an answer made calls smaller is no failure when it is slow, with an
// answer or without, or with the client's own error; one that was sent later is, and one whose connection ends. While the earlier ones are in flight, a server that is far gets no more than one near by.
func TestCallsBehindASlowOneSayNothing(t *testing.T) {
	for i := range 4 {
		answered, ended, gaveUp := i > 0, i == 2, i == 3
		synctest.Test(t, func(t *testing.T) {
			l, ends := unused(t, 128), false
			q := only(l)
			q.wire.connections, q.learnt, q.least, q.before = 20, sure, far, far
			q.wire.lua = lua.NewClient(process(func(_ context.Context, cmd redis.Cmder) error {
				time.Sleep(l.wire.fair + 1)
				switch {
				case ends:
					return io.EOF
				case gaveUp:
					return context.DeadlineExceeded
				}
				cmd.(interface{ SetVal([]int64) }).SetVal(granted)
				return nil
			}))
			slow := func(sent time.Time) {
				f := q.unused.New().(*flight)
				o := decision(gcraArgs, "k", 1)
				o.ctx = t.Context()
				f.add(o)
				f.callers, f.sent, f.deadline = 1, sent, time.Now().Add(time.Hour)
				f.ticket, _ = q.breaker.Acquire()
				if answered {
					if class, err := f.send(); (err != nil) != (ends || gaveUp) || (class != breaker.ClassOK) != (err != nil) {
						t.Errorf("ended %v, gave up %v: noted as %v, %v", ends, gaveUp, class, err)
					}
					return
				}
				write(f)
				q.mu.Lock()
				d := q.depart(o, errBudget)
				q.stuck--
				q.mu.Unlock()
				d.took = l.wire.fair + 1
				q.report(t.Context(), &d)
			}
			before := time.Now()
			q.flights = inFlight(depth)
			for _, f := range q.flights {
				f.sent = before
			}
			if !q.ready() {
				t.Error("not ready")
			}
			time.Sleep(time.Second)
			q.learn(time.Time{}, l.wire.fair+1, l.wire.fair+1, callKeys)
			if q.full != callKeys/2 || q.ready() {
				t.Errorf("full calls have %d keys; ready: %v", q.full, q.ready())
			}
			for range 100 {
				slow(before)
			}
			if s := q.breaker.Snapshot(); s.State != breaker.Closed || s.LastFailure != breaker.ClassOK {
				t.Errorf("answered %v, ended %v, gave up %v: %+v", answered, ended, gaveUp, s)
			}
			ends = ended
			for range 10 {
				sent := time.Now()
				if ends {
					sent = before // that the connection ended is news
				}
				slow(sent)
			}
			if s := q.breaker.State(); s != breaker.Open {
				t.Errorf("answered %v, ended %v, gave up %v: %v", answered, ended, gaveUp, s)
			}
			q.flights = nil
		})
	}
}
