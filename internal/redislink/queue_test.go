package redislink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
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

// only is the queue of a link with one server.
func only(l *Link) *queue { return l.servers.only.queue }

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

// TestProbeStopsAtItsFirstFailure: a probe sends its commands one by one. What it does not send
// because the one before it failed is known to be never charged; the failed one, which the
// server may have executed, is not. It alone says what the probe proves.
func TestProbeStopsAtItsFirstFailure(t *testing.T) {
	timeout := &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
	synctest.Test(t, func(t *testing.T) {
		l := unused(t, 128)
		d := &doer{answers: []any{timeout}}
		l.wire.lua = lua.NewClient(d)
		only(l).sameSlot = true // or one command would do
		br := l.servers.only.Breaker
		for br.State() == breaker.Closed {
			p, _ := br.Acquire()
			p.Report(breaker.ClassUnavailable, breaker.ProofRun, 0)
		}
		time.Sleep(time.Minute)
		a := args(t, algo.GCRA)
		first, second := decision(a, "a", 1), decision(a, "b", 0)
		fly(l, first, second)
		if NeverExecuted(first.Err) || first.Class != breaker.ClassUnavailable {
			t.Errorf("the first, which was sent: %v, %v", first.Class, first.Err)
		}
		if !NeverExecuted(second.Err) || second.Class != breaker.ClassUnavailable {
			t.Errorf("the second, which was not: %v, %v", second.Class, second.Err)
		}
		if d.calls != 1 {
			t.Errorf("%d commands were sent", d.calls)
		}
		if !errors.Is(second.Err, os.ErrDeadlineExceeded) {
			t.Errorf("the cause is lost: %v", second.Err)
		}
	})
}

// TestScriptsAreLoadedForAll: of commands in one write, those that the server does not
// know are sent once more, and no others.
func TestScriptsAreLoadedForAll(t *testing.T) {
	l := unused(t, 128)
	only(l).sameSlot = true
	d := &doer{answers: []any{rejection("NOSCRIPT No matching script"), granted, rejection("NOSCRIPT No matching script"), granted, granted}}
	l.wire.lua = lua.NewClient(d)
	a := args(t, algo.GCRA)
	ops := []*Op{decision(a, "a", 1), decision(a, "b", 1), decision(a, "c", 1)}
	fly(l, ops...)
	for _, o := range ops {
		if o.Class != breaker.ClassOK || !o.Out.Allowed {
			t.Errorf("%s: %v, %v", o.ID, o.Class, o.Err)
		}
	}
	if d.calls != 5 {
		t.Errorf("%d commands, want 3 and 2 again", d.calls)
	}
}

// TestHotKeyTakesOnePlace: however many ask for one key, the next call has room
// for the others who wait, and keeps their order.
func TestHotKeyTakesOnePlace(t *testing.T) {
	q, a := only(unused(t, 128)), args(t, algo.GCRA)
	q.mu.Lock()
	defer q.mu.Unlock()
	const others = 100
	for i := range others {
		for range 5 {
			q.waiting.push(decision(a, "hot", 1))
		}
		q.waiting.push(decision(a, fmt.Sprint(i), 1))
	}
	f := q.gather(decision(a, "hot", 1))
	if items := f.commands[0].decide.Items; len(items) != callKeys || items[0].Count != 1+5*others {
		t.Errorf("%d items, the first for %d callers", len(items), items[0].Count)
	}
	if n := q.waiting.len(); n != others-(callKeys-1) {
		t.Errorf("%d wait for the next call", n)
	}
	if next := q.waiting.pop(); next == nil || next.ID != fmt.Sprint(callKeys-1) {
		t.Errorf("%+v is next", next)
	}
	for range 3 * callOps {
		q.waiting.push(decision(a, "hot", 1))
	}
	if f := q.gather(decision(a, "hot", 1)); len(f.ops) != callOps {
		t.Errorf("%d callers in one call, want at most %d", len(f.ops), callOps)
	}
}

