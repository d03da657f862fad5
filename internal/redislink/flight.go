package redislink

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
)

const (
	// callKeys is how many keys fill a call. More keep others waiting for longer than it saves,
	// until so many wait that they need several calls: then each has up to largeKeys, for which a
	// quick server takes less than a millisecond. Callers of one key are one key, or those of a
	// hot one would take the places of all others.
	callKeys, largeKeys = 64, 256
	// commandWork bounds the units of one command, which runs alone on the server, and
	// callWork those of one call, which must be answered within a budget. A unit of a log
	// takes about a microsecond. A request with more goes alone.
	commandWork = 1000
	callWork    = 4000
)

// flight is one call: commands that leave in one write, for requests that wait.
type flight struct {
	wire  *wire
	clock *lua.Clock // of its server
	fly   func()     // runs it, in memory that is used again
	// outdated reports that what it says if it is slow is known already
	outdated func() bool

	sameSlot bool // a command has keys of one hash slot only
	own      bool // runs in the goroutine of its only caller, and ends at its deadline
	ops      []*Op
	of       []place // where the answer for the request at the same index stands
	waits    []bool

	commands []*command // those in use, and after them those to be used again
	used     int
	space    int // that is taken, of callKeys·room
	room     int // the most keys
	work     int64
	last     map[string]place // the last place of an id
	peeks    bool             // nothing but peeks
	frees    bool             // an Op of it gives a permit back: it is sent also when all callers have left
	filled   bool             // one more did not fit

	cmds    []lua.Command
	errs    []error
	written atomic.Int64  // how long after sent, in nanoseconds: unwritten, or withdrawn
	gone    chan struct{} // closed when all callers have left

	// Guarded by the queue's lock.
	ticket   breaker.Ticket
	probes   bool // is to show whether the server is there, beside what its callers ask for
	sent     time.Time
	deadline time.Time
	callers  int // that have not left

	took         time.Duration // of the longest round trip, for a call that needs more than one
	served       time.Duration // the longest one without the time before the client wrote, in which it may have made a connection
	answered     bool          // by a server that works
	crossedSlots bool          // the server has turned out to take keys of one hash slot only
}

func newFlight(w *wire) *flight {
	return &flight{
		wire: w, room: callKeys, peeks: true, gone: make(chan struct{}), last: make(map[string]place),
		outdated: func() bool { return false },
	}
}

// clear makes f empty for the next use. No caller that has left may still use it.
func (f *flight) clear() {
	for _, c := range f.commands[:f.used] {
		clear(c.decide.Items)
		clear(c.all.Items)
		clear(c.back.Items)
		clear(c.permits.Items)
		*c = command{
			decide:  lua.Decide{Items: c.decide.Items[:0], Out: c.decide.Out[:0]},
			all:     lua.DecideAll{Items: c.all.Items[:0], Out: c.all.Out[:0]},
			back:    lua.GiveBack{Items: c.back.Items[:0]},
			permits: lua.Permits{Items: c.permits.Items[:0]},
			nonce:   nonce{text: c.nonce.text[:0]},
			told:    c.told[:0],
		}
	}
	clear(f.ops)
	clear(f.last)
	clear(f.cmds)
	clear(f.errs)
	f.ops, f.of, f.cmds, f.errs = f.ops[:0], f.of[:0], f.cmds[:0], f.errs[:0]
	f.used, f.space, f.work, f.took, f.served, f.answered, f.crossedSlots = 0, 0, 0, 0, 0, false, false
	f.peeks, f.frees, f.own, f.filled = true, false, false, false
	f.ticket, f.deadline = breaker.Ticket{}, time.Time{}
	f.written.Store(unwritten)
}

// keys is how many of its places are taken: all of them where one more did not fit, as those of requests for several limits, or
// much work.
func (f *flight) keys() int {
	if f.filled {
		return max(f.room, f.space/callKeys)
	}
	return f.space / callKeys
}

