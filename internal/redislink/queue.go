package redislink

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
)

const (
	// depth is up to how many calls in flight each request simply goes, and the next
	// call leaves: holding it back would only make it later. More calls are smaller ones,
	// fewer leave the server waiting; 3 was the best of 1 to 16 by bench/redis.
	depth = 3
	// far is the round trip from which calls need not wait for others: they are on their
	// way, and the server, which takes about 0.2 ms for a full one, is idle. Near by more
	// calls in flight only keep each other waiting.
	far = time.Millisecond
	// sure is after how many calls a server may count as far: the first ones dial.
	sure = 16
	// memory is for how many calls at least the shortest one is remembered. On a busy
	// machine most calls to a server near by take longer than far.
	memory = 1024
	// together is from how many requests on that wait or fly those whose time is over leave together:
	// all are checked for that, which else would be all that is done. rest is how long, for each
	// that was checked, none is checked again.
	together = 1000
	rest     = 100 * time.Nanosecond
	// soon is the part of the budget by which the time of those whose call is not written yet may end early, when it is
	// over for others: who came together leave together, so that the call is withdrawn for all of them.
	soon = 64
	// calls is in how many calls all who wait may leave, if these have at most largeKeys, take at
	// most about a quick part of the time that an answer may take, and are one command.
	calls, quick = 4, 8
	// firstKeys is how many keys fill a call at first where each is a command: a slow server would need all of the budget for more.
	firstKeys = 4
	// larger is after how many full calls that leave time, at least, a full one has one key more, where it has fewer than callKeys.
	larger = 8
	// silence is for how long calls go without an answer until those of callers with little time outlive them.
	silence = time.Second
	// callOps bounds how many requests of the queue are considered for a call.
	callOps = 1024
)

// queue sends the requests to one server: up to depth calls they are sent as they come;
// those that come while as many are in flight wait, in order, and leave together as soon
// as one is back. No request waits for others to arrive. One timer, for the deadline that
// comes first, sends home those whose time is over.
type queue struct {
	wire    *wire
	server  string // its name
	breaker *breaker.Breaker
	clock   lua.Clock // of the server
	max     int       // calls in flight, those included whose callers have left
	unused  sync.Pool // flights
	// overloaded counts the requests of all kinds whose time was over before their turn came, while
	// other calls were answered: the server answers, but not as much as is asked of it.
	overloaded atomic.Uint64

	mu      sync.Mutex
	flights []*flight // those in flight
	stuck   int       // of those, how many have lost all their callers
	landing int       // calls that have ended, and whose callers are being answered
	waiting fifo
	timer   *time.Timer
	wake    time.Time     // when it fires; zero when it does not
	asked   time.Time     // when the first call since the last answer was sent; zero if none was
	trip    time.Duration // about the least recent round trip, with the time until it was written
	each    time.Duration // the part of a key in that of the last full call
	full    int           // how many keys fill a call: fewer than callKeys where the answers to so many were slow
	good    int           // full calls of which none was slow, since full was changed
	slowed  bool          // a full call was slow
	inTime  time.Time     // when the last full call was sent that was answered in the time that an answer may take
	smaller time.Time     // when an answer that was slow last made full calls smaller
	// The shortest of all calls since the last recent%memory that were not full, and of those in which the memory before were.
	least, before time.Duration
	recent        int // calls that were not full
	learnt        uint64
	sameSlot      bool // the server takes keys of one hash slot only
	closing       bool // only what lasts is taken
	closed        bool
	landed        sync.Cond // flights or landing has become less
}

func newQueue(w *wire, server string, b *breaker.Breaker, sameSlot bool) *queue {
	q := &queue{wire: w, server: server, breaker: b, max: w.inFlight, full: callKeys, sameSlot: sameSlot}
	if sameSlot {
		q.full = firstKeys
	}
	q.landed.L = &q.mu
	q.unused.New = func() any {
		f := newFlight(w)
		f.clock, f.fly, f.outdated = &q.clock, func() { q.fly(f) }, func() bool { return q.outdated(f) }
		return f
	}
	q.timer = time.AfterFunc(time.Hour, q.sendHome)
	q.timer.Stop()
	return q
}

