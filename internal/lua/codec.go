package lua

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/algo"
)

// Item is one decision to ask for.
type Item struct {
	Keys   Keys
	Params Args
	Cost   int64
	// Age is how many µs ago a debt was used.
	Age int64
	// Count is how many callers ask for Cost each; less than 2 is one. It must
	// be one for shaping, where each has a delay of its own, and for a Cost
	// that is not positive.
	Count int64

	// Admitted is how many of them were admitted, At when, by the server's clock,
	// and Broken says that the key holds something else than the state of its
	// algorithm. Decide sets them.
	Admitted int64
	At       int64
	Broken   bool
	// elsewhen says that it is Broken because the windows of its calendar are those of another time.
	elsewhen bool
}

// Work is how many units of work it is for Redis to charge or to give back that many
// units under p: of a log as many, else one. A command of a few thousand keeps Redis from
// everything else for milliseconds.
func Work(p *algo.Params, units int64) int64 {
	if p.Kind != algo.SlidingWindowLog {
		return 1
	}
	return max(1, min(units, p.Cap))
}

// Args are the parameters of a limit, boxed once for every call that sends them.
type Args struct {
	algo.Params
	// As the scripts need them: see decide.lua.
	full, limit, drain any
	cost1, most1       any // of a request of 1
}

// NewArgs boxes p.
func NewArgs(p algo.Params) Args {
	a := Args{Params: p}
	limit, drain := fmt.Sprintf(":%d:%d:", p.Num, p.Den), p.Num
	switch p.Kind {
	case algo.SlidingWindowCounter:
	case algo.FixedWindow, algo.SlidingWindowLog:
		limit += "0:"
	default:
		limit += fmt.Sprintf("%d:", p.Cap)
	}
	if p.Calendar != nil {
		drain = 0 // the windows come with each call
	} else if p.Kind.Windowed() {
		drain = p.Den
	}
	a.full, a.limit, a.drain = p.Most(), limit, drain
	a.cost1, a.most1 = a.charge(1)
	return a
}

// windows are the limit as it stands in a state, with the windows of a calendar around a time.
func (a *Args) windows(at int64) any {
	if a.Calendar == nil {
		return a.limit
	}
	return a.limit.(string) + a.Calendar.List(at)
}

// charge is what a request of n units charges, and the level up to which it is admitted.
func (a *Args) charge(n int64) (cost, most any) {
	if n == 1 && a.cost1 != nil {
		return a.cost1, a.most1
	}
	c, m := a.Params.Charge(n)
	return c, m
}

// ReplyError says that a reply is not one of ours, or that a key holds
// something else than the state of its algorithm.
type ReplyError struct{ What string }

func (e *ReplyError) Error() string { return "unexpected reply from Redis: " + e.What }

// ClockError says that nothing was decided, because the client has sent the windows of a calendar for
// another time than that of the server, Now.
type ClockError struct{ Now int64 }

func (e *ClockError) Error() string {
	return fmt.Sprintf("the clock of this process is in another window of the calendar than that of Redis, %v", time.UnixMicro(e.Now).UTC())
}

// BrokenError is the error for an item that is Broken.
func (it *Item) BrokenError() error {
	if it.elsewhen {
		return &ClockError{it.At}
	}
	return &ReplyError{fmt.Sprintf("the key %q does not hold the state of a %v", it.Keys.State(), it.Params.Kind)}
}

// Decide asks for a decision on every item, all of one algorithm, in one atomic call.
//
// A cost of 0 is a peek and changes nothing. A negative cost is a debt: as much of it is
// charged as there is room for. The decision on an item with a Count is that of the last
// caller who was admitted, with the RetryAfter of those who were not.
//
// If an item is Broken the error says so, and the others are still decided: then
// there is a decision for every item.
type Decide struct {
	// Now is the time of the decision, 0 for the server's clock.
	Now int64
	// Nonce, a string or what go-redis takes for one, must differ in every call of every
	// process.
	Nonce any
	Items []Item
	// Repeats says that a key may be there more than once.
	Repeats bool

	// At is when they were made, by the server's clock, and Out the decisions.
	At  int64
	Out []algo.Decision
}