// add gives o a place, and reports whether there was one.
func (f *flight) add(o *Op) bool {
	work := o.work()
	if len(f.ops) > 0 && f.work+work > callWork {
		f.filled = true
		return false
	}
	at, ok := f.join(o, work)
	if !ok {
		space := o.space(f.room)
		if f.space > 0 && f.space+space > callKeys*f.room {
			f.filled = true
			return false
		}
		c := f.commandFor(o, work)
		at = place{c, f.commands[c].add(o), 0}
		f.space += space
		if o.Args != nil {
			_, again := f.last[o.ID]
			f.commands[c].decide.Repeats = f.commands[c].decide.Repeats || again
			f.last[o.ID] = at
		}
	}
	f.commands[at.command].work += work
	f.work += work
	f.peeks, f.frees = f.peeks && o.peeks(), f.frees || o.Leave != nil
	f.ops, f.of = append(f.ops, o), append(f.of, at)
	o.state, o.flight = flying, f
	return true
}

// join finds the item of others on the same key which o follows with the same cost and
// limit: those are one.
func (f *flight) join(o *Op, work int64) (place, bool) {
	if o.Args == nil || o.Cost <= 0 || o.Args.Kind == algo.LeakyBucketShaping {
		return place{}, false
	}
	at, ok := f.last[o.ID]
	if !ok {
		return place{}, false
	}
	c := f.commands[at.command]
	it := &c.decide.Items[at.item]
	if c.work+work > commandWork || it.Cost != o.Cost || it.Params.Params != o.Args.Params {
		return place{}, false
	}
	at.turn = it.Count
	it.Count += max(1, o.Count)
	return at, true
}

// commandFor finds the command that o can share, or makes one.
func (f *flight) commandFor(o *Op, work int64) int {
	var c command
	switch {
	case o.Args != nil:
		c.what, c.kind, c.peeks = decisions, o.Args.Kind, o.Cost == 0
	case o.All != nil:
		c.what, c.peeks = sets, o.peeks()
	case o.Taken != nil:
		c.what, c.kind = giveBacks, o.Taken.Params.Kind
	case o.Permits != nil || o.Leave != nil:
		c.what = permits
	case o.Keep != nil:
		c.what = keeps
	}
	if f.sameSlot {
		c.slot = Slot(o.ID)
	}
	if c.what != other {
		for i, has := range f.commands[:f.used] {
			if has.what == c.what && has.kind == c.kind && has.peeks == c.peeks && has.slot == c.slot && has.work+work <= commandWork && has.takes(o) {
				return i
			}
		}
	}
	if f.used == len(f.commands) {
		f.commands = append(f.commands, new(command))
	}
	n := f.commands[f.used]
	n.what, n.kind, n.peeks, n.slot = c.what, c.kind, c.peeks, c.slot
	f.used++
	return f.used - 1
}

// writes adds a write to a probe, so that the call shows what the server can do whatever
// its callers ask for: a peek or a denial alone would not. It has the whole budget, for a probe takes more
// round trips than a caller may have the time for. A heartbeat or a report writes in any
// case, and is enough: a probe of two round trips would not fit a budget that has room for one. What
// frees memory before it writes, as permits that are kept, succeeds where there is none for charges.
// mu of the queue is held.
func (f *flight) writes() {
	for _, c := range f.commands[:f.used] {
		switch c.command().(type) {
		case *lua.Beat, *lua.Report:
			return
		}
	}
	o := &Op{ID: f.ops[0].ID, ctx: context.Background(), deadline: f.sent.Add(f.wire.budget), state: flying, flight: f, done: make(chan struct{}, 1)}
	o.Command = probeOf(f.wire.names, o.ID)
	c := f.commandFor(o, 1)
	f.ops, f.of = append(f.ops, o), append(f.of, place{c, f.commands[c].add(o), 0})
	f.callers++
	f.peeks = false
	if o.deadline.After(f.deadline) {
		f.deadline = o.deadline
	}
}

// probeLife is how long the key of a probe stays.
const probeLife = time.Second

// probeOf is a write to the server and hash slot of an id, which no one reads.
func probeOf(names *lua.Namer, id string) *lua.Beat {
	return &lua.Beat{Key: names.Probe(id), ID: "probe", Life: probeLife.Microseconds()}
}

// stamp gives c a nonce of its own.
func (f *flight) stamp(c *command) {
	c.nonce = nonce{text: f.wire.nonces.next(c.nonce.text[:0]), first: c == f.commands[0], of: f}
	c.decide.Nonce, c.all.Nonce, c.back.Nonce, c.permits.Nonce = &c.nonce, &c.nonce, &c.nonce, &c.nonce
}