// do makes the request within the budget. A caller that finds no call in flight makes its
// own in its own goroutine, where the client ends a call at its deadline, and it has the time that an answer may take: a
// second goroutine costs about as much as the call. Such a caller sees that its context is cancelled when the
// call ends, if that brings no answer.
func (q *queue) do(ctx context.Context, o *Op, budget time.Duration) (breaker.Class, error) {
	f, ok := q.start(ctx, o, budget, q.wire.ends)
	if !ok {
		return o.Class, o.Err
	}
	if f == nil {
		return q.await(ctx, o)
	}
	if next := q.run(f); next != nil {
		go next.fly()
	}
	class, err := q.await(ctx, o)
	if class.Fallback() && errors.Is(ctx.Err(), context.Canceled) {
		return breaker.ClassCaller, ctx.Err() // no one is there for what would be decided without Redis
	}
	return class, err
}

// start begins a request, and reports whether there is something to await. A flight that
// it returns is for the caller to run: only where own is set. A caller whose context ends
// before the budget has three quarters of what is left.
func (q *queue) start(ctx context.Context, o *Op, budget time.Duration, own bool) (*flight, bool) {
	if o.Taken != nil && o.Taken.Params.Kind == algo.LeakyBucketShaping {
		// It takes nothing back, so there is nothing to ask. A call without a command
		// would count as an answer of the server.
		o.finished(false)
		return nil, false
	}
	if o.done == nil {
		o.done = make(chan struct{}, 1)
	}
	now := time.Now()
	o.ctx, o.deadline = ctx, now.Add(budget)
	if end, ok := ctx.Deadline(); ok && end.Before(o.deadline) {
		o.deadline = now.Add(end.Sub(now) * 3 / 4)
	}
	// A caller with less time than an answer may take would end its connection with the call, and make no other one.
	f, err := q.add(o, own && o.deadline.Sub(now) >= q.wire.fair)
	if err != nil {
		o.fail(classify(ctx, err, 0, q.wire.fair), err)
		o.finished(false)
		return nil, false
	}
	return f, true
}

// await returns what came of a request when it is known, or its time is over.
func (q *queue) await(ctx context.Context, o *Op) (breaker.Class, error) {
	if ctx.Done() == nil {
		<-o.done
		return o.result()
	}
	select {
	case <-o.done:
		return o.result()
	case <-ctx.Done():
		return q.leave(ctx, o, ctx.Err())
	}
}

// add sends o, or lets it wait for its turn. Where own is set, and nothing else is in flight,
// the caller sends the flight that it gets.
func (q *queue) add(o *Op, own bool) (*flight, error) {
	q.mu.Lock()
	switch {
	case q.closed, q.closing && !o.Lasts:
		q.mu.Unlock()
		return nil, ErrClosed
	case q.waiting.len() == 0 && q.ready():
		// A probe, and a call after one without an answer, may have to make a connection, which must outlive the budget.
		own = own && len(q.flights) == 0 && q.learnt > 0 && q.asked.IsZero() && q.breaker.State() == breaker.Closed
		f := q.gather(o)
		f.own = own
		q.wakeAt(o.deadline)
		q.mu.Unlock()
		if own {
			return f, nil
		}
		go f.fly()
		return nil, nil
	case q.stuck >= q.max:
		q.mu.Unlock()
		return nil, errNoTurn
	}
	o.learnt = q.learnt
	q.waiting.push(o)
	q.wakeAt(o.deadline)
	f, late := q.next()
	q.mu.Unlock()
	q.sendOff(f, late)
	return nil, nil
}

// wakeAt sets the timer, unless it fires sooner. mu is held.
func (q *queue) wakeAt(t time.Time) {
	if q.wake.IsZero() || t.Before(q.wake) {
		q.wake = t
		q.timer.Reset(time.Until(t))
	}
}

// sendHome is called by the timer, for those whose time is over.
func (q *queue) sendHome() {
	now := time.Now()
	nearly := now.Add(min(q.wire.budget/soon, time.Millisecond))
	q.dismiss(errBudget, func(o *Op) bool {
		if o.state == flying && o.flight.written.Load() == unwritten {
			return !o.deadline.After(nearly)
		}
		return !o.deadline.After(now)
	})
}

