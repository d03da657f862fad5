package redislink

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
)

// hanging is a link whose server answers a command when it is let: one for each time that it is sent to.
func hanging(t *testing.T, inFlight int) (l *Link, lets chan struct{}, sent func() []string) {
	var mu sync.Mutex
	var keys []string
	l, lets = unused(t, inFlight), make(chan struct{})
	l.wire.lua = lua.NewClient(process(func(_ context.Context, cmd redis.Cmder) error {
		all := cmd.Args()
		mu.Lock()
		keys = append(keys, *all[3].(*string))
		if len(keys) > 1 {
			all = all[:3]
		}
		mu.Unlock()
		n, v := all[2].(int), []int64{granted[0]}
		for range n {
			v = append(v, granted[1])
		}
		<-lets
		cmd.(interface{ SetVal([]int64) }).SetVal(v)
		return nil
	}))
	return l, lets, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(keys)
	}
}

// standing is how many requests wait and are asked for, and how many calls are stuck and in flight.
type standing struct {
	waiting, asking, stuck, calls int
	learnt                        uint64
}

func look(q *queue) standing {
	q.mu.Lock()
	defer q.mu.Unlock()
	return standing{q.waiting.len(), q.asking(), q.stuck, len(q.flights) + q.landing, q.learnt}
}

// caller is a caller of a request, and what came of it.
type caller struct {
	o        *Op
	took     time.Duration
	class    breaker.Class
	err      error
	done     bool
	answered []bool // with which After was called
}

func begin(ctx context.Context, q *queue, id string, budget time.Duration) *caller {
	c, began := &caller{o: &Op{}}, time.Now()
	a := gcraArgs
	c.o.ID, c.o.Args, c.o.Keys, c.o.Cost = id, a, names.KeysOf(a.Kind, id), 1
	c.o.After = func(_ *Op, answered bool) { c.answered = append(c.answered, answered) }
	go func() {
		c.class, c.err = q.do(ctx, c.o, budget)
		c.took, c.done = time.Since(began), true
	}()
	synctest.Wait()
	return c
}

var gcraArgs = func() *lua.Args {
	p, err := algo.Limit{Kind: algo.GCRA, N: 10, Per: 3600_000_000, Burst: 10}.Params()
	if err != nil {
		panic(err)
	}
	a := lua.NewArgs(p)
	return &a
}()

// TestCallersLeave: each when its own budget is over, whoever came before it; whose request was not sent is told so, those
// who wait take the places of calls that have lost all their callers, and what such a call ends with is nothing to them.
func TestCallersLeave(t *testing.T) {
	const ms = time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		l, lets, sent := hanging(t, 128)
		q := only(l)
		l.wire.fair = 10 * ms
		first, second, third := begin(t.Context(), q, "a", 50*ms), begin(t.Context(), q, "b", 20*ms), begin(t.Context(), q, "c", 50*ms)
		waits, hurried, patient := begin(t.Context(), q, "d", 90*ms), begin(t.Context(), q, "e", 10*ms), begin(t.Context(), q, "e", 30*ms)
		if now := look(q); len(sent()) != depth || now.waiting != 3 || now.asking != 6 {
			t.Fatalf("%v were sent, %+v", sent(), now)
		}
		time.Sleep(10 * ms)
		synctest.Wait()
		if !hurried.done || hurried.took != 10*ms || hurried.class != breaker.ClassAborted || hurried.err != errNoTurn || len(hurried.answered) != 1 || hurried.answered[0] || hurried.o.Class != breaker.ClassAborted {
			t.Errorf("one that was not sent: %+v", hurried)
		}
		if n := q.overloaded.Load(); n != 0 { // no call was answered meanwhile
			t.Errorf("%d are overload", n)
		}
		time.Sleep(10 * ms)
		synctest.Wait()
		if !second.done || second.took != 20*ms || second.class != breaker.ClassUnavailable && second.class != breaker.ClassSlow || len(second.answered) != 0 {
			t.Errorf("one that was sent: %+v", second)
		}
		// Its place is that of the two who wait, who leave together.
		if now := look(q); len(sent()) != depth+1 || now.stuck != 1 || now.waiting != 0 {
			t.Errorf("%v were sent, %+v", sent(), now)
		}
		time.Sleep(10 * ms)
		synctest.Wait()
		if !patient.done || patient.took != 30*ms {
			t.Errorf("one of two callers: %+v", patient)
		}
		late := begin(t.Context(), q, "f", 5*ms)
		time.Sleep(5 * ms)
		synctest.Wait()
		if late.err != errNoTurn || q.overloaded.Load() != 0 {
			t.Errorf("while a call is stuck: %+v; %d are overload", late, q.overloaded.Load())
		}
		for range depth + 1 {
			lets <- struct{}{}
			synctest.Wait()
		}
		if first.class != breaker.ClassOK || third.class != breaker.ClassOK || waits.class != breaker.ClassOK || waits.took != 35*ms {
			t.Errorf("%+v, %+v, %+v", first, third, waits)
		}
		for c, want := range map[*caller]bool{first: true, waits: true, second: false, patient: false} {
			if len(c.answered) != 1 || c.answered[0] != want {
				t.Errorf("%s: answered %v", c.o.ID, c.answered)
			}
		}
		if now := look(q); now != (standing{learnt: 4}) {
			t.Errorf("%+v", now)
		}
		if again := begin(t.Context(), q, "g", 50*ms); again.done {
			t.Errorf("%+v", again)
		} else {
			lets <- struct{}{}
			synctest.Wait()
			if again.class != breaker.ClassOK || again.err != nil {
				t.Errorf("%+v", again)
			}
		}
	})
}

