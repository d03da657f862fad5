package redislink

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/algo"
)

const (
	// depth is up to how many calls in flight each request simply goes, and the next
	// call leaves: holding it back would only make it later. More calls are smaller ones,
	// fewer leave the server waiting; 3 was the best of 1 to 16 by bench/redis.
	depth = 3
	// far is the round trip from which a full call does not wait for others: they are on
	// their way, and the server, which takes about 0.2 ms for one, is idle. Near by more
	// calls in flight only keep each other waiting.
	far = time.Millisecond
	// memory is for how many calls at least the shortest one is remembered. On a busy
	// machine most calls to a server near by take longer than far.
	memory = 1024
	// callOps bounds how many requests of the queue are considered for a call.
	callOps = 1024
)

// queue sends the requests to one server: up to depth calls they are sent as they come;
// those that come while as many are in flight wait, in order, and leave together as soon
// as one is back. There is no timer, and no request waits for others to arrive.
type queue struct {
	wire    *wire
	server  string // its name
	breaker *breaker.Breaker
	max     int // calls in flight, those included whose callers have left
	flights sync.Pool

	mu      sync.Mutex
	flying  int
	stuck   int // of those, how many have lost all their callers
	landing int // calls that have ended, and whose After is being called
	waiting fifo
	trip    time.Duration // about the least recent round trip
	// The shortest of the last learnt%memory calls, and of the memory calls before.
	least, before time.Duration
	learnt        uint64
	sameSlot      bool // the server takes keys of one hash slot only
	closing       bool // only what lasts is taken
	closed        bool
	landed        sync.Cond // flying or landing has become less
}

func newQueue(w *wire, server string, b *breaker.Breaker, sameSlot bool) *queue {
	q := &queue{wire: w, server: server, breaker: b, max: w.inFlight, sameSlot: sameSlot}
	q.landed.L = &q.mu
	q.flights.New = func() any {
		f := newFlight(w)
		f.fly = func() { q.run(f) }
		return f
	}
	return q
}

// do makes the request within the budget.
func (q *queue) do(ctx context.Context, o *Op, budget time.Duration) (breaker.Class, error) {
	if q.start(ctx, o, budget) {
		return q.await(ctx, o)
	}
	return o.Class, o.Err
}

// start begins a request, and reports whether there is something to await. A caller whose
// context ends before the budget has three quarters of what is left.
func (q *queue) start(ctx context.Context, o *Op, budget time.Duration) bool {
	if o.Taken != nil && o.Taken.Params.Kind == algo.LeakyBucketShaping {
		// It takes nothing back, so there is nothing to ask. A call without a command
		// would count as an answer of the server.
		o.fail(breaker.ClassOK, nil)
		o.state = left
		o.finished(false)
		return false
	}
	if o.done == nil {
		o.done = make(chan struct{}, 1)
	}
	o.ctx, o.deadline = ctx, time.Now().Add(budget)
	if end, ok := ctx.Deadline(); ok && end.Before(o.deadline) {
		o.deadline = time.Now().Add(time.Until(end) * 3 / 4)
	}
	if err := q.add(o); err != nil {
		o.fail(q.classify(ctx, err, 0), err)
		o.state = left
		o.finished(false)
		return false
	}
	return true
}

// await returns what came of a request when it is known, or its time is over.
func (q *queue) await(ctx context.Context, o *Op) (breaker.Class, error) {
	timer := q.wire.pools.timers.Get().(*time.Timer)
	timer.Reset(time.Until(o.deadline))
	defer func() {
		timer.Stop()
		q.wire.pools.timers.Put(timer)
	}()
	closed := q.wire.closed
	if o.Lasts {
		closed = nil
	}
	var why error
	select {
	case <-o.done:
		return o.Class, o.Err
	case <-timer.C:
		why = errBudget
	case <-ctx.Done():
		why = ctx.Err()
	case <-closed:
		why = ErrClosed
	}
	return q.leave(ctx, o, why)
}

func (q *queue) classify(ctx context.Context, err error, took time.Duration) breaker.Class {
	return classify(ctx, err, took, q.wire.fair)
}

// add sends o, or lets it wait for its turn.
func (q *queue) add(o *Op) error {
	q.mu.Lock()
	switch {
	case q.closed, q.closing && !o.Lasts:
		q.mu.Unlock()
		return ErrClosed
	case q.waiting.len() == 0 && q.ready():
		f := q.gather(o)
		q.mu.Unlock()
		go f.fly()
		return nil
	case q.stuck >= q.max:
		q.mu.Unlock()
		return errNoTurn
	}
	q.waiting.push(o)
	f, late := q.next()
	q.mu.Unlock()
	q.sendOff(f, late)
	return nil
}

