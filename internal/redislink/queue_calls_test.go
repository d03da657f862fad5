package redislink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
)

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
		opens(l.servers.only.Breaker)
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

// TestCallsGrow: where those who wait need more than a few calls, each is larger, as far as a call goes and a small
// part of the budget, if it is one command. Logs and permits, which take the server longer, have as much of a large
// call as of a small one, in their turn.
func TestCallsGrow(t *testing.T) {
	a, log := args(t, algo.GCRA), args(t, algo.SlidingWindowLog)
	light := func(id string) *Op { return decision(a, id, 1) }
	mixed := func(id string) *Op {
		return &Op{ID: id, All: []lua.Item{{Params: *a, Cost: 1}, {Params: *log, Cost: 1}}}
	}
	most := unused(t, 128).wire.fair / quick
	for name, c := range map[string]struct {
		waiting  int
		request  func(id string) *Op
		each     time.Duration
		sameSlot bool
		want     int // requests of the call
	}{
		"nobody":           {0, light, 1, false, 1},
		"one call":         {callKeys, light, 1, false, callKeys},
		"four calls":       {4 * callKeys, light, 1, false, callKeys},
		"one more in each": {4*callKeys + 4, light, 1, false, callKeys + 1},
		"many":             {4 * largeKeys, light, 1, false, largeKeys},
		"too many":         {8 * largeKeys, light, 1, false, largeKeys},
		"none was full":    {4 * largeKeys, light, 0, false, callKeys},
		"slow":             {4 * largeKeys, light, most / 100, false, 100},
		"too slow":         {4 * largeKeys, light, most / 10, false, callKeys},
		"a command each":   {4 * largeKeys, light, 1, true, callKeys},
		"logs":             {4 * largeKeys, func(id string) *Op { return decision(log, id, 1) }, 1, false, callKeys},
		"permits":          {4 * largeKeys, func(id string) *Op { return &Op{ID: id, Permits: &lua.PermitAsk{}} }, 1, false, callKeys},
		"several":          {4 * largeKeys, mixed, 1, false, callKeys / 2},
	} {
		q := only(unused(t, 128))
		q.learn(c.each*callKeys, callKeys)
		q.learn(time.Hour, callKeys-1) // not full
		q.sameSlot = c.sameSlot
		for i := range c.waiting {
			o := c.request(fmt.Sprint(i))
			o.deadline = time.Now().Add(2 * time.Hour)
			q.waiting.push(o)
		}
		q.mu.Lock()
		if f := q.gather(c.request("first")); len(f.ops) != c.want {
			t.Errorf("%s: %d requests, want %d", name, len(f.ops), c.want)
		}
		q.mu.Unlock()
	}
	// Half and half: they leave in their order.
	q := only(unused(t, 128))
	q.learn(callKeys, callKeys)
	for i := range 4 * largeKeys {
		q.waiting.push(light(fmt.Sprint("light", i)))
		q.waiting.push(decision(log, fmt.Sprint("log", i), 1))
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	f, ofEach := q.gather(light("first")), map[algo.Kind]int{}
	for _, o := range f.ops {
		ofEach[o.Args.Kind]++
	}
	if n := largeKeys * callKeys / (largeKeys + callKeys); ofEach[algo.SlidingWindowLog] != n || ofEach[algo.GCRA]-n > 4 {
		t.Errorf("%v, want %d of each", ofEach, n)
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
		q.learn(0, 1)
		for range memory {
			q.learn(c.trip, 1)
		}
		for range memory {
			q.learn(c.trip+time.Second, 1)
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
		rejection("MOVED 1 127.0.0.1:1"):                                         true,
		rejection("ASK 1 127.0.0.1:1"):                                           true,
		rejection("ERR Script attempted to access a non local key in a cluster"): false, // after others
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
	if keys := f.space / callKeys; keys > callKeys || keys+2 <= callKeys || f.used != 3 {
		t.Errorf("%d requests with %d keys in %d commands", n, keys, f.used)
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

// TestFirstIsOneThatIsAnswered: of callers who share an item, the first one who has not left notes what came of it.
func TestFirstIsOneThatIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lets, _ := hanging(t, 128)
		q := only(l)
		for _, id := range []string{"a", "b", "c"} {
			begin(t.Context(), q, id, time.Second)
		}
		ctx, cancel := context.WithCancel(t.Context())
		leaves, second, third := begin(ctx, q, "d", time.Second), begin(t.Context(), q, "d", time.Second), begin(t.Context(), q, "d", time.Second)
		lets <- struct{}{}
		synctest.Wait()
		cancel()
		synctest.Wait()
		for range 3 {
			lets <- struct{}{}
		}
		synctest.Wait()
		if leaves.o.First || !second.o.First || third.o.First {
			t.Errorf("first: %v, %v, %v", leaves.o.First, second.o.First, third.o.First)
		}
	})
}

// TestFarCallsWaitForWhatIsLeft: a call that was too large holds up those to a server that is far also where it is the only one of its time,
// or in flight while the callers of the others are being answered; where all calls have ended, none does.
func TestFarCallsWaitForWhatIsLeft(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		flying, landing int
		first           time.Duration // when it was sent
		ready           bool
	}{
		{depth, 0, -1, false}, {1, depth - 1, -1, false}, {1, depth - 1, 0, true}, {0, depth, 0, true},
	} {
		q := only(unused(t, 128))
		q.wire.connections, q.learnt, q.least, q.before = 20, sure, far, far
		q.flights, q.landing, q.smaller = inFlight(c.flying), c.landing, now
		for i, f := range q.flights {
			f.sent = now.Add(c.first + time.Duration(i))
		}
		if got := q.ready(); got != c.ready {
			t.Errorf("%+v: ready %v", c, got)
		}
	}
}

// TestProbeBehindASlowCall: a probe that was sent before calls became smaller, and is slow, makes room for the next one: it
// neither opens the breaker again nor keeps others waiting for its own end. Whether it was answered makes no difference.
func TestProbeBehindASlowCall(t *testing.T) {
	for _, answered := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := unused(t, 128)
			q := only(l)
			l.wire.lua = lua.NewClient(process(func(_ context.Context, cmd redis.Cmder) error {
				time.Sleep(l.wire.fair + 1)
				cmd.(interface{ SetVal([]int64) }).SetVal(granted)
				return nil
			}))
			opens(q.breaker)
			opened := q.breaker.Snapshot().Opens
			o := decision(gcraArgs, "k", 1)
			f := q.unused.New().(*flight)
			f.add(o)
			f.callers, f.sent, f.deadline = 1, time.Now(), o.deadline
			if f.ticket, _ = q.breaker.Acquire(); !f.ticket.Probe() {
				t.Fatal("no probe")
			}
			q.smaller = f.sent.Add(1)
			if answered {
				_, _ = f.send()
			} else {
				f.sending.state.Store(sent)
				time.Sleep(l.wire.fair + 1)
				d := q.depart(o, errBudget)
				q.report(t.Context(), &d)
			}
			next, ok := q.breaker.Acquire()
			if s := q.breaker.Snapshot(); !ok || !next.Probe() || s.State != breaker.HalfOpen || s.Opens != opened {
				t.Errorf("answered %v: %+v, the next one is a probe: %v", answered, s, next.Probe())
			}
		})
	}
}