func (d *Decide) request(c *Clock) (*Script, *wire, bool) {
	kind := d.Items[0].Params.Kind
	return scripts[kind], encode(d, c.at(d.Now)), d.Peeks()
}

func (d *Decide) reply(v []int64) (err error) {
	d.At, d.Out, err = decode(v, d.Items, d.Out[:0])
	return err
}

// calendarAt is when it was answered, if windows of a calendar were sent for the clock of the server, else 0.
func (d *Decide) calendarAt() int64 {
	if d.Items[0].Params.Kind != algo.FixedWindow {
		return 0
	}
	return calendarAt(d.Now, d.Items)
}

func (d *DecideAll) calendarAt() int64 { return calendarAt(d.Now, d.Items) }

func calendarAt(now int64, items []Item) int64 {
	for i := range items {
		if now == 0 && items[i].Params.Calendar != nil {
			return items[i].At
		}
	}
	return 0
}

// Peeks reports that nothing is asked for.
func (d *Decide) Peeks() bool { return Peeks(d.Items) }

// Peeks reports that nothing is asked for.
func Peeks(items []Item) bool {
	for i := range items {
		if items[i].Cost != 0 {
			return false
		}
	}
	return true
}

// Charged reports that something was.
func (d *Decide) Charged() bool {
	for i := range d.Items {
		if d.Items[i].Cost > 0 && d.Items[i].Admitted > 0 {
			return true
		}
	}
	return false
}

// DecideAll asks for requests of Of items each, one after the other: for all the items of a
// request or none, as algo.StepAll does, in one atomic call. The items of a request have keys
// that differ, and at the same place in each request they are of one algorithm. A cost must not
// be negative, and counts are ignored.
//
// If an item is Broken the error says so, and nothing was charged for its request. The others are still
// decided: then there is a decision for every item.
type DecideAll struct {
	Now   int64
	Nonce any
	Of    int
	Items []Item

	Out []algo.Decision
}

func (d *DecideAll) request(c *Clock) (*Script, *wire, bool) {
	w, at, same := newWire(), c.at(d.Now), true
	for i := range d.Items {
		it, first := &d.Items[i], &d.Items[i%d.Of]
		it.Count = 1
		w.state(&it.Keys)
		same = same && it.Cost == first.Cost && it.Params.Params == first.Params.Params
	}
	w.sealKeys()
	w.args = append(w.args, d.Now)
	w.nonce(d.Nonce)
	w.args = append(w.args, d.Of)
	for i := range d.Items {
		if i < d.Of || !same {
			w.args = append(w.args, stepNames[d.Items[i].Params.Kind])
			w.limit(&d.Items[i], at)
		}
	}
	return forAll(d.Items[:d.Of]), w, d.Peeks()
}

func (d *DecideAll) reply(v []int64) (err error) {
	head := 1
	for i := range d.Items {
		if head += width(d.Items[i].Params.Kind); i%d.Of == 0 {
			head++
		}
	}
	if len(v) < head || (len(v)-head)%markSize != 0 || !validTime(v[0]) {
		return &ReplyError{fmt.Sprintf("%d integers for %d decisions", len(v), len(d.Items))}
	}
	now, left, more, all := v[0], v[1:], v[head:], false
	for i := range d.Items {
		it := &d.Items[i]
		if i%d.Of == 0 {
			all, left = left[0] == 1, left[1:]
		}
		r := it.read(now, left, int64(i+1), &more)
		left = left[width(it.Params.Kind):]
		var out algo.Decision
		if all || it.Admitted == 0 {
			out = it.decision(r)
		} else { // there was room, but nothing was charged
			out = it.Params.Decision(r, 0, true)
			out.Delay = 0
		}
		if it.Broken && err == nil {
			err = it.BrokenError()
		}
		d.Out = append(d.Out, out)
	}
	if len(more) > 0 && err == nil {
		err = &ReplyError{fmt.Sprintf("decisions with %v", more)}
	}
	return err
}

// Peeks reports that nothing is asked for.
func (d *DecideAll) Peeks() bool { return Peeks(d.Items) }

