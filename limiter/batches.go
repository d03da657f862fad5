package limiter

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
)

const (
	// depth is up to how many calls in flight each decision simply goes, and the
	// next batch leaves: holding it back would only make it later. More calls are
	// smaller batches, fewer leave the server waiting; 3 was the best of 1 to 16
	// by bench/redis.
	depth = 3
	// batchSize is the most keys of one call. A script that decides for more keeps
	// others waiting for longer than it saves. Callers of one key are one key, or
	// those of a hot one would take the places of all others.
	batchSize = 64
	// batchCallers bounds how far the queue is looked through for a call.
	batchCallers = 1024
)

// batches combines decisions on their way to one shard: up to depth calls they
// are sent as they come; those who come while as many are in flight wait, in
// order, and leave together as soon as one is back. There is no timer, and
// nobody waits for company.
type batches struct {
	l        *Limiter
	max      int // calls in flight, those included whose callers have left
	sh       *shard
	sameSlot bool // the server takes keys of one slot only

	mu     sync.Mutex
	flying int
	stuck  int // of those, how many have lost all their callers
	queue  queue
	closed bool
	idle   chan struct{} // closed when closed and nothing flies
}

func newBatches(l *Limiter, sh *shard, max int, sameSlot bool) *batches {
	return &batches{l: l, max: max, sh: sh, sameSlot: sameSlot, idle: make(chan struct{})}
}

// decision is one caller's request. Its caller owns it until it is flying, and
// again when it is answered; what stands in between is guarded by batches.mu.
type decision struct {
	s        *spec
	id       string
	n        int
	ctx      context.Context
	deadline time.Time

	// For a lease, it asks for n as many times as count says. What is not its
	// caller's, or all when it asks ahead of need, goes to the lease.
	count int64
	lease *lease
	ahead bool

	state decisionState
	batch *batch
	out   algo.Decision
	sent  time.Time
	err   error
	class breaker.Class
	// When it was charged, by the server's clock, and under which name, for those
	// who may give back.
	at     int64
	first  int64
	named  bool
	member string
	done   chan struct{}
}

type decisionState uint8

const (
	queued decisionState = iota
	flying
	answered
	left
)

var decisions = sync.Pool{New: func() any { return &decision{done: make(chan struct{}, 1)} }}

// free gives a decision back that its caller did not leave.
func (d *decision) free() {
	*d = decision{done: d.done}
	decisions.Put(d)
}

// release ends the call for its lease, where it has one.
func (d *decision) release() {
	if d.lease != nil {
		d.lease.end()
	}
}

// do decides d within the budget. After an error other than d's own, d must not
// be used again.
func (q *batches) do(ctx context.Context, d *decision, budget time.Duration, closed <-chan struct{}) (breaker.Class, error) {
	d.ctx, d.deadline = ctx, time.Now().Add(budget)
	if end, ok := ctx.Deadline(); ok && end.Before(d.deadline) {
		budget = time.Until(end) * 3 / 4
		d.deadline = time.Now().Add(budget)
	}
	if err := q.add(d); err != nil {
		d.release()
		return classify(ctx, err, 0, q.l.budget), err
	}
	timer := timers.Get().(*time.Timer)
	timer.Reset(budget)
	defer func() {
		timer.Stop()
		timers.Put(timer)
	}()
	var why error
	select {
	case <-d.done:
		return d.class, d.err
	case <-timer.C:
		why = errBudget
	case <-ctx.Done():
		why = ctx.Err()
	case <-closed:
		why = ErrClosed
	}
	return q.leave(ctx, d, why)
}

// add sends d, or lets it wait for its turn.
func (q *batches) add(d *decision) error {
	q.mu.Lock()
	switch {
	case q.closed:
		q.mu.Unlock()
		return ErrClosed
	case q.queue.len() == 0 && q.ready():
		q.flying++
		b := q.gather(d)
		q.mu.Unlock()
		go b.fly()
		return nil
	case q.stuck >= q.max:
		q.mu.Unlock()
		return errNoTurn
	}
	q.queue.push(d)
	q.mu.Unlock()
	return nil
}

// leave is for a caller that does not wait any longer.
func (q *batches) leave(ctx context.Context, d *decision, why error) (breaker.Class, error) {
	q.mu.Lock()
	switch d.state {
	case answered:
		q.mu.Unlock()
		<-d.done
		return d.class, d.err
	case queued:
		d.state = left
		d.release()
		q.mu.Unlock()
		if why == errBudget {
			why = errNoTurn
		}
		return classify(ctx, why, 0, q.l.budget), why
	}
	d.state = left
	b := d.batch
	b.waiting--
	permit, took, last := b.permit, time.Since(b.sent), b.waiting == 0
	var next *batch
	if last {
		if b.ticket.withdraw() && why == errBudget {
			why = errUnsent
		}
		close(b.gone)
		q.stuck++
		next = q.next()
	}
	q.mu.Unlock()
	if next != nil {
		go next.fly()
	}
	class := classify(ctx, why, took, q.l.budget)
	// That one caller is gone says nothing of the batch, that Redis is late does.
	if last || class.Failure() {
		permit.Done(class, took)
	}
	return class, why
}

// ready reports whether one more may fly. Those that are stuck do not count as
// flying, only against max. mu is held.
func (q *batches) ready() bool {
	return q.flying-q.stuck < depth && q.flying < q.max
}