// TestCallsBeforeLargerOnesCount: that full calls have become larger excuses none that was sent before and is slow, and holds up none.
func TestCallsBeforeLargerOnesCount(t *testing.T) {
	q := only(unused(t, 128))
	q.wire.connections, q.learnt, q.least, q.before, q.full = 20, sure, far, far, firstKeys
	q.flights = inFlight(depth)
	for _, f := range q.flights {
		f.sent = time.Now().Add(-time.Second)
	}
	for range depth {
		q.learn(far, firstKeys)
	}
	if q.full != 2*firstKeys || !q.ready() || q.outdated(q.flights[0]) {
		t.Errorf("full calls have %d keys; ready: %v; says nothing: %v", q.full, q.ready(), q.outdated(q.flights[0]))
	}
}

// works reports so many successes that a part of failures does not open a breaker.
func works(br *breaker.Breaker) {
	for range 100 {
		k, _ := br.Acquire()
		k.Done(breaker.ClassOK, 0)
	}
}

// TestFarSoonNearAtOnce: a server counts as far after its first calls, and as near as soon as one call is short, however far it was.
func TestFarSoonNearAtOnce(t *testing.T) {
	q := only(unused(t, 128))
	q.wire.connections, q.flights = 20, inFlight(depth)
	for i := range sure {
		if q.ready() {
			t.Errorf("far after %d calls", i)
		}
		q.learn(far, 1)
	}
	if !q.ready() {
		t.Errorf("not far after %d calls", sure)
	}
	for least, want := range map[time.Duration]bool{far: true, far - 1: false} {
		q := only(unused(t, 128))
		q.wire.connections, q.flights, q.learnt, q.before, q.least = 20, inFlight(depth), sure, far, 2*far
		if q.learn(least, 1); q.ready() != want {
			t.Errorf("after a call of %v: far %v", least, !want)
		}
	}
}