// Charged reports that something was.
func (d *DecideAll) Charged() bool {
	for i := 0; i+d.Of <= len(d.Out); i += d.Of {
		if !Peeks(d.Items[i:i+d.Of]) && !slices.ContainsFunc(d.Out[i:i+d.Of], func(out algo.Decision) bool { return !out.Allowed }) {
			return true
		}
	}
	return false
}

func encode(d *Decide, at int64) *wire {
	w, items := newWire(), d.Items
	same, several := true, d.Repeats
	for i := range items {
		w.state(&items[i].Keys)
		same = same && items[i].Cost == items[0].Cost && items[i].Age == items[0].Age && items[i].Params.Params == items[0].Params.Params
		several = several || items[i].Count > 1
	}
	w.sealKeys()
	w.args = append(w.args, d.Now)
	w.nonce(d.Nonce)
	for i := range items {
		if i == 0 || !same {
			w.limit(&items[i], at)
		}
	}
	if several {
		for i := range items {
			w.args = append(w.args, max(1, items[i].Count))
		}
	}
	if d.Repeats {
		w.args = append(w.args, 1)
	}
	return w
}

// limit adds what a script needs to know of a request at a time.
func (w *wire) limit(it *Item, at int64) {
	cost, most := it.Params.charge(it.Cost)
	if it.Cost < 0 {
		most = it.Age
	}
	w.args = append(w.args, cost, most, it.Params.full, it.Params.windows(at), it.Params.drain)
}

// The marks of what is special in a reply.
const (
	markBlocked = iota + 1
	markPartly
	markBroken
	markEnds
	markElsewhen

	markSize = 3
)

// width is how many integers a reply carries on an item.
func width(k algo.Kind) int {
	switch k {
	case algo.SlidingWindowCounter:
		return 2
	case algo.SlidingWindowLog:
		return 3
	}
	return 1
}

// read takes the integers on the item number nr, and what is special of it from the
// beginning of more. It sets what the script says of the item, and returns the rest.
func (it *Item) read(now int64, v []int64, nr int64, more *[]int64) algo.Reading {
	p, count := &it.Params.Params, max(1, it.Count)
	r := algo.Reading{Level: v[0]}
	it.At, it.Admitted, it.Broken, it.elsewhen = now, count, false, false
	if v[0] < 0 {
		r.Level, it.Admitted = -1-v[0], 0
	}
	switch p.Kind {
	case algo.FixedWindow:
		_, end := p.Bounds(now)
		r.Ahead = end - now
	case algo.SlidingWindowCounter:
		r.Ahead, r.Previous = p.Den-now%p.Den, v[1]
	case algo.SlidingWindowLog:
		r.Reset, r.Retry = v[1], v[2]
	}
	// Numbers that no state of ours leads to are of a state that was forged.
	bad := r.Previous < 0 || r.Previous > algo.MaxExact/p.Den || !exact(r.Reset, r.Retry, r.Level) ||
		!p.Kind.Windowed() && it.Admitted > 0 && it.Cost >= 0 && r.Level > p.Full()
	for len(*more) > 0 && (*more)[0] == nr {
		value := (*more)[2]
		switch (*more)[1] {
		case markBlocked:
			r.Blocked = value
			bad = bad || value < 1 || !exact(value) || it.Admitted > 0
		case markPartly:
			bad = bad || value < 1 || value >= count || it.Admitted == 0
			it.Admitted = value
		case markEnds:
			bad = bad || value < 1 || value > 2*p.Den || r.Ahead == 0
			r.Ahead = value
		case markElsewhen:
			it.elsewhen, bad = p.Calendar != nil, true
		default:
			bad = true
		}
		*more = (*more)[markSize:]
	}
	if bad {
		it.Broken, it.Admitted = true, 0
	}
	return r
}

// exact reports whether all are numbers that a script can reply.
func exact(all ...int64) bool {
	return !slices.ContainsFunc(all, func(n int64) bool { return n < 0 || n > algo.MaxExact })
}

func validTime(now int64) bool { return now > 0 && exact(now) }

