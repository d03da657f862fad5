package lua

import (
	"context"
	"fmt"
	"strconv"
)

// Taken is units of a key that were admitted and not used.
type Taken struct {
	Keys   Keys
	Params Args
	Units  int64
	// Of is how many were taken, at least Units; 0 is Units.
	Of int64
	// At is when they were taken, by the server's clock. 0 is a refund: now, by
	// whoever.
	At int64
	// Member names those of the sliding window log: see Member. First is the
	// number of the first of the units, from 1, among all that the call took of
	// the item.
	Member string
	First  int64
}

// Work is as that of an Item.
func (t *Taken) Work() int64 { return workOf(t.Params.Params, t.Units) }

// Member names the units that a call with this nonce took for one of its items.
func Member(nonce string, item int) string { return nonce + ":" + strconv.Itoa(item) }

// GiveBack returns units to their keys, all of one algorithm, and reports how
// many of each were taken back: see algo.GiveBack. What was taken for shaping is
// not. The nonce, of no use to Redis, tells the caller when it is written.
func (c *Client) GiveBack(ctx context.Context, now int64, nonce any, items []Taken) ([]int64, error) {
	kind := items[0].Params.Kind
	s := backScripts[kind]
	if s == nil {
		return make([]int64, len(items)), nil
	}
	w := newWire()
	for i := range items {
		w.state(&items[i].Keys)
	}
	w.sealKeys()
	w.args = append(w.args, now, nonce)
	for i := range items {
		it := &items[i]
		w.args = append(w.args, it.Units, it.At, max(it.Of, it.Units), it.Params.boxed[0], it.Params.boxed[1], it.Params.boxed[2], it.Member, it.First)
	}
	v, err := c.run(ctx, s, w, false)
	if err != nil {
		return nil, err
	}
	if len(v) != len(items) {
		return nil, &ReplyError{fmt.Sprintf("%d integers for %d items given back", len(v), len(items))}
	}
	for i := range v {
		if v[i] < 0 || v[i] > items[i].Units {
			return nil, &ReplyError{fmt.Sprintf("%d of %d units given back", v[i], items[i].Units)}
		}
	}
	return v, nil
}