// next takes the next batch from the queue, if there is one and its turn has
// come. mu is held.
func (q *batches) next() *batch {
	if !q.ready() {
		return nil
	}
	d := q.queue.pop()
	if d == nil {
		return nil
	}
	q.flying++
	return q.gather(d)
}

// gather makes a batch of d and those in the queue that can go with it. mu is
// held.
func (q *batches) gather(d *decision) *batch {
	b := batchPool.Get().(*batch)
	b.q = q
	b.ticket.nonce = q.l.nonce.next(b.ticket.nonce[:0])
	b.ticket.state.Store(unsent)
	if b.gone == nil {
		b.gone = make(chan struct{})
		b.fly = func() { b.q.run(b) }
	}
	b.add(d, q.l.names)
	slot, room := -1, batchSize-1
	q.queue.take(batchCallers-1, func(next *decision) bool {
		if next.s.args.Kind != d.s.args.Kind || (next.n == 0) != (d.n == 0) {
			return false
		}
		if q.sameSlot && next.id != d.id {
			if slot < 0 {
				slot = slotOf(d.id)
			}
			if slotOf(next.id) != slot {
				return false
			}
		}
		if room == 0 && b.joins(next) < 0 {
			return false
		}
		if b.add(next, q.l.names) {
			room--
		}
		return true
	})
	b.waiting = len(b.all)
	return b
}

// run sends b, and then what has gathered meanwhile, until there is no more.
func (q *batches) run(b *batch) {
	for b != nil {
		class, err := breaker.ClassUnavailable, errOpen
		if permit, ok := q.sh.breaker.Acquire(); ok {
			class, err = q.send(b, permit)
		}
		b = q.finish(b, err, class)
	}
}

// send makes the call and reports it to the breaker.
func (q *batches) send(b *batch, permit breaker.Permit) (breaker.Class, error) {
	start := time.Now()
	var deadline time.Time
	q.mu.Lock()
	b.permit, b.sent = permit, start
	for _, d := range b.all {
		if d.deadline.After(deadline) {
			deadline = d.deadline
		}
	}
	abandoned := b.waiting == 0
	q.mu.Unlock()
	if abandoned {
		permit.Done(breaker.ClassAborted, 0)
		return breaker.ClassAborted, errUnsent
	}
	// Not a part of b: the client may dial on with it when b is long another's.
	ctx := &budgetCtx{Context: b.all[0].ctx, deadline: deadline, gone: b.gone}
	var err error
	_, b.out, err = q.l.lua.Decide(ctx, 0, &b.ticket, b.items, b.out[:0])
	switch {
	case err != nil && len(b.items) > 1 && strings.HasPrefix(err.Error(), "CROSSSLOT"):
		// Nothing was executed. There is a cluster behind this client.
		q.mu.Lock()
		q.sameSlot = true
		q.mu.Unlock()
		err = q.sendApart(ctx, b)
	case len(b.out) != len(b.items):
		b.out = b.out[:0] // a reply that is not ours as a whole
	}
	took := time.Since(start)
	if err != nil && len(b.out) == len(b.items) {
		permit.Done(breaker.ClassBug, took)
		q.l.called(q.sh, breaker.ClassBug, err, took)
		return breaker.ClassBug, err
	}
	return q.l.settle(context.Background(), q.sh, permit, err, took), err
}

// sendApart sends the items one by one, as far as it gets: what was decided
// stays decided, or it would be charged and owed.
func (q *batches) sendApart(ctx context.Context, b *batch) error {
	var broken error
	b.out = b.out[:0]
	for i := range b.items {
		var err error
		nonce := string(q.l.nonce.next(nil))
		b.apart = append(b.apart, nonce)
		if _, b.out, err = q.l.lua.Decide(ctx, 0, nonce, b.items[i:i+1], b.out); err != nil {
			if !b.items[i].Broken {
				return err
			}
			broken = err
		}
	}
	return broken
}

// finish tells the callers, and returns the batch to send next.
func (q *batches) finish(b *batch, err error, class breaker.Class) *batch {
	q.mu.Lock()
	whole := b.waiting == len(b.all)
	var back []lua.Taken
	for i, d := range b.all {
		decided := i < len(b.of) && b.of[i].item < len(b.out)
		if d.state == flying {
			d.state, d.batch = answered, nil
			d.sent, d.err, d.class = b.sent, err, class
			if decided {
				b.answer(d, b.of[i])
			}
		} else {
			b.all[i] = nil
		}
		if d.lease != nil {
			if decided {
				if t, ok := b.fill(d, b.of[i], q.l.names); ok {
					back = append(back, t)
				}
			}
			d.lease.end()
		}
	}
	q.flying--
	if b.waiting == 0 {
		q.stuck--
	}
	next := q.next()
	if q.closed && q.flying == 0 {
		close(q.idle)
	}
	q.mu.Unlock()
	if len(back) > 0 {
		q.l.giveBackSoon(back)
	}
	for _, d := range b.all {
		if d != nil {
			d.done <- struct{}{}
		}
	}
	if whole {
		b.free()
	}
	return next
}

// drain waits until nothing flies, and lets nothing start again.
func (q *batches) drain() {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		if q.flying == 0 {
			close(q.idle)
		}
	}
	q.mu.Unlock()
	<-q.idle
}
