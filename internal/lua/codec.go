package lua

import (
	"context"
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

// Work is how many units of work the item is for Redis: of a log those it asks for,
// else one. A call of a few thousand keeps Redis from everything else for
// milliseconds.
func (it *Item) Work() int64 {
	units := it.Cost * max(1, it.Count)
	return workOf(it.Params.Params, max(units, -units))
}

func workOf(p algo.Params, units int64) int64 {
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

// Decide asks Redis for a decision on every item, all of one algorithm, in one
// atomic call. now is 0 for the server's clock. The nonce, a string or what
// go-redis takes for one, must differ in every call of every process. It appends
// the decisions to out and returns the time at which they were made.
//
// A cost of 0 looks and changes nothing. A negative cost is a debt: as much of
// it is charged as there is room for. The decision on an item with a Count is
// that of the last caller who was admitted, with the RetryAfter of those who
// were not.
//
// If an item is Broken the error says so, and the others are decided all the
// same: then there is a decision for every item.
func (c *Client) Decide(ctx context.Context, now int64, nonce any, items []Item, out []algo.Decision) (int64, []algo.Decision, error) {
	kind := items[0].Params.Kind
	looks := true
	for i := range items {
		looks = looks && items[i].Cost == 0
	}
	v, err := c.run(ctx, For(kind), encode(kind, now, nonce, items), looks)
	if err != nil {
		return 0, out, err
	}
	return decode(v, items, out)
}

// DecideAll asks Redis for all of the items or none, each of any algorithm and with
// a key of its own, in one atomic call: as algo.StepAll does. A cost must not be
// negative, and counts are not heeded. If an item is Broken the error says so, and
// nothing was charged.
func (c *Client) DecideAll(ctx context.Context, now int64, nonce any, items []Item) ([]algo.Decision, error) {
	w := newWire()
	looks := true
	for i := range items {
		it := &items[i]
		looks = looks && it.Cost == 0
		w.state(&it.Keys)
	}
	w.sealKeys()
	w.args = append(w.args, now, nonce)
	for i := range items {
		p := &items[i].Params
		w.args = append(w.args, p.Kind.Short(), items[i].Cost, p.boxed[0], p.boxed[1], p.boxed[2], p.boxed[3], p.boxed[4])
		items[i].Count = 1
	}
	v, err := c.run(ctx, forAll(items), w, looks)
	if err != nil {
		return nil, err
	}
	_, out, err := decode(v, items, make([]algo.Decision, 0, len(items)))
	return out, err
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
			if err == nil {
				err = items[i].BrokenError()
			}
		case f[0] < 0 || f[0] > count,
			d.Remaining < 0 || d.Remaining > items[i].Params.Cap,
			d.RetryAfter < 0 || d.RetryAfter > algo.MaxExact,
			d.ResetAfter < 0 || d.ResetAfter > algo.MaxExact,
			d.Delay < 0 || d.Delay > algo.MaxExact,
			(f[0] == count) == (d.RetryAfter > 0):
			return 0, out, &ReplyError{fmt.Sprintf("decision %v", f[:fields])}
		}
		out = append(out, d)
	}
	return now, out, err
}

// Block denies the key for d microseconds by the server's clock, unless it is
// blocked for longer already, and returns the time left. The block is a part of the
// state that k names, of an algorithm with the limit p.
func (c *Client) Block(ctx context.Context, now int64, k Keys, p Args, d int64) (int64, error) {
	w := newWire()
	w.state(&k)
	w.sealKeys()
	w.args = append(w.args, now, d, p.boxed[0], p.boxed[1], p.boxed[2])
	v, err := c.run(ctx, blockScripts[p.Kind], w, false)
	if err != nil {
		return 0, err
	}
	if len(v) == 1 && v[0] == -1 {
		return 0, (&Item{Keys: k, Params: p}).BrokenError()
	}
	if len(v) != 1 || v[0] <= 0 || v[0] > algo.MaxExact {
		return 0, &ReplyError{fmt.Sprintf("block %v", v)}
	}
	return v[0], nil
}

// Beat says under key that the process id is alive for another life µs, or with
// a life of 0 that it leaves, and returns how many processes are alive.
func (c *Client) Beat(ctx context.Context, now int64, key, id string, life int64) (int64, error) {
	w := newWire()
	w.key(key)
	w.sealKeys()
	w.args = append(w.args, now, id, life)
	v, err := c.run(ctx, beatScript, w, false)
	if err != nil {
		return 0, err
	}
	if len(v) != 1 || v[0] < 0 || v[0] > algo.MaxExact {
		return 0, &ReplyError{fmt.Sprintf("heartbeat %v", v)}
	}
	return v[0], nil
}