// opens opens a breaker, and waits until it lets a probe through.
func opens(br *breaker.Breaker) {
	for br.State() == breaker.Closed {
		p, _ := br.Acquire()
		p.Report(breaker.ClassUnavailable, breaker.ProofRun, 0)
	}
	time.Sleep(time.Minute)
}

// TestAnswersInTimeCount: an answer in just the time that it may take is a success of its server, also where calls have become
// smaller since it was asked for: the failures before it and those after it are not one after the other.
func TestAnswersInTimeCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := unused(t, 128)
		q := only(l)
		l.wire.lua = lua.NewClient(process(func(_ context.Context, cmd redis.Cmder) error {
			time.Sleep(l.wire.fair)
			cmd.(interface{ SetVal([]int64) }).SetVal(granted)
			return nil
		}))
		fails := func(n int) {
			for range n {
				k, _ := q.breaker.Acquire()
				k.Report(breaker.ClassUnavailable, breaker.ProofRun, 0)
			}
		}
		works(q.breaker)
		fails(9) // ten open it
		f := q.unused.New().(*flight)
		f.add(decision(gcraArgs, "k", 1))
		f.callers, f.sent, f.deadline = 1, time.Now(), time.Now().Add(time.Hour)
		f.ticket, _ = q.breaker.Acquire()
		q.smaller = f.sent.Add(1)
		if class, err := f.send(); class != breaker.ClassOK || f.took != l.wire.fair {
			t.Fatalf("%v, %v, after %v", class, err, f.took)
		}
		fails(9)
		if s := q.breaker.State(); s != breaker.Closed {
			t.Errorf("%v", s)
		}
		fails(1)
		if s := q.breaker.State(); s != breaker.Open {
			t.Errorf("after ten without an answer: %v", s)
		}
	})
}

// TestSilenceBeforeLittleTime: a call of callers with less time than an answer may take outlives them when calls have gone without an
// answer for longer than a second, and only then.
func TestSilenceBeforeLittleTime(t *testing.T) {
	for _, c := range []struct {
		left     time.Duration // of the time that an answer may take
		silent   time.Duration
		outlives bool
	}{
		{-1, time.Second, false}, {-1, time.Second + 1, true}, {0, time.Second + 1, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := only(unused(t, 128))
			q.learnt, q.asked = 1, time.Now().Add(-c.silent)
			o := decision(gcraArgs, "a", 1)
			o.deadline = time.Now().Add(q.wire.fair + c.left)
			q.mu.Lock()
			f := q.gather(o)
			q.mu.Unlock()
			ticket, _ := q.breaker.Acquire()
			if !q.begin(f, ticket) || f.probes != c.outlives || f.deadline.After(o.deadline) != c.outlives {
				t.Errorf("%+v: %v longer than its caller", c, f.deadline.Sub(o.deadline))
			}
		})
	}
}

// TestPeeksWithoutAnAnswer: after calls of nothing but peeks that all callers left without an answer, the answer to a peek shows
// that the server is back; after others it shows nothing, and the failures before it and those after it are one after the other.
func TestPeeksWithoutAnAnswer(t *testing.T) {
	for _, cost := range []int64{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			l := unused(t, 128)
			q := only(l)
			l.wire.lua = lua.NewClient(&doer{answers: []any{granted}})
			silent := func(n int) {
				for range n {
					o := decision(gcraArgs, "k", cost)
					f := q.unused.New().(*flight)
					f.add(o)
					f.callers, f.sent = 1, time.Now()
					f.ticket, _ = q.breaker.Acquire()
					f.sending.state.Store(sent)
					time.Sleep(q.wire.fair)
					d := q.depart(o, errBudget)
					q.report(t.Context(), &d)
				}
			}
			works(q.breaker)
			silent(9) // ten open it
			peek := decision(gcraArgs, "k", 0)
			if fly(l, peek); peek.Class != breaker.ClassOK {
				t.Fatalf("the peek: %v, %v", peek.Class, peek.Err)
			}
			silent(9)
			if isOpen := q.breaker.State() != breaker.Closed; isOpen != (cost > 0) {
				t.Errorf("of %d units: open %v", cost, isOpen)
			}
		})
	}
}

