package lua

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/algo"
)

// Slots is the key of the slots of an encoded id: who holds one, and who waits.
func (n *Namer) Slots(id string) string { return n.slots + id + "}" }

// SlotAsk asks for slots, one for each caller.
type SlotAsk struct {
	Key string
	// Most is how many there are, Keep how many of them are for critical callers.
	Most, Keep int64
	// TTL is how long a slot is kept, and Patience how long a place in the queue, in
	// µs. Callers with a longer time to live than others' say so after a slash at the
	// end of their name.
	TTL, Patience int64
	// Wait lets those queue who are denied.
	Wait, Critical bool
	// Again says that the callers may have asked before.
	Again   bool
	Callers []string
}

// SlotReply is the answer to a SlotAsk.
type SlotReply struct {
	Granted []bool
	Held    int64
	Ahead   int64 // of the first caller who has to wait
	NextEnd int64 // of a slot, in µs from now; 0 when everybody has one
}

func flag(b bool) any {
	if b {
		return "1"
	}
	return "0"
}

// Acquire asks for slots.
func (c *Client) Acquire(ctx context.Context, now int64, nonce any, ask *SlotAsk) (SlotReply, error) {
	w := newWire()
	w.key(ask.Key)
	w.sealKeys()
	w.args = append(w.args, now, nonce, ask.Most, ask.Keep, ask.TTL, ask.Patience, flag(ask.Wait), flag(ask.Critical), flag(ask.Again))
	for i := range ask.Callers {
		w.args = append(w.args, ask.Callers[i])
	}
	v, err := c.run(ctx, slotsScript, w, false)
	if err != nil {
		return SlotReply{}, err
	}
	return decodeSlots(v, len(ask.Callers))
}

func decodeSlots(v []int64, callers int) (SlotReply, error) {
	const head = 4
	if len(v) != head+callers || v[1] < 0 || v[1] > algo.MaxExact || v[2] < 0 || v[2] > algo.MaxExact || v[3] < 0 || v[3] > algo.MaxExact {
		return SlotReply{}, &ReplyError{fmt.Sprintf("slots %v for %d callers", v, callers)}
	}
	r := SlotReply{Held: v[1], Ahead: v[2], NextEnd: v[3], Granted: make([]bool, callers)}
	for i := range r.Granted {
		r.Granted[i] = v[head+i] == 1
	}
	return r, nil
}

// LeaveSlots takes callers out of all that is kept of a key, whether they hold a slot
// or wait for one.
func (c *Client) LeaveSlots(ctx context.Context, key string, callers ...string) error {
	args := make([]any, 2, 2+3*len(callers))
	args[0], args[1] = "zrem", key
	for _, caller := range callers {
		args = append(args, "h"+caller, "q"+caller, "w"+caller)
	}
	return c.doer.Process(ctx, redis.NewIntCmd(ctx, args...))
}

// Holders are those who hold slots of one id.
type Holders struct {
	Key     string
	Callers []string
}

// KeepSlots keeps slots for another ttl µs, and reports for each caller, in order,
// whether it had lost its slot.
func (c *Client) KeepSlots(ctx context.Context, now, ttl int64, of []Holders) ([]bool, error) {
	w := newWire()
	callers := 0
	for i := range of {
		w.key(of[i].Key)
		callers += len(of[i].Callers)
	}
	w.sealKeys()
	w.args = append(w.args, now, ttl)
	for i := range of {
		w.args = append(w.args, len(of[i].Callers))
		for _, caller := range of[i].Callers {
			w.args = append(w.args, caller)
		}
	}
	v, err := c.run(ctx, slotsBeatScript, w, false)
	if err != nil {
		return nil, err
	}
	if len(v) != callers {
		return nil, &ReplyError{fmt.Sprintf("%d integers for %d slots kept", len(v), callers)}
	}
	lost := make([]bool, callers)
	for i := range lost {
		lost[i] = v[i] == 1
	}
	return lost, nil
}
