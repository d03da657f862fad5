package lua

import (
	"fmt"
	"slices"
)

// Permits is the key of the permits of an encoded id: who holds one, and who waits.
func (n *Namer) Permits(id string) string { return n.of("permits", id) }

// PermitAsk asks for permits, one for each caller; without callers, how many are held. It does not
// change when it was sent: the client reads it when it writes the command.
type PermitAsk struct {
	ID  string // encoded
	Key string
	// Most is how many there are, Keep how many of them are for critical callers.
	Most, Keep int64
	// TTL is how long a permit is kept, and Patience how long a place in the queue, in
	// µs. Callers with a longer time to live than others' say so after a slash at the
	// end of their name.
	TTL, Patience int64
	// Wait lets those queue who are denied.
	Wait, Critical bool
	// Again says that the callers may have asked before.
	Again   bool
	Callers []string
}

// alike reports that both ask for the same number of permits in the same way.
func (a *PermitAsk) alike(b *PermitAsk) bool {
	return a.Most == b.Most && a.Keep == b.Keep && a.TTL == b.TTL && a.Patience == b.Patience &&
		a.Wait == b.Wait && a.Critical == b.Critical && a.Again == b.Again
}

// PermitReply is the answer to a PermitAsk.
type PermitReply struct {
	Granted []bool
	Held    int64
	Ahead   int64 // of the first caller who has to wait
	NextEnd int64 // of a permit, in µs from now; 0 when every caller has one
	Err     error // of a key that holds something else
}

// Leaver is a caller that gives its permit back. It does not change when it was sent.
type Leaver struct {
	ID     string // encoded
	Key    string
	Caller string
	Queued bool // it may also have a place in the queue
}

// PermitItem is one of both.
type PermitItem struct {
	Ask   *PermitAsk
	Leave *Leaver

	Got PermitReply // to an Ask
}

// ID is the encoded id that the item is of.
func (it *PermitItem) ID() string {
	if it.Leave != nil {
		return it.Leave.ID
	}
	return it.Ask.ID
}

// Permits takes the permits of those who leave, and then asks for permits, in one atomic call.
type Permits struct {
	Now   int64
	Nonce any
	Items []PermitItem
}

func flag(b bool) any {
	if b {
		return "1"
	}
	return "0"
}

func (p *Permits) request(*Clock) (*Script, *wire, bool) {
	if l := p.Items[0].Leave; l != nil && !l.Queued && len(p.Items) == 1 {
		// For one that leaves alone, a script would take longer.
		return nil, plainWire("zrem", l.Key, "h"+l.Caller), false
	}
	w, gone := newWire(), 0
	for i := range p.Items {
		if l := p.Items[i].Leave; l != nil {
			w.key(l.Key)
			gone++
		}
	}
	for i := range p.Items {
		if ask := p.Items[i].Ask; ask != nil {
			w.key(ask.Key)
		}
	}
	w.sealKeys()
	w.args = append(w.args, p.Now)
	w.nonce(p.Nonce)
	w.args = append(w.args, gone)
	for i := range p.Items {
		if l := p.Items[i].Leave; l != nil {
			w.args = append(w.args, &l.Caller, flag(l.Queued))
		}
	}
	var before *PermitAsk
	for i := range p.Items {
		ask := p.Items[i].Ask
		if ask == nil {
			continue
		}
		if before == nil || !ask.alike(before) {
			w.args = append(w.args, "-", &ask.Most, &ask.Keep, &ask.TTL, &ask.Patience, flag(ask.Wait), flag(ask.Critical), flag(ask.Again))
		}
		before = ask
		w.args = append(w.args, len(ask.Callers))
		for i := range ask.Callers {
			w.args = append(w.args, &ask.Callers[i])
		}
	}
	return permitsScript, w, false
}

// Wrote reports that a caller was granted a permit, or waits for one.
func (p *Permits) Wrote() bool {
	return slices.ContainsFunc(p.Items, func(it PermitItem) bool {
		return it.Ask != nil && it.Got.Err == nil && (it.Ask.Wait && len(it.Ask.Callers) > 0 || slices.Contains(it.Got.Granted, true))
	})
}

// The numbers of a reply before those of an item, and before those of its callers.
const permitsHead, askHead = 1, 3

func (p *Permits) reply(v []int64) error {
	if len(p.Items) == 1 && p.Items[0].Leave != nil {
		return nil
	}
	at := permitsHead
	for i := range p.Items {
		it := &p.Items[i]
		if it.Ask == nil {
			continue
		}
		end := at + askHead + len(it.Ask.Callers)
		if end > len(v) {
			return &ReplyError{fmt.Sprintf("permits %v for %d items", v, len(p.Items))}
		}
		it.Got = PermitReply{Held: v[at], Ahead: v[at+1], NextEnd: v[at+2]}
		switch {
		case it.Got.Held == -1:
			it.Got = PermitReply{Err: &ReplyError{fmt.Sprintf("the key %q does not hold permits", it.Ask.Key)}}
		case !exact(v[at : at+askHead]...):
			return &ReplyError{fmt.Sprintf("permits %v", v)}
		default:
			it.Got.Granted = ones(v[at+askHead : end])
		}
		at = end
	}
	if at != len(v) {
		return &ReplyError{fmt.Sprintf("permits %v for %d items", v, len(p.Items))}
	}
	return nil
}

// ones says which of the numbers are 1.
func ones(v []int64) []bool {
	out := make([]bool, len(v))
	for i := range v {
		out[i] = v[i] == 1
	}
	return out
}

// LeavePermits takes callers out of all that is kept of a key, whether they hold a permit or
// wait for one.
func LeavePermits(key string, callers ...string) Plain {
	p := Plain{"zrem", key}
	for _, caller := range callers {
		p = append(p, "h"+caller, "q"+caller, "w"+caller)
	}
	return p
}

// Holders are those who hold permits of one id.
type Holders struct {
	ID      string // encoded
	Key     string
	Callers []string
}

// KeepPermits keeps permits for another TTL µs, and reports for each caller, in order,
// whether it had lost its permit.
type KeepPermits struct {
	Now, TTL int64
	Of       []Holders

	Lost []bool
}

func (k *KeepPermits) request(*Clock) (*Script, *wire, bool) {
	w := newWire()
	for i := range k.Of {
		w.key(k.Of[i].Key)
	}
	w.sealKeys()
	w.args = append(w.args, k.Now, k.TTL)
	for i := range k.Of {
		w.args = append(w.args, len(k.Of[i].Callers))
		for _, caller := range k.Of[i].Callers {
			w.args = append(w.args, caller)
		}
	}
	return keepScript, w, false
}

// First is the place in Lost of the first caller of an item, and that of the item after
// the last one how many there are.
func (k *KeepPermits) First(item int) (n int) {
	for i := range k.Of[:item] {
		n += len(k.Of[i].Callers)
	}
	return n
}

func (k *KeepPermits) reply(v []int64) error {
	if callers := k.First(len(k.Of)); len(v) != callers {
		return &ReplyError{fmt.Sprintf("%d integers for %d permits kept", len(v), callers)}
	}
	k.Lost = ones(v)
	return nil
}