// send makes the call and reports it to the breaker. It returns what the call says of the
// server.
func (f *flight) send() (breaker.Class, error) {
	for _, c := range f.commands[:f.used] {
		f.stamp(c)
		f.cmds, f.errs = append(f.cmds, c.command()), append(f.errs, nil)
	}
	// Not a part of f: the client may dial on with it when f is long used again.
	ctx := &flightCtx{Context: f.ops[0].ctx, deadline: f.deadline, gone: f.gone}
	if !f.own {
		// A client that ends the call at its deadline also ends the connection, and under
		// more load than the server can carry it would do nothing but dial.
		ctx.deadline = f.deadline.Add(3 * f.wire.budget)
	}
	f.call(ctx)
	for i, c := range f.commands[:f.used] {
		c.err = f.errs[i]
	}
	f.sendApart(ctx)
	for _, c := range f.commands[:f.used] {
		c.class = classify(context.Background(), c.err, f.took, f.wire.fair)
	}
	class, proof, err := f.verdict()
	f.answered = class == breaker.ClassOK
	if class == breaker.ClassSlow && ctx.Err() != nil {
		return class, err // of callers that have all left, the last one says what that means
	}
	if slow := class == breaker.ClassSlow || class == breaker.ClassOK && f.served > f.wire.fair; slow && f.outdated() {
		f.ticket.Done(breaker.ClassAborted, f.took)
		return class, err
	}
	f.ticket.Report(class, proof, f.served)
	return class, err
}

// call sends the commands in one write; those of a probe one by one, as long as the server
// answers. go-redis has a pool for pipelines and one for single commands. Each dials at
// its own times in an outage, so that the one may be back while the other still fails.
// Most calls are of one command.
func (f *flight) call(ctx context.Context) {
	if !f.probes {
		f.round(ctx, f.cmds, f.errs)
		return
	}
	for i := range f.cmds {
		f.round(ctx, f.cmds[i:i+1], f.errs[i:i+1])
		err := f.errs[i]
		if class := classify(ctx, err, 0, 0); class == breaker.ClassUnavailable || class == breaker.ClassSlow || ctx.Err() != nil {
			for k := range f.errs[i+1:] {
				f.errs[i+1+k] = &unsentError{cmp.Or(err, ctx.Err())}
			}
			return
		}
	}
}

// round sends commands in one write.
func (f *flight) round(ctx context.Context, cmds []lua.Command, errs []error) {
	began := time.Now()
	f.wire.do(ctx, f.clock, cmds, errs)
	took := time.Since(began)
	f.took, f.served = max(f.took, took), max(f.served, took-f.untilWritten(began))
}

// sendApart sends the items of commands again that were rejected for having keys of
// several slots, or because their slot is migrating: nothing of them was executed. As far
// as it gets: what was decided stays decided, or it would be charged and owed.
func (f *flight) sendApart(ctx context.Context) {
	type piece struct {
		of *command
		at []int
	}
	var pieces []piece
	var cmds []lua.Command
	for _, c := range f.commands[:f.used] {
		if c.items < 2 || !crossSlot(c.err) && !tryAgain(c.err) {
			continue
		}
		bySlot := crossSlot(c.err)
		if bySlot {
			f.crossedSlots = true
		}
		c.apart = make([]outcome, c.items)
		c.decide.Out, c.all.Out = make([]algo.Decision, c.items), make([]algo.Decision, len(c.all.Items))
		c.back.Given = make([]int64, c.items)
		groups, slots := [][]int{}, map[int]int{}
		for i := range c.items {
			slot := i // of its own
			if bySlot {
				slot = Slot(c.id(i))
			}
			g, ok := slots[slot]
			if !ok {
				g = len(groups)
				slots[slot], groups = g, append(groups, nil)
			}
			groups[g] = append(groups[g], i)
		}
		for _, at := range groups {
			pieces, cmds = append(pieces, piece{c, at}), append(cmds, c.piece(at, string(f.wire.nonces.next(nil))))
		}
	}
	if len(pieces) == 0 {
		return
	}
	errs := make([]error, len(cmds))
	f.round(ctx, cmds, errs)
	for k, p := range pieces {
		p.of.put(p.at, cmds[k], errs[k])
		p.of.err = nil
	}
}