// TestAllStuckIsAtOnce: where every call that may be under way has lost its
// callers, waiting for a turn is in vain; where one has not, it is not.
func TestAllStuckIsAtOnce(t *testing.T) {
	q, a := only(unused(t, 2)), args(t, algo.GCRA)
	q.flights, q.stuck = inFlight(2), 2
	if _, err := q.add(decision(a, "a", 1), true); err != errNoTurn {
		t.Errorf("with all stuck: %v", err)
	}
	q.stuck = 1
	if _, err := q.add(decision(a, "a", 1), true); err != nil || q.waiting.len() != 1 {
		t.Errorf("with one that is not: %v, %d waiting", err, q.waiting.len())
	}
}

// TestFarCallsDoNotWait: with a server that is far, a full call leaves although others are in
// flight, and so does any where there are connections for all who ask, as long as that
// leaves some to others; and only then.
func TestFarCallsDoNotWait(t *testing.T) {
	for _, c := range []struct {
		trip                         time.Duration
		connections, waiting, flying int
		ready                        bool
	}{
		{0, 20, 0, depth - 1, true},
		{time.Microsecond, 20, callKeys, depth, false},
		{far, 20, callKeys - 1, depth, false},
		{far, 20, callKeys, depth, true},
		{far, 20, callKeys, 14, true},
		{far, 20, callKeys, 15, false},
		{far, 0, callKeys, depth, false},
		{far - 1, 20, callKeys, depth, false},
		// Those in flight have a caller each.
		{far, 20, 1, depth, true},
		{far, 20, 11, depth, true},
		{far, 20, 12, depth, false},
		{far, 20, 1, 13, true},
		{far, 20, 1, 14, false},
		{far - 1, 20, 1, depth, false},
	} {
		q, a := only(unused(t, 128)), args(t, algo.GCRA)
		q.learn(0)
		for range memory {
			q.learn(c.trip)
		}
		for range memory {
			q.learn(c.trip + time.Second)
		}
		q.wire.connections, q.flights = c.connections, inFlight(c.flying)
		for range c.waiting {
			q.waiting.push(decision(a, "a", 1))
		}
		if got := q.ready(); got != c.ready {
			t.Errorf("%+v: ready %v", c, got)
		}
		q.learnt = sure - 1 // too few calls to tell
		if got := q.ready(); got != (c.flying < depth) {
			t.Errorf("%+v, after few calls: ready %v", c, got)
		}
	}
}

// TestCallersWithTooLittleTimeAreNotSent: who has less time left than a round trip takes is not sent in
// the place of one who can wait, unless nothing else tells how long one takes.
func TestCallersWithTooLittleTimeAreNotSent(t *testing.T) {
	for flying, want := range map[int]string{1: "patient", 0: "in a hurry"} {
		q, a := only(unused(t, 128)), args(t, algo.GCRA)
		q.trip, q.flights = 10*time.Millisecond, inFlight(flying)
		hurried, patient := decision(a, "in a hurry", 1), decision(a, "patient", 1)
		hurried.deadline = time.Now().Add(5 * time.Millisecond)
		q.mu.Lock()
		q.waiting.push(hurried)
		q.waiting.push(patient)
		f, late := q.next()
		q.mu.Unlock()
		if f.ops[0].ID != want {
			t.Errorf("with %d in flight %s is sent", flying, f.ops[0].ID)
		}
		q.sendOff(nil, late)
		if flying == 0 {
			continue
		}
		select {
		case <-hurried.done:
			if hurried.Err != errNoTurn || hurried.Class != breaker.ClassAborted {
				t.Errorf("who is not sent gets %v, %v", hurried.Class, hurried.Err)
			}
		default:
			t.Error("who is not sent waits on")
		}
	}
}