// TestCallersAreCancelled: who does not wait any longer takes no answer of others along, and one that was answered at
// that moment has the answer.
func TestCallersAreCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lets, sent := hanging(t, 128)
		q := only(l)
		var all []*caller
		for _, id := range []string{"a", "b", "c"} {
			all = append(all, begin(t.Context(), q, id, time.Second))
		}
		ctx, cancel := context.WithCancel(t.Context())
		waits, stays := begin(ctx, q, "d", time.Second), begin(t.Context(), q, "d", time.Second)
		cancel()
		synctest.Wait()
		if waits.class != breaker.ClassCaller || waits.err != context.Canceled || len(waits.answered) != 1 || waits.answered[0] || stays.done {
			t.Errorf("%+v", waits)
		}
		ctx, cancel = context.WithCancel(t.Context())
		alone := begin(ctx, q, "e", time.Second)
		if len(sent()) != depth {
			t.Errorf("%v were sent", sent())
		}
		cancel()
		for range 5 {
			select {
			case lets <- struct{}{}:
			default:
			}
			synctest.Wait()
		}
		if stays.class != breaker.ClassOK || alone.class != breaker.ClassCaller || q.overloaded.Load() != 0 {
			t.Errorf("%+v, %+v", stays, alone)
		}
		for _, c := range all {
			if c.class != breaker.ClassOK {
				t.Errorf("%+v", c)
			}
		}
		// One that was answered, and one that was sent home, have what was said.
		o := decision(gcraArgs, "k", 1)
		o.state, o.Class, o.Err = answered, breaker.ClassBug, ErrOpen
		o.done <- struct{}{}
		if class, err := q.leave(t.Context(), o, context.Canceled); class != breaker.ClassBug || err != ErrOpen {
			t.Errorf("answered: %v, %v", class, err)
		}
		o.state, o.dismissed.class, o.dismissed.err = left, breaker.ClassSlow, errBudget
		o.done <- struct{}{}
		if class, err := q.leave(t.Context(), o, context.Canceled); class != breaker.ClassSlow || err != errBudget {
			t.Errorf("sent home: %v, %v", class, err)
		}
	})
}

