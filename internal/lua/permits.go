package lua

import (
	"fmt"
	"slices"
)

// Permits is the key of the permits of an encoded id: who holds one, and who waits.
func (n *Namer) Permits(id string) string { return n.of("permits", id) }

// PermitAsk asks for permits, one for each caller.
type PermitAsk struct {
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

// PermitReply is the answer to a PermitAsk.
type PermitReply struct {
	Granted []bool
	Held    int64
	Ahead   int64 // of the first caller who has to wait
	NextEnd int64 // of a permit, in µs from now; 0 when every caller has one
}

func flag(b bool) any {
	if b {
		return "1"
	}
	return "0"
}

// Acquire asks for permits.
type Acquire struct {
	Now   int64
	Nonce any
	Ask   *PermitAsk

	Got PermitReply
}

// SetNonce sets the nonce.
func (a *Acquire) SetNonce(n any) { a.Nonce = n }

func (a *Acquire) request(*Clock) (*Script, *wire, bool) {
	ask := a.Ask
	w := wireOf(ask.Key, a.Now, a.Nonce, ask.Most, ask.Keep, ask.TTL, ask.Patience, flag(ask.Wait), flag(ask.Critical), flag(ask.Again))
	for i := range ask.Callers {
		w.args = append(w.args, ask.Callers[i])
	}
	return acquireScript, w, false
}

// Wrote reports that a caller was granted a permit, or waits for one.
func (a *Acquire) Wrote() bool { return a.Ask.Wait || slices.Contains(a.Got.Granted, true) }

func (a *Acquire) reply(v []int64) error {
	const head = 4
	callers := len(a.Ask.Callers)
	if len(v) != head+callers || !exact(v[1:head]...) {
		return &ReplyError{fmt.Sprintf("permits %v for %d callers", v, callers)}
	}
	a.Got = PermitReply{Held: v[1], Ahead: v[2], NextEnd: v[3], Granted: ones(v[head:])}
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

// ReleasePermit ends the permit of a caller that does not wait.
func ReleasePermit(key, caller string) Plain { return Plain{"zrem", key, "h" + caller} }

// LeaveQueue takes callers out of the queue of a key; permits that they hold stay.
func LeaveQueue(key string, callers ...string) Plain {
	p := Plain{"zrem", key}
	for _, caller := range callers {
		p = append(p, "q"+caller, "w"+caller)
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
