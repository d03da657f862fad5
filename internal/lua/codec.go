package lua

import (
	"fmt"

	"github.com/holdfast-go/holdfast/internal/algo"
)

// fields is how many integers a reply carries per item.
const fields = 5

// Item is one decision to ask for.
type Item struct {
	Keys   Keys
	Params Args
	Cost   int64
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
	boxed [5]any
}

// NewArgs boxes p.
func NewArgs(p algo.Params) Args {
	return Args{p, [5]any{p.Cap, p.Num, p.Den, p.MaxDelay, p.Keep}}
}

// WithMaxDelay returns a with the bound on the shaping delay.
func (a Args) WithMaxDelay(us int64) Args {
	a.MaxDelay = us
	a.boxed[3] = us
	return a
}

// ReplyError says that a reply is not one of ours, or that a key holds
// something else than the state of its algorithm.
type ReplyError struct{ What string }

func (e *ReplyError) Error() string { return "unexpected reply from Redis: " + e.What }

// BrokenError is the error for an item that is Broken.
func (it *Item) BrokenError() *ReplyError {
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

	// At is when they were made, by the server's clock, and Out the decisions.
	At  int64
	Out []algo.Decision
}

func (d *Decide) request() (*Script, *wire, bool) {
	kind := d.Items[0].Params.Kind
	return For(kind), encode(kind, d.Now, d.Nonce, d.Items), d.Peeks()
}

func (d *Decide) reply(v []int64) (err error) {
	d.At, d.Out, err = decode(v, d.Items, d.Out[:0])
	return err
}

// Peeks reports that nothing is asked for.
func (d *Decide) Peeks() bool { return peeks(d.Items) }

func peeks(items []Item) bool {
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

// DecideAll asks for all of the items or none, each of any algorithm and with a key of
// its own, in one atomic call: as algo.StepAll does. A cost must not be negative, and
// counts are ignored. If an item is Broken the error says so, and nothing was charged.
type DecideAll struct {
	Now   int64
	Nonce any
	Items []Item

	Out []algo.Decision
}

// SetNonce sets the nonce.
func (d *DecideAll) SetNonce(n any) { d.Nonce = n }

func (d *DecideAll) request() (*Script, *wire, bool) {
	w := newWire()
	for i := range d.Items {
		w.state(&d.Items[i].Keys)
	}
	w.sealKeys()
	w.args = append(w.args, d.Now, d.Nonce)
	for i := range d.Items {
		p := &d.Items[i].Params
		w.args = append(w.args, p.Kind.Short(), d.Items[i].Cost, p.boxed[0], p.boxed[1], p.boxed[2], p.boxed[3], p.boxed[4])
		d.Items[i].Count = 1
	}
	return forAll(d.Items), w, d.Peeks()
}

func (d *DecideAll) reply(v []int64) (err error) {
	_, d.Out, err = decode(v, d.Items, make([]algo.Decision, 0, len(d.Items)))
	return err
}

// Peeks reports that nothing is asked for.
func (d *DecideAll) Peeks() bool { return peeks(d.Items) }

// Charged reports that something was.
func (d *DecideAll) Charged() bool {
	for _, out := range d.Out {
		if !out.Allowed {
			return false
		}
	}
	return !d.Peeks()
}

func encode(kind algo.Kind, now int64, nonce any, items []Item) *wire {
	w := newWire()
	for i := range items {
		w.state(&items[i].Keys)
	}
	w.sealKeys()
	w.args = append(w.args, now, nonce)
	keeps := false
	for i := range items {
		keeps = keeps || items[i].Params.Keep > 0
	}
	for i := range items {
		p := &items[i].Params
		w.args = append(w.args, items[i].Cost, max(1, items[i].Count), p.boxed[0], p.boxed[1], p.boxed[2])
		if kind == algo.LeakyBucketShaping {
			w.args = append(w.args, p.boxed[3])
		}
		if keeps {
			w.args = append(w.args, p.boxed[4])
		}
	}
	return w
}

func decode(v []int64, items []Item, out []algo.Decision) (int64, []algo.Decision, error) {
	if len(v) != 1+fields*len(items) {
		return 0, out, &ReplyError{fmt.Sprintf("%d integers for %d decisions", len(v), len(items))}
	}
	now := v[0]
	if now <= 0 || now > algo.MaxExact {
		return 0, out, &ReplyError{fmt.Sprintf("time %d", now)}
	}
	var err error
	for i := range items {
		f := v[1+fields*i:]
		count := max(1, items[i].Count)
		items[i].Admitted, items[i].At, items[i].Broken = max(0, f[0]), now, f[0] == -1
		d := algo.Decision{Allowed: f[0] > 0, Remaining: f[1], RetryAfter: f[2], ResetAfter: f[3], Delay: f[4]}
		switch {
		case f[0] == -1:
		case f[0] < 0 || f[0] > count,
			d.Remaining < 0 || d.Remaining > items[i].Params.Cap,
			d.RetryAfter < 0 || d.RetryAfter > algo.MaxExact,
			d.ResetAfter < 0 || d.ResetAfter > algo.MaxExact,
			d.Delay < 0 || d.Delay > algo.MaxExact,
			(f[0] == count) == (d.RetryAfter > 0):
			// Numbers that no state of ours leads to: forged under this key.
			items[i].Broken, items[i].Admitted, d = true, 0, algo.Decision{}
		}
		if items[i].Broken && err == nil {
			err = items[i].BrokenError()
		}
		out = append(out, d)
	}
	return now, out, err
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

func (b *Block) request() (*Script, *wire, bool) {
	w := newWire()
	w.state(&b.Keys)
	w.sealKeys()
	w.args = append(w.args, b.Now, b.Time, b.Params.boxed[0], b.Params.boxed[1], b.Params.boxed[2])
	return blockScripts[b.Params.Kind], w, false
}

func (b *Block) reply(v []int64) error {
	if len(v) == 1 && v[0] == -1 {
		return (&Item{Keys: b.Keys, Params: b.Params}).BrokenError()
	}
	if len(v) != 1 || v[0] <= 0 || v[0] > algo.MaxExact {
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

	Alive int64
}

func (b *Beat) request() (*Script, *wire, bool) {
	w := newWire()
	w.key(b.Key)
	w.sealKeys()
	w.args = append(w.args, b.Now, b.ID, b.Life)
	return beatScript, w, false
}

func (b *Beat) reply(v []int64) error {
	if len(v) != 1 || v[0] < 0 || v[0] > algo.MaxExact {
		return &ReplyError{fmt.Sprintf("heartbeat %v", v)}
	}
	b.Alive = v[0]
	return nil
}

// Remove deletes members of the sorted set Key, or Keys where there are no members.
type Remove struct {
	Keys    []string
	Key     string
	Members []string
}

func (r *Remove) request() (*Script, *wire, bool) {
	w := newWire()
	w.args = w.args[:0]
	if r.Key != "" {
		w.args = append(w.args, "zrem", r.Key)
		for _, m := range r.Members {
			w.args = append(w.args, m)
		}
		return nil, w, false
	}
	w.args = append(w.args, "del")
	for _, k := range r.Keys {
		w.args = append(w.args, k)
	}
	return nil, w, false
}

func (r *Remove) reply([]int64) error { return nil }