// TestHurriedCallersAreTold: who waits, and has not the time of a round trip any more when a place is free, is told at that moment.
func TestHurriedCallersAreTold(t *testing.T) {
	const ms = time.Millisecond
	for how, overloaded := range map[string]uint64{"a call ends": 1, "a caller leaves": 0} {
		synctest.Test(t, func(t *testing.T) {
			l, lets, _ := hanging(t, 128)
			q := only(l)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for _, id := range []string{"a", "b", "c"} {
				begin(ctx, q, id, time.Second)
				ctx = t.Context()
			}
			q.mu.Lock()
			q.trip = 40 * ms
			q.mu.Unlock()
			hurried, patient := begin(t.Context(), q, "d", 35*ms), begin(t.Context(), q, "e", time.Second)
			time.Sleep(20 * ms)
			if how == "a call ends" {
				lets <- struct{}{}
			} else {
				cancel()
			}
			synctest.Wait()
			if !hurried.done || hurried.err != errNoTurn || hurried.class != breaker.ClassAborted || hurried.took != 20*ms || len(hurried.answered) != 1 || patient.done || look(q).waiting != 0 {
				t.Errorf("%s: %+v, %+v, %+v", how, hurried, patient, look(q))
			}
			if n := q.overloaded.Load(); n != overloaded {
				t.Errorf("%s: %d are overload", how, n)
			}
			for look(q).calls > 0 {
				lets <- struct{}{}
				synctest.Wait()
			}
		})
	}
}

// TestCloseWaitsForCallbacks: what is called for requests of a call that has ended is over when Close returns.
func TestCloseWaitsForCallbacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lets, _ := hanging(t, 128)
		o, over := decision(gcraArgs, "a", 1), false
		o.After = func(*Op, bool) { time.Sleep(time.Second); over = true }
		go func() { _, _ = only(l).do(t.Context(), o, time.Minute) }()
		synctest.Wait()
		lets <- struct{}{}
		synctest.Wait()
		if l.Close(func() {}); !over {
			t.Error("closed while a request is being answered")
		}
	})
}

// TestLateCallsAreToldByAll: also one of several callers who leaves says that a call is late, and who leaves a probe
// early leaves its place to another one.
func TestLateCallsAreToldByAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := only(unused(t, 128))
		gather := func() (first, second *Op) {
			q.mu.Lock()
			defer q.mu.Unlock()
			first, second = decision(gcraArgs, "a", 1), decision(gcraArgs, "a", 1)
			q.waiting.push(second)
			f := q.gather(first)
			f.ticket, _ = q.breaker.Acquire()
			f.sent = time.Now().Add(-time.Second)
			return first, second
		}
		first, second := gather()
		if class, _ := q.leave(t.Context(), first, errBudget); class != breaker.ClassSlow || q.breaker.Snapshot().LastFailure != class {
			t.Errorf("%v, the breaker has heard of %v", class, q.breaker.Snapshot().LastFailure)
		}
		_, _ = q.leave(t.Context(), second, errBudget)
		for q.breaker.State() == breaker.Closed {
			p, _ := q.breaker.Acquire()
			p.Report(breaker.ClassUnavailable, breaker.ProofRun, 0)
		}
		time.Sleep(time.Minute)
		first, second = gather()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, _ = q.leave(ctx, first, context.Canceled)
		if _, ok := q.breaker.Acquire(); ok {
			t.Error("a second probe while the first one has a caller")
		}
		_, _ = q.leave(ctx, second, context.Canceled)
		if p, ok := q.breaker.Acquire(); !ok || !p.Probe() {
			t.Error("no probe after one that all callers have left")
		}
	})
}

// TestTurnsInOrder: who comes while others wait waits behind them, also where there is a place; and who finds a call in flight
// does not make its own.
func TestTurnsInOrder(t *testing.T) {
	synctest.Test(t, turnsInOrder)
}

