package lua

import (
	"fmt"
	"strconv"
)

// Asked is how much one process asks for of one encoded id, as a rate in an integer
// unit of the caller's; 0 takes it out. Fleet is set to the sum over all processes.
type Asked struct {
	ID    string
	Rate  int64
	Fleet int64
}

// Sampled is the id under which all that the samplers of a prefix keep is found.
const Sampled = "all"

func (n *Namer) sampled(w *wire, process int64) {
	all := n.of("sampled", Sampled)
	w.key(all)
	w.key(all, ":p")
	w.key(all, ":", strconv.FormatInt(process, 10))
}

// MaxAsked is how many ids one Report may have, and how many one Bury takes out.
const MaxAsked = 500

// Report reports what a process is asked for, and sets what the fleet is asked for. It learns the number
// of processes and that of one which has not reported for its own Life, in µs and below 15 minutes, or 0.
type Report struct {
	Now           int64
	Names         *Namer
	Process, Life int64
	Asked         []Asked

	Alive, Dead int64
}

func (r *Report) request(*Clock) (*Script, *wire, bool) {
	w := newWire()
	r.Names.sampled(w, r.Process)
	w.sealKeys()
	w.args = append(w.args, r.Now, r.Process, r.Life)
	for i := range r.Asked {
		w.args = append(w.args, r.Asked[i].ID, r.Asked[i].Rate)
	}
	return sampledScript, w, false
}

func (r *Report) reply(v []int64) error {
	const head = 2
	if len(v) != head+len(r.Asked) || !exact(v...) {
		return &ReplyError{fmt.Sprintf("report %v for %d keys", v[:min(len(v), head)], len(r.Asked))}
	}
	for i := range r.Asked {
		r.Asked[i].Fleet = v[head+i]
	}
	r.Alive, r.Dead = v[0], v[1]
	return nil
}

// Bury takes a process that Report called dead out of the sums, or one that Leaves. As long as it
// says that there is More, it is to be sent again.
type Bury struct {
	Now     int64
	Names   *Namer
	Process int64
	Leaves  bool

	More bool
	Dead int64 // another one, or 0
}

func (b *Bury) request(*Clock) (*Script, *wire, bool) {
	w := newWire()
	b.Names.sampled(w, b.Process)
	w.sealKeys()
	dead := 1
	if b.Leaves {
		dead = 0
	}
	w.args = append(w.args, b.Now, b.Process, dead, MaxAsked)
	return buryScript, w, false
}

func (b *Bury) reply(v []int64) error {
	if len(v) != 2 || !exact(v[1]) {
		return &ReplyError{fmt.Sprintf("bury %v", v)}
	}
	b.More, b.Dead = v[0] == 2, v[1]
	return nil
}
