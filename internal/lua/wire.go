package lua

import (
	"encoding"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"
)

// wire is the arguments of one command, in memory that is used again.
type wire struct {
	args []any
	keys []string
	buf  []byte
	ends []int

	cmd   redis.IntSliceCmd
	plain *redis.IntCmd // of a command that is no script
	stamp stamp
	gate  gate
}

var wires = sync.Pool{New: func() any { return new(wire) }}

// val is what was answered.
func (w *wire) val() []int64 {
	if w.plain != nil {
		return []int64{w.plain.Val()}
	}
	return w.cmd.Val()
}

// newWire returns arguments whose first two are left for the command and the
// script.
func newWire() *wire {
	w := wires.Get().(*wire)
	w.args = append(w.args, nil, nil, nil)
	return w
}

// wireOf returns the arguments of a script on one key.
func wireOf(key string, args ...any) *wire {
	w := newWire()
	w.key(key)
	w.sealKeys()
	w.args = append(w.args, args...)
	return w
}

// plainWire returns the arguments of a command of Redis.
func plainWire(args ...any) *wire {
	w := newWire()
	w.args = append(w.args[:0], args...)
	return w
}

// key adds a key, for sealKeys. Its parts are copied.
func (w *wire) key(parts ...string) {
	for _, p := range parts {
		w.buf = append(w.buf, p...)
	}
	w.ends = append(w.ends, len(w.buf))
}

// state adds the key of what one decision needs.
func (w *wire) state(k *Keys) { w.key(k.state, k.id, "}") }

// sealKeys ends the keys. All share one string, and are passed by reference: a
// string in an interface is a piece of memory for each.
func (w *wire) sealKeys() {
	all, start := string(w.buf), 0
	for _, end := range w.ends {
		w.keys = append(w.keys, all[start:end])
		start = end
	}
	for i := range w.keys {
		w.args = append(w.args, &w.keys[i])
	}
	w.args[2] = len(w.keys)
}

// nonce adds a nonce, which may be a string or what marshals itself. Where it is a Gate, the command is written when that opens.
func (w *wire) nonce(n any) {
	w.stamp = stamp{&w.cmd, n}
	w.args = append(w.args, &w.stamp)
	w.gate.by, _ = n.(Gate)
}

// Gate opens when a command may be written, or returns the error that the command gets.
type Gate interface{ Open() error }

// gate is the script of a command that is written when it opens. The script stands before the keys: a command that is not
// written has left so little in the client's buffer that none of that was sent, and the connection can be used again.
type gate struct {
	by     Gate
	script any
	sha    []byte // of script, if that is one
}

// MarshalBinary is called by the client when it writes the command.
func (g *gate) MarshalBinary() ([]byte, error) {
	if err := g.by.Open(); err != nil || g.sha != nil {
		return g.sha, err
	}
	return []byte(g.String()), nil
}

// String is for those who print the arguments of a command.
func (g *gate) String() string { return fmt.Sprint(g.script) }

// stamp is a nonce on its command. A cluster client that has followed a MOVED or ASK leaves that as
// the error of the command when the next reply is lost. Without it, one that is there at the end
// was the last answer, so that nothing was executed.
type stamp struct {
	cmd *redis.IntSliceCmd
	of  any
}

// MarshalBinary is called by the client when it writes the command.
func (s *stamp) MarshalBinary() ([]byte, error) {
	s.cmd.SetErr(nil)
	if m, ok := s.of.(encoding.BinaryMarshaler); ok {
		return m.MarshalBinary()
	}
	return []byte(s.String()), nil
}

// String is for those who print the arguments of a command.
func (s *stamp) String() string { return fmt.Sprint(s.of) }

// free gives the memory back. Only a command that was answered is certainly not read
// any more.
func (w *wire) free() {
	clear(w.args)
	clear(w.keys)
	w.args, w.keys, w.buf, w.ends, w.cmd, w.plain, w.stamp, w.gate = w.args[:0], w.keys[:0], w.buf[:0], w.ends[:0], redis.IntSliceCmd{}, nil, stamp{}, gate{}
	wires.Put(w)
}