func turnsInOrder(t *testing.T) {
	l := unused(t, 128)
	q := only(l)
	l.wire.lua = lua.NewClient(process(func(_ context.Context, cmd redis.Cmder) error { cmd.SetErr(rejection("OOM")); return cmd.Err() }))
	before, o := decision(gcraArgs, "before", 1), decision(gcraArgs, "o", 1)
	q.waiting.push(before)
	began := time.Now()
	if f, err := q.add(o, true); f != nil || err != nil {
		t.Fatalf("%v, %v", f, err)
	}
	<-before.done
	<-o.done
	if time.Since(began) != 0 || before.state != answered || o.state != answered || o.Class != breaker.ClassReadOnly {
		t.Errorf("%v, %v after %v", o.Class, o.Err, time.Since(began))
	}
	synctest.Wait()
	if before.flight != o.flight || q.waiting.len() != 0 {
		t.Errorf("%d wait", q.waiting.len())
	}
	q.mu.Lock()
	q.flights = inFlight(1)
	q.mu.Unlock()
	if f, err := q.add(decision(gcraArgs, "second", 1), true); f != nil || err != nil {
		t.Errorf("%v, %v: a call of its own beside another one", f, err)
	}
	synctest.Wait()
	q.mu.Lock()
	q.flights, q.learnt = nil, 1
	q.mu.Unlock()
	f, err := q.add(decision(gcraArgs, "alone", 1), true)
	if f == nil || err != nil || !f.own {
		t.Fatalf("%v, %v", f, err)
	}
	q.run(f)
	if f, err = q.add(decision(gcraArgs, "alone", 1), false); f != nil || err != nil {
		t.Errorf("%v, %v", f, err)
	}
	synctest.Wait()
	// Calls that are stuck, and whose callers are being answered.
	for _, c := range []struct {
		flying, stuck, landing int
		ready                  bool
	}{{depth, 0, 0, false}, {depth, 1, 0, true}, {depth + 1, 1, 0, false}, {depth - 1, 0, 1, false}, {depth - 1, 1, 1, true}, {0, 0, depth, false}} {
		q.mu.Lock()
		q.flights, q.stuck, q.landing = inFlight(c.flying), c.stuck, c.landing
		if got := q.ready(); got != c.ready {
			t.Errorf("%+v: ready %v", c, got)
		}
		q.flights, q.stuck, q.landing = nil, 0, 0
		q.mu.Unlock()
	}
	// From as many calls on it is known how far a server is.
	q.wire.connections, q.least, q.before = 20, far, far
	for learnt, ready := range map[uint64]bool{sure - 1: false, sure: true} {
		q.mu.Lock()
		q.learnt, q.flights = learnt, inFlight(depth)
		if got := q.ready(); got != ready {
			t.Errorf("after %d calls: ready %v", learnt, got)
		}
		q.flights = nil
		q.mu.Unlock()
	}
	// Who has an eighth more time than a round trip takes is sent.
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	q.trip, q.flights = time.Second, inFlight(1)
	for left, late := range map[time.Duration]bool{9 * time.Second / 8: false, 9*time.Second/8 - 1: true} {
		o := decision(gcraArgs, "k", 1)
		if o.deadline = now.Add(left); q.tooLate(o, now) != late {
			t.Errorf("%v are left of %v", left, q.trip)
		}
	}
	hurried := decision(gcraArgs, "k", 1)
	hurried.deadline = now
	q.waiting.push(hurried)
	if f, out := q.next(); f != nil || len(out) != 1 || hurried.state != answered {
		t.Errorf("%v, %d are too late", f, len(out))
	}
	q.flights = nil
}

// TestWithdrawnForAll: callers of one call who leave together, before it was written, all know that it never is. If it was
// written, each leaves when its own time is over, and if the call was full, the next ones are smaller.
func TestWithdrawnForAll(t *testing.T) {
	for _, written := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := unused(t, 128)
			q, ctx := only(l), t.Context()
			ops := []*Op{decision(gcraArgs, "a", 1), decision(gcraArgs, "b", 1), decision(gcraArgs, "c", 1)}
			q.mu.Lock()
			q.full = len(ops)
			q.waiting.push(ops[1])
			q.waiting.push(ops[2])
			f := q.gather(ops[0])
			f.ticket, _ = q.breaker.Acquire()
			f.sent = time.Now()
			if written {
				write(f)
			}
			for i, o := range ops {
				o.ctx, o.done, o.deadline = ctx, make(chan struct{}, 1), f.sent.Add(l.wire.budget+time.Duration(i)*l.wire.budget/(2*soon))
				q.wakeAt(o.deadline)
			}
			q.mu.Unlock()
			for i, o := range ops {
				<-o.done
				if class, err := o.result(); NeverExecuted(err) == written || class != breaker.ClassUnavailable && class != breaker.ClassSlow {
					t.Errorf("caller %d of a call that was written (%v): %v, %v", i, written, class, err)
				}
				if end := ops[0].deadline; written && !time.Now().Equal(o.deadline) || !written && !time.Now().Equal(end) {
					t.Errorf("caller %d of a call that was written (%v) left %v after the first one's time was over", i, written, time.Since(end))
				}
			}
			q.mu.Lock()
			if q.full < len(ops) != written {
				t.Errorf("after one that was written (%v), a full call has %d keys", written, q.full)
			}
			q.flights = nil
			q.mu.Unlock()
		})
	}
}