// TestUnsentCallsWereNotTooLarge: that all callers of a full call have cancelled before it was written, however late, makes no other one smaller.
func TestUnsentCallsWereNotTooLarge(t *testing.T) {
	q := newQueue(&wire{fair: 20 * time.Millisecond}, "", nil, false)
	f := newFlight(q.wire)
	f.space, f.sent, f.callers = callKeys*callKeys, time.Now().Add(-time.Hour), 1
	if q.depart(&Op{state: flying, flight: f}, context.Canceled); q.full != callKeys {
		t.Errorf("calls of %d keys", q.full)
	}
}

// TestSilenceBeginsWithItsFirstCall: calls that are asked for in the silence do not let it begin again.
func TestSilenceBeginsWithItsFirstCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := only(unused(t, 128))
		q.learnt = 1
		for i := range 4 {
			f := q.unused.New().(*flight)
			o := decision(gcraArgs, "a", 1)
			o.deadline = time.Now().Add(q.wire.fair / 2)
			f.add(o)
			f.callers, f.sent = 1, time.Now().Add(-time.Hour) // of its use before
			ticket, _ := q.breaker.Acquire()
			if !q.begin(f, ticket) || f.probes != (i == 3) || !f.sent.Equal(time.Now()) {
				t.Errorf("call %d: outlives its callers: %v, sent %v ago", i, f.probes, time.Since(f.sent))
			}
			time.Sleep(2 * silence / 5)
		}
	})
}

// TestCallersBehindASlowCall: calls that were sent before others became smaller are no failures when one of several callers leaves
// without an answer, as little as when the last one does; those for which there was no connection are.
func TestCallersBehindASlowCall(t *testing.T) {
	for _, c := range []struct {
		callers int
		state   uint32
		class   breaker.Class
		opens   bool
	}{
		{1, sent, breaker.ClassSlow, false}, {2, sent, breaker.ClassSlow, false}, {1, unsent, breaker.ClassUnavailable, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := only(unused(t, 128))
			for range 10 {
				o := decision(gcraArgs, "k", 1)
				f := q.unused.New().(*flight)
				f.add(o)
				f.callers, f.sent = c.callers, time.Now()
				f.ticket, _ = q.breaker.Acquire()
				f.sending.state.Store(c.state)
				q.smaller = f.sent.Add(1)
				time.Sleep(q.wire.fair)
				d := q.depart(o, errBudget)
				if class, err := q.report(t.Context(), &d); class != c.class {
					t.Errorf("%+v: %v, %v", c, class, err)
				}
			}
			if isOpen := q.breaker.State() != breaker.Closed; isOpen != c.opens {
				t.Errorf("%+v: open %v", c, isOpen)
			}
		})
	}
}

// TestCallThatAllLeftIsNotedAsSlow: a call that the client gives up when all callers have left is noted as a slow one, and is no second failure.
func TestCallThatAllLeftIsNotedAsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := unused(t, 128)
		q := only(l)
		l.wire.lua = lua.NewClient(process(func(ctx context.Context, _ redis.Cmder) error {
			<-ctx.Done()
			return ctx.Err()
		}))
		o := decision(gcraArgs, "k", 1)
		f := q.unused.New().(*flight)
		f.add(o)
		f.callers, f.sent, f.deadline = 1, time.Now(), o.deadline
		f.ticket, _ = q.breaker.Acquire()
		f.sending.state.Store(sent)
		q.depart(o, context.Canceled)
		if class, err := f.send(); class != breaker.ClassSlow || !errors.Is(err, context.DeadlineExceeded) || f.answered {
			t.Errorf("noted as %v, %v", class, err)
		}
		if s := q.breaker.Snapshot(); s.LastFailure != breaker.ClassOK {
			t.Errorf("%+v", s)
		}
	})
}