// verdict is what the call says of the server: the worst of its commands, or what the
// best of them proves.
func (f *flight) verdict() (class breaker.Class, proof breaker.Proof, err error) {
	proof = breaker.ProofRead
	worst := func(o outcome, peeks bool) {
		if o.class == breaker.ClassOK || class.Failure() && !o.class.Failure() {
			return
		}
		if errors.Is(o.err, errUnsent) {
			return // says no more than the command before it
		}
		// Where reads and writes go to one server, a peek shows that it is back; but not
		// that it answers writes, for which this one may have waited without an answer.
		least := proofOf(peeks || f.wire.plain && o.class == breaker.ClassUnavailable && !timedOut(o.err))
		if class.Failure() && least >= proof {
			return
		}
		class, proof, err = o.class, least, o.err
	}
	for _, c := range f.commands[:f.used] {
		peeks := c.peeks
		worst(outcome{class: c.class, err: c.err}, peeks)
		for _, o := range c.apart {
			worst(o, peeks)
		}
	}
	if class != breaker.ClassOK {
		return class, proof, err
	}
	for _, c := range f.commands[:f.used] {
		proof = min(proof, proves(c.command()))
	}
	return class, proof, nil
}

// proofOf is what an answer would have proven at least.
func proofOf(peeks bool) breaker.Proof {
	if peeks {
		return breaker.ProofRead
	}
	return breaker.ProofRun
}

// proves is what the answer to a command proves.
func proves(cmd lua.Command) breaker.Proof {
	switch c := cmd.(type) {
	case interface {
		Charged() bool
		Peeks() bool
	}: // decisions
		if c.Charged() {
			return breaker.ProofWrite
		}
		return proofOf(c.Peeks())
	case *lua.Permits:
		if c.Wrote() {
			return breaker.ProofWrite
		}
	case *lua.Block:
		if c.Left <= c.Time { // a longer one stays, which writes nothing
			return breaker.ProofWrite
		}
	case *lua.Beat, *lua.KeepPermits, *lua.Report:
		return breaker.ProofWrite
	}
	return breaker.ProofRun
}

// failAll is for a call that was not made.
func (f *flight) failAll(class breaker.Class, err error) {
	for _, c := range f.commands[:f.used] {
		c.class, c.err = class, err
	}
}

// answer gives the i-th request what came of it.
func (f *flight) answer(i int, o *Op) {
	at := f.of[i]
	c := f.commands[at.command]
	o.Sent, o.flight = f.sent, nil
	o.fail(c.class, c.err)
	if c.apart != nil {
		o.fail(c.apart[at.item].class, c.apart[at.item].err)
	}
	switch c.what {
	case decisions:
		if len(c.decide.Out) == c.items && (c.apart == nil || o.Class == breaker.ClassOK) {
			c.answer(o, at)
		}
	case sets:
		if len(c.all.Out) == len(c.all.Items) && (c.apart == nil || o.Class == breaker.ClassOK) {
			c.answerAll(o, at)
		}
	case giveBacks:
		if o.Class == breaker.ClassOK {
			o.Given = c.back.Given[at.item]
		}
	case permits:
		if o.Got = c.permits.Items[at.item].Got; o.Got.Err != nil {
			o.fail(classify(context.Background(), o.Got.Err, 0, 0), o.Got.Err)
		}
	case keeps:
		if o.Class == breaker.ClassOK {
			first := c.keep.First(at.item)
			o.Lost = c.keep.Lost[first : first+len(o.Keep.Callers)]
		}
	}
}

// first notes that the i-th request is answered, and reports whether it is the first one of its item.
func (f *flight) first(i int) bool {
	at := f.of[i]
	c := f.commands[at.command]
	for len(c.told) < c.items {
		c.told = append(c.told, false)
	}
	before := c.told[at.item]
	c.told[at.item] = true
	return !before
}

// flightCtx carries the first caller's values, the call's deadline, and an end that costs
// no timer of its own: gone is closed when the last caller has left.
type flightCtx struct {
	context.Context
	deadline time.Time
	gone     <-chan struct{}
}

func (c *flightCtx) Deadline() (time.Time, bool) { return c.deadline, true }
func (c *flightCtx) Done() <-chan struct{}       { return c.gone }
func (c *flightCtx) Err() error {
	select {
	case <-c.gone:
		return context.DeadlineExceeded
	default:
		return nil
	}
}
