package redislink

import (
	"context"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
)

// what is a kind of command that several requests can share.
type what uint8

const (
	other what = iota
	decisions
	sets // of decisions, all or nothing
	giveBacks
	permits
	keeps
)

// place is the item of a request in its command, and its turn among the callers of that
// item.
type place struct {
	command, item int
	turn          int64
}

// command is one command of a flight, with the requests that share it.
type command struct {
	what  what
	kind  algo.Kind
	peeks bool
	slot  int // 0 where that does not matter
	items int
	work  int64

	decide  lua.Decide
	all     lua.DecideAll
	back    lua.GiveBack
	permits lua.Permits
	keep    lua.KeepPermits
	other   lua.Command
	nonce   nonce
	told    []bool // which items have an answered caller

	class breaker.Class
	err   error
	// items that were sent apart have classes and errors of their own.
	apart []outcome
}

type outcome struct {
	class breaker.Class
	err   error
}

// add makes an item of o.
func (c *command) add(o *Op) int {
	switch {
	case o.Args != nil:
		count := max(1, o.Count)
		if o.Cost <= 0 {
			count = 1
		}
		c.decide.Items = append(c.decide.Items, lua.Item{Keys: o.Keys, Params: *o.Args, Cost: o.Cost, Age: o.Age, Count: count})
	case o.All != nil:
		c.all.Of = len(o.All)
		c.all.Items = append(c.all.Items, o.All...)
	case o.Taken != nil:
		c.back.Items = append(c.back.Items, *o.Taken)
	case o.Permits != nil || o.Leave != nil:
		c.permits.Items = append(c.permits.Items, lua.PermitItem{Ask: o.Permits, Leave: o.Leave})
	case o.Keep != nil:
		c.keep.Of, c.keep.TTL = append(c.keep.Of, *o.Keep), o.TTL
	default:
		c.other = o.Command
	}
	c.items++
	return c.items - 1
}

// takes reports whether o fits to the others of sets: its limits are of the same algorithms.
func (c *command) takes(o *Op) bool {
	if len(o.All) != c.all.Of {
		return false
	}
	for i := range o.All {
		if o.All[i].Params.Kind != c.all.Items[i].Params.Kind {
			return false
		}
	}
	return true
}

// command returns what is sent.
func (c *command) command() lua.Command {
	switch c.what {
	case decisions:
		return &c.decide
	case sets:
		return &c.all
	case giveBacks:
		return &c.back
	case permits:
		return &c.permits
	case keeps:
		return &c.keep
	}
	return c.other
}

// id is that of an item.
func (c *command) id(i int) string {
	switch c.what {
	case decisions:
		return c.decide.Items[i].Keys.ID()
	case sets:
		return c.all.Items[i*c.all.Of].Keys.ID()
	case giveBacks:
		return c.back.Items[i].Keys.ID()
	case permits:
		return c.permits.Items[i].ID()
	}
	return c.keep.Of[i].ID
}

// piece is the command for some of the items.
func (c *command) piece(at []int, nonce string) lua.Command {
	switch c.what {
	case decisions:
		return &lua.Decide{Nonce: nonce, Items: pick(c.decide.Items, at), Repeats: c.decide.Repeats}
	case sets:
		items := make([]lua.Item, 0, len(at)*c.all.Of)
		for _, i := range at {
			items = append(items, c.set(i)...)
		}
		return &lua.DecideAll{Nonce: nonce, Of: c.all.Of, Items: items}
	case giveBacks:
		return &lua.GiveBack{Nonce: nonce, Items: pick(c.back.Items, at)}
	case permits:
		return &lua.Permits{Nonce: nonce, Items: pick(c.permits.Items, at)}
	}
	return &lua.KeepPermits{TTL: c.keep.TTL, Of: pick(c.keep.Of, at)}
}

// set is the items of a request of sets.
func (c *command) set(i int) []lua.Item { return c.all.Items[i*c.all.Of : (i+1)*c.all.Of] }

func pick[T any](all []T, at []int) []T {
	out := make([]T, len(at))
	for i, k := range at {
		out[i] = all[k]
	}
	return out
}

// put takes the answer for a piece.
func (c *command) put(at []int, piece lua.Command, err error) {
	class := classify(context.Background(), err, 0, 0)
	lost := 0
	for i, k := range at {
		c.apart[k] = outcome{class, err}
		switch p := piece.(type) {
		case *lua.Decide:
			c.decide.Items[k] = p.Items[i]
			if len(p.Out) == len(p.Items) { // also where a key is broken
				c.decide.Out[k], c.apart[k] = p.Out[i], outcome{}
			}
		case *lua.DecideAll:
			copy(c.set(k), p.Items[i*p.Of:(i+1)*p.Of])
			if len(p.Out) == len(p.Items) {
				copy(c.all.Out[k*p.Of:], p.Out[i*p.Of:(i+1)*p.Of])
				c.apart[k] = outcome{}
			}
		case *lua.GiveBack:
			if err == nil {
				c.back.Given[k] = p.Given[i]
			}
		case *lua.Permits:
			c.permits.Items[k] = p.Items[i]
		case *lua.KeepPermits:
			if err == nil {
				n := len(p.Of[i].Callers)
				if c.keep.Lost == nil {
					c.keep.Lost = make([]bool, c.keep.First(c.items))
				}
				copy(c.keep.Lost[c.keep.First(k):], p.Lost[lost:lost+n])
				lost += n
			}
		}
	}
}

// answer gives o its part of what Redis decided on its item.
func (c *command) answer(o *Op, at place) {
	it := &c.decide.Items[at.item]
	if it.Broken {
		err := it.BrokenError()
		o.fail(classify(context.Background(), err, 0, 0), err)
		return
	}
	o.fail(breaker.ClassOK, nil)
	o.Whole = c.decide.Out[at.item]
	o.Out = o.Whole
	o.At = it.At
	o.Admitted = min(max(0, it.Admitted-at.turn), max(1, o.Count))
	o.Behind = max(0, it.Admitted-at.turn-o.Admitted) * it.Cost
	o.Charged = it.Admitted * it.Cost
	switch {
	case it.Count == 1:
	case at.turn < it.Admitted:
		// Those after it took what it saw remaining.
		o.Out.Allowed, o.Out.RetryAfter = true, 0
		o.Out.Remaining += o.Behind
	default:
		o.Out.Allowed = false
	}
}

// answerAll gives o what Redis decided on its items.
func (c *command) answerAll(o *Op, at place) {
	copy(o.All, c.set(at.item))
	for i := range o.All {
		if o.All[i].Broken {
			err := o.All[i].BrokenError()
			o.fail(classify(context.Background(), err, 0, 0), err)
			return
		}
	}
	o.fail(breaker.ClassOK, nil)
	o.Outs = append(o.Outs, c.all.Out[at.item*c.all.Of:(at.item+1)*c.all.Of]...)
}
