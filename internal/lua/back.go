package lua

import (
	"cmp"
	"fmt"
)

// Taken is units of a key that were admitted and not used.
type Taken struct {
	Keys   Keys
	Params Args
	Units  int64
	// Of is how many were taken, at least Units; 0 is Units.
	Of int64
	// At is when they were taken, by the server's clock. 0 is a refund: now, by
	// any caller.
	At int64
}

// GiveBack returns units to their keys, all of one algorithm, and reports how many of each
// were taken back: see algo.GiveBack. None may be for shaping, which takes nothing back. Redis does
// not use the nonce: it tells the caller when the command is written.
type GiveBack struct {
	Now   int64
	Nonce any
	Items []Taken

	Given []int64
}

func (g *GiveBack) request(c *Clock) (*Script, *wire, bool) {
	kind := g.Items[0].Params.Kind
	w := newWire()
	for i := range g.Items {
		w.state(&g.Items[i].Keys)
	}
	w.sealKeys()
	w.args = append(w.args, g.Now)
	w.nonce(g.Nonce)
	for i := range g.Items {
		it := &g.Items[i]
		w.args = append(w.args, it.Units, max(it.Of, it.Units), it.At, it.Params.full, it.Params.windows(cmp.Or(it.At, c.at(g.Now))))
	}
	return backScripts[kind], w, false
}

func (g *GiveBack) reply(v []int64) error {
	if len(v) != len(g.Items) {
		return &ReplyError{fmt.Sprintf("%d integers for %d items given back", len(v), len(g.Items))}
	}
	for i := range v {
		if v[i] < 0 || v[i] > g.Items[i].Units {
			return &ReplyError{fmt.Sprintf("%d of %d units given back", v[i], g.Items[i].Units)}
		}
	}
	g.Given = v
	return nil
}
