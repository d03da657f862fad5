package redislink

import (
	"context"
	"encoding"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
)

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
				write(f)
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
		q.learn(time.Time{}, far, far, firstKeys)
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
		q.learn(time.Time{}, far, far, 1)
	}
	if !q.ready() {
		t.Errorf("not far after %d calls", sure)
	}
	for least, want := range map[time.Duration]bool{far: true, far - 1: false} {
		q := only(unused(t, 128))
		q.wire.connections, q.flights, q.learnt, q.before, q.least = 20, inFlight(depth), sure, far, 2*far
		if q.learn(time.Time{}, least, least, 1); q.ready() != want {
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
					write(f)
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
		written int64
		class   breaker.Class
		opens   bool
	}{
		{1, 1, breaker.ClassSlow, false}, {2, 1, breaker.ClassSlow, false}, {1, unwritten, breaker.ClassUnavailable, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := only(unused(t, 128))
			for range 10 {
				o := decision(gcraArgs, "k", 1)
				f := q.unused.New().(*flight)
				f.add(o)
				f.callers, f.sent = c.callers, time.Now()
				f.ticket, _ = q.breaker.Acquire()
				f.written.Store(c.written)
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
		write(f)
		q.depart(o, context.Canceled)
		if class, err := f.send(); class != breaker.ClassSlow || !errors.Is(err, context.DeadlineExceeded) || f.answered {
			t.Errorf("noted as %v, %v", class, err)
		}
		if s := q.breaker.Snapshot(); s.LastFailure != breaker.ClassOK {
			t.Errorf("%+v", s)
		}
	})
}

// TestTimeBeforeTheWriteSaysNothingOfTheSize: what a full call waits for a connection makes no other one smaller, and counts neither
// as the time of its keys nor as the distance of the server, only for those who have less time left. What it takes after the client wrote it counts, with an answer or without.
func TestTimeBeforeTheWriteSaysNothingOfTheSize(t *testing.T) {
	for _, c := range []struct {
		before, after time.Duration // the write, beyond the time that an answer may take
		answered      bool
		full          int
	}{
		{1, -1, true, callKeys}, {1, 0, true, callKeys}, {-1, 1, true, callKeys / 2},
		{1, -1, false, callKeys}, {1, 0, false, callKeys}, {-1, 1, false, callKeys / 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := unused(t, 128)
			q, a, before, after := only(l), args(t, algo.GCRA), l.wire.fair+c.before, l.wire.fair+c.after
			l.wire.lua = lua.NewClient(process(func(_ context.Context, cmd redis.Cmder) error {
				time.Sleep(before)
				for _, arg := range cmd.Args() {
					if m, ok := arg.(encoding.BinaryMarshaler); ok {
						_, _ = m.MarshalBinary()
					}
				}
				time.Sleep(after)
				if !c.answered {
					time.Sleep(time.Millisecond) // its callers leave before it ends
					return context.DeadlineExceeded
				}
				out := granted[:1:1]
				for range callKeys {
					out = append(out, granted[1])
				}
				cmd.(interface{ SetVal([]int64) }).SetVal(out)
				return nil
			}))
			var ops []*Op
			for i := range callKeys {
				ops = append(ops, decision(a, strconv.Itoa(i), 1))
				if !c.answered {
					ops[i].deadline = time.Now().Add(before + after)
				}
			}
			q.wakeAt(ops[0].deadline)
			fly(l, ops...)
			synctest.Wait()
			if q.full != c.full {
				t.Errorf("%+v: full calls have %d keys", c, q.full)
			}
			if c.answered && (q.each != after/callKeys || q.least != after || q.trip != (before+after)/8) {
				t.Errorf("%+v: %v for each key, %v at least, a trip of %v", c, q.each, q.least, q.trip)
			}
		})
	}
}