// TestNeverExecuted: what is certain not to have been executed may be sent again; nothing
// else may.
func TestNeverExecuted(t *testing.T) {
	for err, want := range map[error]bool{
		ErrOpen:   true,
		errUnsent: true,
		errBudget: false,
		io.EOF:    false,
		&net.OpError{Op: "dial", Err: errors.New("refused")}: true,
		&net.OpError{Op: "read", Err: errors.New("reset")}:   false,
		redis.ErrPoolTimeout:                                                     true,
		rejection("NOSCRIPT No matching script"):                                 true,
		rejection("OOM command not allowed"):                                     true,
		rejection("READONLY You can't write"):                                    true,
		rejection("LOADING"):                                                     true,
		rejection("TRYAGAIN Multiple keys request during rehashing of slot"):     true,
		rejection("CROSSSLOT Keys in request don't hash to the same slot"):       true,
		rejection("NOPERM this user has no permissions to run 'evalsha'"):        true,
		rejection("ERR The user executing the script can't run this command"):    false, // after others
		rejection("ERR ACL failure in script: User has no permissions"):          false,
		rejection("MOVED 1 127.0.0.1:1"):                                         false, // followed, and the reply lost
		rejection("ASK 1 127.0.0.1:1"):                                           false,
		rejection("WRONGTYPE Operation against a key holding the wrong kind of"): false,
	} {
		if got := NeverExecuted(fmt.Errorf("wrapped: %w", err)); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}

// TestRequestsForSeveralLimitsShareACommand: those of one call whose limits are of the same
// algorithms, as far as the keys of a call go; others have a command of their own.
func TestRequestsForSeveralLimitsShareACommand(t *testing.T) {
	l := unused(t, 128)
	several := func(id string, kinds ...algo.Kind) *Op {
		o := &Op{ID: id}
		for _, kind := range kinds {
			o.All = append(o.All, lua.Item{Keys: names.KeysOf(kind, id), Params: *args(t, kind), Cost: 1})
		}
		return o
	}
	f := newFlight(l.wire)
	for i, c := range []struct {
		kinds    []algo.Kind
		commands int
	}{
		{[]algo.Kind{algo.GCRA, algo.FixedWindow}, 1},
		{[]algo.Kind{algo.GCRA, algo.FixedWindow}, 1},
		{[]algo.Kind{algo.FixedWindow, algo.GCRA}, 2},
		{[]algo.Kind{algo.GCRA, algo.FixedWindow, algo.GCRA}, 3},
		{[]algo.Kind{algo.GCRA, algo.FixedWindow}, 3},
	} {
		if ok := f.add(several(fmt.Sprint(i), c.kinds...)); !ok || f.used != c.commands {
			t.Fatalf("request %d: accepted %v, %d commands", i, ok, f.used)
		}
	}
	n := len(f.ops)
	for ; f.add(several(fmt.Sprint(n), algo.GCRA, algo.FixedWindow)); n++ {
	}
	if f.keys > callKeys || f.keys+2 <= callKeys || f.used != 3 {
		t.Errorf("%d requests with %d keys in %d commands", n, f.keys, f.used)
	}
}

// TestCommandsOfOneKeySentApart: two costs on one key of a log, sent apart, have nonces of their own, by
// which their units are named.
func TestCommandsOfOneKeySentApart(t *testing.T) {
	l := unused(t, 128)
	d := &doer{answers: []any{rejection("TRYAGAIN"), []int64{1_760_000_000_000_000, 2, 1000, 0}}}
	l.wire.lua = lua.NewClient(d)
	a := args(t, algo.SlidingWindowLog)
	first, second := decision(a, "a", 1), decision(a, "a", 2)
	fly(l, first, second)
	if first.Class != breaker.ClassOK || second.Class != breaker.ClassOK || len(d.args) != 3 {
		t.Fatalf("%v and %v, %d commands", first.Class, second.Class, len(d.args))
	}
	nonce := func(i int) any { return d.args[i][5] } // after the script, one key and the time
	if nonce(1) == nonce(2) || nonce(1) == "" {
		t.Errorf("the nonces are %v and %v", nonce(1), nonce(2))
	}
}