// dismiss sends home those who wait or fly and are meant, and sets the timer for the others.
func (q *queue) dismiss(why error, meant func(*Op) bool) {
	var gone []departure
	var first time.Time
	checked := time.Duration(0)
	stays := func(o *Op) bool {
		checked++
		if meant(o) {
			d := q.depart(o, why)
			if d.unsent {
				o.state = answered // no one else has it any more
			}
			gone = append(gone, d)
			return false
		}
		if first.IsZero() || o.deadline.Before(first) {
			first = o.deadline
		}
		return true
	}
	q.mu.Lock()
	for _, f := range q.flights {
		for _, o := range f.ops {
			if o.state == flying {
				stays(o)
			}
		}
	}
	q.waiting.keep(stays)
	for i := range gone {
		if f := gone[i].op.flight; f != nil && gone[i].why == errBudget && f.written.Load() == withdrawn { //nolint:errorlint // it is not wrapped
			gone[i].why = errUnsent // as for the last one
		}
	}
	q.wake = time.Time{}
	if !first.IsZero() {
		if next := time.Now().Add(checked * rest); checked >= together && first.Before(next) {
			first = next
		}
		q.wakeAt(first)
	}
	f, late := q.next()
	q.mu.Unlock()
	q.sendOff(f, late)
	for _, d := range gone {
		d.op.dismissed.class, d.op.dismissed.err = q.report(d.op.ctx, &d)
		d.op.done <- struct{}{}
	}
}

// departure is a caller who leaves before there is an answer.
type departure struct {
	op     *Op
	why    error
	unsent bool // it waited for its turn
	last   bool // of its call
	peeks  bool
	ticket breaker.Ticket
	took   time.Duration
	// calls have become smaller since its one was sent
	outdated bool
}

// depart takes o out of the queue or of its call. mu is held.
func (q *queue) depart(o *Op, why error) departure {
	d := departure{op: o, why: why, unsent: o.state == queued}
	o.state = left
	if d.unsent {
		if why == errBudget { //nolint:errorlint // it is not wrapped
			d.why = q.noTurn(o)
		}
		return d
	}
	f := o.flight
	f.callers--
	d.ticket, d.took, d.last, d.peeks, d.outdated = f.ticket, time.Since(f.sent), f.callers == 0, f.peeks, f.sent.Before(q.smaller)
	if d.last {
		if !f.frees && f.withdraw() && why == errBudget { //nolint:errorlint // the same
			d.why = errUnsent
		} else if served := d.took - f.untilWritten(f.sent); why == errBudget && served > q.wire.fair { //nolint:errorlint // the same; sooner it may still be in time
			q.fit(f.sent, served, f.keys())
		}
		close(f.gone)
		q.stuck++
	}
	return d
}

// noTurn is why o was not sent in its time. mu is held.
func (q *queue) noTurn(o *Op) error {
	if q.learnt != o.learnt {
		q.overloaded.Add(1)
	}
	return errNoTurn
}

// report says what a departure means, to the breaker too.
func (q *queue) report(ctx context.Context, d *departure) (breaker.Class, error) {
	class := classify(ctx, d.why, d.took, q.wire.fair)
	switch {
	case d.unsent:
		d.op.fail(class, d.why)
		d.op.finished(false)
	case d.outdated && class == breaker.ClassSlow:
		d.ticket.Done(breaker.ClassAborted, d.took)
	case d.last || class.Failure():
		// That one caller is gone says nothing of the call, that Redis is late does.
		d.ticket.Report(class, proofOf(d.peeks), d.took)
	}
	return class, d.why
}

// leave is for a caller that does not wait any longer.
func (q *queue) leave(ctx context.Context, o *Op, why error) (breaker.Class, error) {
	q.mu.Lock()
	if o.state == answered || o.state == left {
		q.mu.Unlock()
		<-o.done
		return o.result()
	}
	d := q.depart(o, why)
	f, late := q.next()
	q.mu.Unlock()
	q.sendOff(f, late)
	return q.report(ctx, &d)
}

// ready reports whether one more may fly. Those that are stuck do not count as flying, only
// against max. To a server that is far, more than depth fly when the next call is full, or
// when all who ask could have a connection each; some connections are left to others. mu is
// held.
func (q *queue) ready() bool {
	flying, most := len(q.flights)-q.stuck+q.landing, q.wire.connections*3/4
	switch {
	case len(q.flights) >= q.max:
		return false
	case flying < depth:
		return true
	}
	isFar := q.learnt >= sure && min(q.least, cmp.Or(q.before, q.least)) >= far
	behind := len(q.flights) > 0 && q.flights[0].sent.Before(q.smaller) // it would wait for those that were too large
	return isFar && !behind && flying < most && (q.waiting.len() >= q.full || q.asking() < most)
}