// decision is the one on the item that has left r behind.
func (it *Item) decision(r algo.Reading) algo.Decision {
	if it.Broken {
		return algo.Decision{}
	}
	cost, _ := it.Params.Charge(it.Cost)
	d := it.Params.Decision(r, it.Cost, it.Admitted > 0)
	if it.Admitted > 0 && it.Admitted < it.Count {
		d.RetryAfter = it.Params.Decision(r, it.Cost, false).RetryAfter
	}
	if (it.Admitted == max(1, it.Count)) == (d.RetryAfter > 0) || r.Level < it.Admitted*cost {
		it.Broken, it.Admitted = true, 0
		return algo.Decision{}
	}
	return d
}

func decode(v []int64, items []Item, out []algo.Decision) (now int64, _ []algo.Decision, err error) {
	width := width(items[0].Params.Kind)
	head := 1 + width*len(items)
	if len(v) < head || (len(v)-head)%markSize != 0 || !validTime(v[0]) {
		return 0, out, &ReplyError{fmt.Sprintf("%d integers for %d decisions", len(v), len(items))}
	}
	more := v[head:]
	for i := range items {
		r := items[i].read(v[0], v[1+width*i:], int64(i+1), &more)
		d := items[i].decision(r)
		if items[i].Broken && err == nil {
			err = items[i].BrokenError()
		}
		out = append(out, d)
	}
	if len(more) > 0 && err == nil {
		err = &ReplyError{fmt.Sprintf("decisions with %v", more)}
	}
	return v[0], out, err
}

// Block denies the key for Time microseconds by the server's clock, unless it is blocked
// for longer already, and reports the time left. The block is a part of the state that
// Keys names, of an algorithm with the limit Params.
type Block struct {
	Now    int64
	Keys   Keys
	Params Args
	Time   int64

	Left int64
}

func (b *Block) request(c *Clock) (*Script, *wire, bool) {
	return blockScripts[b.Params.Kind], wireOf(b.Keys.State(), b.Now, b.Time, b.Params.full, b.Params.windows(c.at(b.Now))), false
}

func (b *Block) reply(v []int64) error {
	if len(v) == 1 && v[0] == -1 {
		return (&Item{Keys: b.Keys, Params: b.Params}).BrokenError()
	}
	if len(v) != 1 || !validTime(v[0]) {
		return &ReplyError{fmt.Sprintf("block %v", v)}
	}
	b.Left = v[0]
	return nil
}

// Beat says under Key that the process ID is alive for another Life µs, or with a Life of
// 0 that it leaves, and counts those alive.
type Beat struct {
	Now     int64
	Key, ID string
	Life    int64
	// Longer is how many µs longer it is alive than Life, at most 10 times that.
	Longer int64
	// Back, which may be empty, is the key of those that sent a heartbeat since a process saw Redis fail and
	// reached it again; it is in the slot of Key. Since says that this one saw Redis fail so many
	// µs ago, is back, and waits for the others, for at most Patience; -1 that it is not back yet. With a
	// Patience of 0 it saw no failure, and follows those who did.
	Back            string
	Since, Patience int64

	// Fresh is how many are in Back, of those who wait since Redis failed, and Oldest and Newest the age
	// of the first and the last of these.
	Alive, Fresh, Oldest, Newest int64
}

func (b *Beat) request(*Clock) (*Script, *wire, bool) {
	w := newWire()
	w.key(b.Key)
	if b.Back != "" {
		w.key(b.Back)
	}
	w.sealKeys()
	w.args = append(w.args, b.Now, b.ID, b.Life, b.Longer, b.Since, b.Patience)
	return beatScript, w, false
}

func (b *Beat) reply(v []int64) error {
	if len(v) != 4 || !exact(v[0]) || !exact(v[1]) || !exact(v[2]) || !exact(v[3]) {
		return &ReplyError{fmt.Sprintf("heartbeat %v", v)}
	}
	b.Alive, b.Fresh, b.Oldest, b.Newest = v[0], v[1], v[2], v[3]
	return nil
}

// Plain is a command of Redis, by its arguments, whose reply is an integer that does not matter.
type Plain []any

func (p Plain) request(*Clock) (*Script, *wire, bool) {
	return nil, plainWire(p...), false
}

func (Plain) reply([]int64) error { return nil }
