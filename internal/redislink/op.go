package redislink

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
)

// Op is one request to a server. Exactly one of Args, All, Taken, Permits, Leave, Keep and Command says what
// is asked; the fields below them hold the answer when Do has returned breaker.ClassOK. It
// belongs to its caller until Do, and then to Free.
type Op struct {
	// ID is the encoded id whose server and hash slot the request concerns.
	ID string

	// A decision: Cost units of Keys under Args, for each of Count callers. A cost of 0
	// is a peek, a negative one a debt that was used Age µs ago.
	Args  *lua.Args
	Keys  lua.Keys
	Cost  int64
	Age   int64
	Count int64

	// Decisions on all of several items or none. Do writes what came of each into them.
	All []lua.Item

	// Units to be given back.
	Taken *lua.Taken
	// Permits to ask for, and one to give back.
	Permits *lua.PermitAsk
	Leave   *lua.Leaver
	// Permits to be kept, for another TTL µs.
	Keep *lua.Holders
	TTL  int64
	// Any other command, on keys of one hash slot.
	Command lua.Command

	// Lasts says that only the budget ends it, and that Close waits for it or makes it.
	Lasts bool
	// After, if set, is called once, without a lock, when it is known what came of the
	// request. answered says that the caller waits for it: what was charged for a
	// caller that has left belongs to no caller.
	After func(o *Op, answered bool)

	// Out is the decision on one caller, Whole that on all who share its item, and
	// Admitted how many of Count were admitted. Behind is what callers behind this one
	// were charged by the same item. First says that none before it waits for the answer, and Charged
	// what the item was charged: what has to be noted of the item, its first caller notes.
	Out      algo.Decision
	Whole    algo.Decision
	Admitted int64
	Behind   int64
	Charged  int64
	First    bool
	// At is when a decision was made, by the server's clock.
	At int64
	// Outs are the decisions on All.
	Outs []algo.Decision
	// Given is how many units were taken back.
	Given int64
	// Got is the answer to Permits.
	Got lua.PermitReply
	// Lost says which permits had ended.
	Lost []bool

	// Sent is when the call was made. Class and Err say what came of it.
	Sent  time.Time
	Class breaker.Class
	Err   error

	ctx      context.Context
	deadline time.Time
	state    opState
	flight   *flight
	learnt   uint64        // of the queue, when it began to wait for its turn
	done     chan struct{} // is sent to once: when it is answered, or its time is over
	// What the caller gets whose time was over. The fields above are then still those of
	// the call.
	dismissed struct {
		class breaker.Class
		err   error
	}
}

// result is what came of the request, once done was sent to.
func (o *Op) result() (breaker.Class, error) {
	if o.state == left {
		return o.dismissed.class, o.dismissed.err
	}
	return o.Class, o.Err
}

type opState uint8

const (
	queued opState = iota
	flying
	answered
	left
)

// finished reports to the caller that waits.
func (o *Op) finished(answered bool) {
	if o.After != nil {
		o.After(o, answered)
	}
	if answered {
		o.done <- struct{}{}
	}
}

func (o *Op) fail(class breaker.Class, err error) { o.Class, o.Err = class, err }

// peeks reports a peek.
func (o *Op) peeks() bool { return o.Args != nil && o.Cost == 0 || o.All != nil && lua.Peeks(o.All) }

// keys is how many keys it is about.
func (o *Op) keys() int { return max(1, len(o.All)) }

// space is how much it takes of a call with room for so many keys, which has callKeys·room of it.
// However large the call is, it has room for callKeys keys of the kind that takes the server more
// than a few microseconds each.
func (o *Op) space(room int) int {
	ofLog := func(it lua.Item) bool { return it.Params.Kind == algo.SlidingWindowLog }
	if o.Args != nil && o.Args.Kind != algo.SlidingWindowLog || o.All != nil && !slices.ContainsFunc(o.All, ofLog) {
		return o.keys() * callKeys
	}
	return o.keys() * max(callKeys, room)
}

// work is how many units of work the request costs the server.
func (o *Op) work() (n int64) {
	switch {
	case o.All != nil:
		for i := range o.All {
			n += lua.Work(&o.All[i].Params.Params, o.All[i].Cost)
		}
		return n
	case o.Args != nil:
		return lua.Work(&o.Args.Params, max(o.Cost, -o.Cost)*max(1, o.Count))
	case o.Taken != nil:
		return lua.Work(&o.Taken.Params.Params, o.Taken.Units)
	case o.Permits != nil:
		return max(1, int64(len(o.Permits.Callers)))
	case o.Keep != nil:
		return int64(len(o.Keep.Callers))
	}
	return 1
}

// fifo is requests in the order in which they came. Those whose callers have left are
// skipped.
type fifo struct {
	waiting []*Op
	head    int
}

func (q *fifo) len() int { return len(q.waiting) - q.head }

func (q *fifo) push(o *Op) { q.waiting = append(q.waiting, o) }

// pop returns the first that still waits, or nil.
func (q *fifo) pop() *Op {
	for q.head < len(q.waiting) {
		o := q.waiting[q.head]
		q.waiting[q.head] = nil
		q.head++
		if o.state == queued {
			return o
		}
	}
	return nil
}

// keep keeps those who stay.
func (q *fifo) keep(stays func(*Op) bool) {
	kept := 0
	for _, o := range q.waiting[q.head:] {
		if o.state == queued && stays(o) {
			q.waiting[kept] = o
			kept++
		}
	}
	clear(q.waiting[kept:])
	q.waiting, q.head = q.waiting[:kept], 0
}

// take offers the first n that wait, in order. What was not accepted keeps its place.
func (q *fifo) take(n int, accept func(*Op) bool) {
	kept, i := 0, q.head
	for ; i < len(q.waiting) && n > 0; i++ {
		o := q.waiting[i]
		if o.state != queued {
			continue
		}
		n--
		if accept(o) {
			continue
		}
		q.waiting[kept] = o
		kept++
	}
	rest := copy(q.waiting[kept:], q.waiting[i:])
	clear(q.waiting[kept+rest:])
	q.waiting, q.head = q.waiting[:kept+rest], 0
}