// asking is how many callers wait or fly. mu is held.
func (q *queue) asking() int {
	n := q.waiting.len()
	for _, f := range q.flights {
		n += f.callers
	}
	return n
}

// learn notes when a call of so many keys was sent, how long it took, and how much of that after the client wrote it: what it waited
// for a connection says nothing of its size, nor how far the server is. mu is held.
func (q *queue) learn(sent time.Time, took, served time.Duration, keys int) {
	if keys >= callKeys {
		q.each = served / time.Duration(keys)
	}
	q.trip = min(took, q.trip+(took-q.trip)/8)
	if keys < q.full || q.learnt == 0 { // others wait behind full ones, where more is asked for than is answered: the server has not moved away
		if q.recent%memory == 0 {
			q.before, q.least = q.least, served
		}
		q.recent++
	}
	q.least = min(q.least, served)
	q.learnt++
	full := q.full
	if q.fit(sent, served, keys); q.full < full {
		q.smaller = time.Now()
	}
}

// outdated reports that full calls have become smaller since f was sent, so that it says nothing new if it is slow: to a server that
// is far, many are in flight, and those behind the first slow one are slow as well.
func (q *queue) outdated(f *flight) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return f.sent.Before(q.smaller)
}

// fit notes whether a call of so many keys was answered in the time that an answer may take, from when it was written. A server that needs longer
// for a full one answers, and the breaker would open for nothing but that: full ones become half as large, and then again
// a little larger with every few, as many as are in flight at least, while half of the time is left: else all of these
// would be slow one after the other. To a server that is far, they are enough to open the breaker. mu is held.
func (q *queue) fit(sent time.Time, took time.Duration, keys int) {
	slow := took > q.wire.fair
	if keys >= q.full && !slow && sent.After(q.inTime) {
		q.inTime = sent
	}
	switch {
	case keys < q.full, slow && sent.Before(q.inTime): // one as large that was sent later was in time
		return // it was not slow, or quick, for its size
	case slow:
		q.full, q.good, q.slowed = max(1, min(q.full, keys/2)), 0, true
	case q.full == callKeys:
	case !q.slowed: // how far away the server is says nothing of a larger one
		if took-q.least <= (q.wire.fair-q.least)/4 {
			if q.good++; q.good >= len(q.flights)-q.stuck {
				q.full, q.good = 2*q.full, 0
			}
		}
	case took-q.least <= (q.wire.fair-q.least)/2: // all in flight become slow together
		if q.good++; q.good >= max(larger, len(q.flights)-q.stuck) {
			q.full, q.good = q.full+1, 0
		}
	}
}

// next makes the next call of those who wait, if there is one and its turn has come, and
// takes out those whose budget would end before its answer. mu is held.
func (q *queue) next() (f *flight, late []*Op) {
	if !q.ready() {
		return nil, nil
	}
	now := time.Now()
	for o := q.waiting.pop(); o != nil; o = q.waiting.pop() {
		if !q.tooLate(o, now) {
			return q.gather(o), late
		}
		o.state = answered
		o.fail(breaker.ClassAborted, q.noTurn(o))
		late = append(late, o)
	}
	return nil, late
}

// tooLate reports that the answer would come when the caller has left, if it takes an eighth
// longer than the last ones: if it was sent, it would take the place of one who can wait. While
// nothing is in flight every request is sent, so that it is noticed when round trips become
// shorter. mu is held.
func (q *queue) tooLate(o *Op, now time.Time) bool {
	return len(q.flights) > q.stuck && o.deadline.Sub(now) < q.trip+q.trip/8
}

func (q *queue) sendOff(f *flight, late []*Op) {
	if f != nil {
		go f.fly()
	}
	for _, o := range late {
		o.finished(true)
	}
}

// room is how many keys the next call may have. mu is held.
func (q *queue) room() int {
	if q.each == 0 || q.sameSlot || q.full < callKeys {
		return q.full
	}
	return max(callKeys, min(q.waiting.len()/calls, largeKeys, int(q.wire.fair/quick/q.each)))
}

// gather makes a call of o and those who wait and can go with it. mu is held.
func (q *queue) gather(o *Op) *flight {
	f := q.unused.Get().(*flight)
	f.sameSlot, f.room = q.sameSlot, q.room()
	f.add(o)
	if q.waiting.len() > 0 {
		now := time.Now()
		q.waiting.take(callOps-1, func(next *Op) bool { return !q.tooLate(next, now) && f.add(next) })
	}
	q.flights = append(q.flights, f)
	f.callers = len(f.ops)
	return f
}