// TestCallsThatAreNotMade: where the breaker is open, or all callers have left, nothing is sent, and the breaker learns nothing.
func TestCallsThatAreNotMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, calls := unused(t, 128), 0
		l.wire.lua = lua.NewClient(process(func(_ context.Context, cmd redis.Cmder) error {
			calls++
			cmd.SetErr(rejection("OOM"))
			return cmd.Err()
		}))
		q := only(l)
		gone := decision(gcraArgs, "a", 1)
		abandoned := func() *flight {
			q.mu.Lock()
			defer q.mu.Unlock()
			f := q.gather(gone)
			gone.state = left
			return f
		}
		f := abandoned()
		f.callers = 0
		q.stuck++
		if q.run(f); calls != 0 || !errors.Is(gone.Err, errUnsent) || gone.Class != breaker.ClassAborted || q.stuck != 0 || q.learnt != 0 {
			t.Errorf("%d calls, %v, %v; %d are stuck", calls, gone.Class, gone.Err, q.stuck)
		}
		if again := q.unused.Get().(*flight); again == f {
			t.Error("a call that was left is used again")
		}
		for q.breaker.State() == breaker.Closed {
			p, _ := q.breaker.Acquire()
			p.Report(breaker.ClassUnavailable, breaker.ProofRun, 0)
		}
		o := decision(gcraArgs, "b", 1)
		fly(l, o)
		if calls != 0 || o.Class != breaker.ClassUnavailable || o.Err != ErrOpen {
			t.Errorf("%d calls, %v, %v", calls, o.Class, o.Err)
		}
		// A probe that is not sent leaves its place to the next one.
		time.Sleep(time.Minute)
		f = abandoned()
		f.callers = 0
		q.stuck++
		q.run(f)
		if p, ok := q.breaker.Acquire(); !ok || !p.Probe() || q.breaker.State() != breaker.HalfOpen {
			t.Errorf("the breaker is %v", q.breaker.State())
		}
	})
}

// TestClosedLinks: after Close nothing is asked; the callbacks of requests that come are called, and say so.
func TestClosedLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lets, sent := hanging(t, 128)
		q, steps := only(l), []string{}
		flying := begin(t.Context(), q, "a", time.Second)
		closed := false
		go func() {
			l.Close(func() {
				steps = append(steps, "last")
				if err := l.Ask(t.Context(), l.Server("k"), decision(gcraArgs, "new", 1), time.Second); !errors.Is(err, ErrClosed) {
					t.Errorf("a new request: %v", err)
				}
				if flying.err != ErrClosed || flying.took != 0 {
					t.Errorf("before the last requests: %+v", flying)
				}
				o := decision(gcraArgs, "last", 1)
				go func() { lets <- struct{}{} }()
				if err := l.Last(o); err != nil {
					t.Errorf("the last request: %v", err)
				}
			})
			closed = true
		}()
		synctest.Wait()
		if !flying.done || closed || len(steps) != 0 {
			t.Errorf("closed %v while a call is under way: %+v", closed, flying)
		}
		lets <- struct{}{}
		synctest.Wait()
		if !closed || len(steps) != 1 || len(sent()) != 2 {
			t.Errorf("closed %v, %v, sent %v", closed, steps, sent())
		}
		o, after := decision(gcraArgs, "b", 1), []bool{}
		o.After = func(_ *Op, answered bool) { after = append(after, answered) }
		for _, err := range l.AskAll(t.Context(), []*Op{o}) {
			if failed, ok := errors.AsType[*Error](err); !ok || failed.Class != breaker.ClassCaller || failed.Err != ErrClosed {
				t.Errorf("%v", err)
			}
		}
		if len(after) != 1 || after[0] {
			t.Errorf("its caller is told %v", after)
		}
		if err := l.Last(decision(gcraArgs, "c", 1)); !errors.Is(err, ErrClosed) {
			t.Errorf("%v", err)
		}
	})
}