// leave is for a caller that does not wait any longer.
func (q *queue) leave(ctx context.Context, o *Op, why error) (breaker.Class, error) {
	q.mu.Lock()
	switch o.state {
	case answered:
		q.mu.Unlock()
		<-o.done
		return o.Class, o.Err
	case queued:
		o.state = left
		q.mu.Unlock()
		if why == errBudget { //nolint:errorlint // it is not wrapped
			why = errNoTurn
		}
		o.fail(q.classify(ctx, why, 0), why)
		o.finished(false)
		return o.Class, why
	}
	o.state = left
	f := o.flight
	f.callers--
	permit, took, last, peeks := f.permit, time.Since(f.sent), f.callers == 0, f.peeks
	var next *flight
	var late []*Op
	if last {
		if f.sending.withdraw() && why == errBudget { //nolint:errorlint // the same
			why = errUnsent
		}
		close(f.gone)
		q.stuck++
		next, late = q.next()
	}
	q.mu.Unlock()
	q.sendOff(next, late)
	class := q.classify(ctx, why, took)
	// That one caller is gone says nothing of the call, that Redis is late does.
	if last || class.Failure() {
		permit.Report(class, proofOf(peeks), took)
	}
	return class, why
}

// ready reports whether one more may fly. Those that are stuck do not count as flying,
// only against max. Full calls leave some connections to others. mu is held.
func (q *queue) ready() bool {
	flying := q.flying - q.stuck
	full := q.waiting.len() >= callKeys && min(q.least, cmp.Or(q.before, q.least)) >= far
	return q.flying < q.max && (flying < depth || full && flying < q.wire.connections*3/4)
}

// learn notes how long a call took. mu is held.
func (q *queue) learn(took time.Duration) {
	q.trip = min(took, q.trip+(took-q.trip)/8)
	if q.learnt%memory == 0 {
		q.before, q.least = q.least, took
	}
	q.least = min(q.least, took)
	q.learnt++
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
		o.fail(breaker.ClassAborted, errNoTurn)
		late = append(late, o)
	}
	return nil, late
}

// tooLate reports that the answer would come when the caller has left: if it was sent,
// it would take the place of one who can wait. While nothing is in flight every request is
// sent, so that it is noticed when round trips become shorter. mu is held.
func (q *queue) tooLate(o *Op, now time.Time) bool {
	return q.flying-q.stuck > 0 && o.deadline.Sub(now) < q.trip
}

func (q *queue) sendOff(f *flight, late []*Op) {
	if f != nil {
		go f.fly()
	}
	for _, o := range late {
		o.finished(true)
	}
}

// gather makes a call of o and those who wait and can go with it. mu is held.
func (q *queue) gather(o *Op) *flight {
	q.flying++
	f := q.flight()
	f.add(o)
	now := time.Now()
	q.waiting.take(callOps-1, func(next *Op) bool { return !q.tooLate(next, now) && f.add(next) })
	f.callers = len(f.ops)
	return f
}

// flight returns an empty one. mu is held.
func (q *queue) flight() *flight {
	f := q.flights.Get().(*flight)
	f.sameSlot = q.sameSlot
	return f
}

// run sends f, and then what has gathered meanwhile, until there is no more.
func (q *queue) run(f *flight) {
	for f != nil {
		permit, ok := q.breaker.Acquire()
		switch {
		case !ok:
			f.failAll(breaker.ClassUnavailable, ErrOpen)
		case !q.begin(f, permit):
			permit.Done(breaker.ClassAborted, 0)
			f.failAll(breaker.ClassAborted, errUnsent)
		default:
			class, err := f.send()
			if f.crossedSlots {
				q.oneSlot()
			}
			q.wire.called(q.server, class, err, f.took)
		}
		f = q.finish(f)
	}
}

// begin notes that f is about to be sent, unless all its callers have left.
func (q *queue) begin(f *flight, permit breaker.Permit) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	f.permit, f.sent = permit, time.Now()
	if permit.Probe() {
		f.writes()
	}
	for _, o := range f.ops {
		if o.deadline.After(f.deadline) {
			f.deadline = o.deadline
		}
	}
	return f.callers > 0
}

// finish answers the callers, and returns the call to make next.
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
		q.learn(f.took)
	}
	q.flying--
	after := f.after
	if after {
		q.landing++
	}
	next, late := q.next()
	q.landed.Broadcast()
	q.mu.Unlock()
	q.sendOff(nil, late)
	for i, o := range f.ops {
		f.answer(i, o)
		o.finished(f.waits[i])
	}
	if after { // Close waits for what After does, too
		q.mu.Lock()
		q.landing--
		q.landed.Broadcast()
		q.mu.Unlock()
	}
	if whole {
		f.clear()
		q.flights.Put(f)
	}
	return next
}

// oneSlot notes that the server takes keys of one hash slot only.
func (q *queue) oneSlot() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sameSlot = true
}

// drain waits until nothing flies. Then nothing starts again but what lasts, and after all
// not even that.
func (q *queue) drain(all bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closing, q.closed = true, all
	for q.flying+q.landing > 0 {
		q.landed.Wait()
	}
}