// fly sends f, and then what has gathered meanwhile, until there is no more. It is the first function of its
// goroutine.
func (q *queue) fly(f *flight) {
	grow()
	for f != nil {
		f = q.run(f)
	}
}

// grow gives the stack of a new goroutine room for a call. Else it grows within go-redis, below some 30 frames whose
// addresses must be changed: up to a tenth of the client's time.
//
//go:noinline
func grow() {
	var room [8 << 10]byte
	runtime.KeepAlive(&room)
}

// run sends f and returns the call to make next. It answers the callers also when a hook of the user's panics: a caller that
// runs its own call may recover, and what never ended would keep Close waiting.
func (q *queue) run(f *flight) (next *flight) {
	returns := false
	defer func() {
		if next = q.finish(f); next != nil && !returns {
			go next.fly()
		}
	}()
	ticket, ok := q.breaker.Acquire()
	switch {
	case !ok:
		f.failAll(breaker.ClassUnavailable, ErrOpen)
	case !q.begin(f, ticket):
		ticket.Done(breaker.ClassAborted, 0)
		f.failAll(breaker.ClassAborted, errUnsent)
	default:
		class, err := f.send()
		if f.crossedSlots {
			q.oneSlot()
		}
		q.wire.called(q.server, class, err, f.took)
	}
	returns = true
	return nil
}

// begin notes that f is about to be sent, unless all its callers have left. A call that may have to make the first
// connection has the whole budget, as a probe does: the client makes a part of it with the call, and if each call
// ended with callers who have little time, there would never be one.
func (q *queue) begin(f *flight, ticket breaker.Ticket) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	f.ticket, f.sent = ticket, time.Now()
	if f.callers == 0 {
		return false
	}
	for _, o := range f.ops {
		if o.deadline.After(f.deadline) {
			f.deadline = o.deadline
		}
	}
	if q.learnt > 0 && q.asked.IsZero() {
		q.asked = f.sent // without calls there is no silence, and a probe takes longer than the call
	}
	if f.probes = ticket.Probe() || !f.own && f.deadline.Sub(f.sent) < q.wire.fair && f.sent.Sub(q.asked) > silence; f.probes {
		f.writes() // which has more time than a caller, at the end of whose time the timer is set again
	}
	return true
}

// finish answers the callers, and returns the call to make next. Unless that is full, callers who
// were answered together run first, so that what they ask next leaves with it: else it would
// leave with the few that came meanwhile, and they would make one more.
// All are woken here: where each of them wakes the next one, one key makes a sixth more decisions on two processors, but
// those who compute in between wait for each other.
func (q *queue) finish(f *flight) *flight {
	q.mu.Lock()
	whole := f.callers == len(f.ops)
	f.waits = f.waits[:0]
	for _, o := range f.ops {
		waits := o.state == flying
		if waits {
			o.state = answered
		}
		f.waits = append(f.waits, waits)
	}
	if f.callers == 0 {
		q.stuck--
	}
	if f.answered {
		q.learn(f.sent, f.took, f.served, f.keys())
		q.asked = time.Time{}
	}
	i := slices.Index(q.flights, f)
	q.flights = slices.Delete(q.flights, i, i+1)
	q.landing++
	full := q.waiting.len() >= q.full
	q.mu.Unlock()
	for i, o := range f.ops {
		f.answer(i, o)
		o.First = f.waits[i] && f.first(i)
		o.finished(f.waits[i])
	}
	if len(f.ops) > 1 && !full {
		runtime.Gosched()
	}
	q.mu.Lock()
	q.landing--
	next, late := q.next()
	q.landed.Broadcast()
	q.mu.Unlock()
	q.sendOff(nil, late)
	if whole {
		f.clear()
		q.unused.Put(f)
	}
	return next
}

// oneSlot notes that the server takes keys of one hash slot only.
func (q *queue) oneSlot() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sameSlot = true
}

// drain sends home those whose request does not last, and waits until nothing flies. Then
// nothing starts again but what lasts, and after all not even that.
func (q *queue) drain(all bool) {
	q.mu.Lock()
	q.closing, q.closed = true, all
	q.mu.Unlock()
	q.dismiss(ErrClosed, func(o *Op) bool { return !o.Lasts })
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.flights)+q.landing > 0 {
		q.landed.Wait()
	}
	if all {
		q.timer.Stop()
	}
}
