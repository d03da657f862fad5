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
		q.learn(time.Time{}, c.each*callKeys, c.each*callKeys, callKeys)
		q.learn(time.Time{}, time.Hour, time.Hour, callKeys-1) // not full
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
	q.learn(time.Time{}, callKeys, callKeys, callKeys)
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

// TestCallWithoutRoomIsFull: a call that has no room for one more counts as full, with fewer keys too.
func TestCallWithoutRoomIsFull(t *testing.T) {
	q, a, log := only(unused(t, 128)), args(t, algo.GCRA), *args(t, algo.SlidingWindowLog)
	log.Cap = 10_000
	several := func(id string) *Op { return &Op{ID: id, All: []lua.Item{{Params: *a}, {Params: *a}, {Params: *a}}} }
	heavy := func(id string) *Op { return decision(&log, id, callWork/8) }
	for name, c := range map[string]struct {
		request       func(id string) *Op
		room, waiting int
		requests      int // of the call
		keys          int // that it counts as
	}{
		"one more fits":    {several, callKeys, 20, 21, 63},
		"three keys":       {several, callKeys, 21, 21, 64},
		"more than a call": {several, 2, 1, 1, 3},
		"work":             {heavy, callKeys, 7, 8, 8},
		"too much work":    {heavy, callKeys, 8, 8, 64},
		"room for less":    {heavy, callKeys / 2, 8, 8, 32},
		"one alone":        {heavy, 1, 1, 1, 1},
	} {
		q.full = c.room
		for i := range c.waiting {
			o := c.request(fmt.Sprint(i))
			o.deadline = time.Now().Add(time.Hour)
			q.waiting.push(o)
		}
		q.mu.Lock()
		f := q.gather(c.request("first"))
		q.waiting = fifo{}
		q.mu.Unlock()
		if len(f.ops) != c.requests || f.keys() != c.keys {
			t.Errorf("%s: %d requests, which count as %d keys", name, len(f.ops), f.keys())
		}
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
		q.learn(time.Time{}, 0, 0, 1)
		for range memory {
			q.learn(time.Time{}, c.trip, c.trip, 1)
		}
		for range memory {
			q.learn(time.Time{}, c.trip+time.Second, c.trip+time.Second, 1)
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
