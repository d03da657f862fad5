package lua

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/algo"
)

// PartKey names a part of a key that is split. No two parts of two keys have one name, and the
// parts of a key are in different slots of a cluster, unless they are so long that they are known
// by their hash.
func PartKey(key string, i int) string {
	const digits = "0123456789abcdef"
	return key + string([]byte{0, digits[i>>4], digits[i&15]})
}

// MaxParts is the most parts of a key whose slots are certain to differ.
const MaxParts = 64

// The numbers of a state as text: see state.lua.
const (
	usedFields    = 6
	blockedFields = 8
)

// ReadState reads the text under a key of an algorithm that is no log: the state, and what it says of
// the limit that was applied last. The Cap of that is only known of a bucket, and 0 of others; a key
// that was blocked and never used has no limit.
func ReadState(kind algo.Kind, text string) (s algo.State, p algo.Params, err error) {
	fields := strings.Split(text, ":")
	n := make([]int64, len(fields))
	for i, field := range fields {
		if n[i], err = strconv.ParseInt(field, 10, 64); err != nil || n[i] < 0 || n[i] > algo.MaxExact {
			return s, p, &ReplyError{fmt.Sprintf("the text %.60q is not the state of a %v", text, kind)}
		}
	}
	switch len(n) {
	case blockedFields:
		s.Until, s.Length = n[2], n[3]
		n = append(n[:2], n[4:]...)
	case usedFields:
	default:
		return s, p, &ReplyError{fmt.Sprintf("the text %.60q is not the state of a %v", text, kind)}
	}
	s.At, s.Birth, s.V = n[0], n[1], n[5]
	p = algo.Params{Kind: kind, Num: n[2], Den: n[3]}
	switch {
	case (p.Num == 0 || p.Den == 0) && s.At+p.Num+p.Den > 0:
		return s, p, &ReplyError{fmt.Sprintf("the text %.60q is not the state of a %v: it has no rate", text, kind)}
	case kind == algo.SlidingWindowCounter:
		s.W = n[4]
	case !kind.Windowed():
		s.Num, s.W, s.Cap = n[2], n[3], n[4]
		p.Cap = n[4]
	}
	return s, p, nil
}

// ReadLog reads the members of a sliding window log.
func ReadLog(members []redis.Z) (s algo.State, err error) {
	for _, m := range members {
		name, _ := m.Member.(string)
		length, block := strings.CutPrefix(name, "block:")
		switch {
		case m.Score >= 0:
			s.Log = append(s.Log, algo.Cell{T: int64(m.Score), V: 1})
			s.V++
		case block:
			s.Until = int64(-m.Score)
			if s.Length, err = strconv.ParseInt(length, 10, 64); err != nil {
				return s, &ReplyError{fmt.Sprintf("the member %.60q is not of a log", name)}
			}
		default:
			return s, &ReplyError{fmt.Sprintf("the member %.60q is not of a log", name)}
		}
	}
	return s, nil
}

// PermitsHeld is what the members of the permits of an id say at a time, in µs: how many permits are held,
// how many callers wait, and when the last permit that is held now ends.
type PermitsHeld struct{ Held, Waiting, LastEnd int64 }

// permitsLife is LIFE of permits_state.lua.
const permitsLife = 4_000_000_000_000_000

// ReadPermits reads the members of the permits of an id.
func ReadPermits(members []redis.Z, now int64) (p PermitsHeld) {
	for _, m := range members {
		name, _ := m.Member.(string)
		at := int64(m.Score)
		switch {
		case strings.HasPrefix(name, "h") && at > now:
			p.Held++
			p.LastEnd = max(p.LastEnd, at)
		case strings.HasPrefix(name, "w") && at > permitsLife+now:
			p.Waiting++
		}
	}
	return p
}

// SampledSums is the key of the sums of what the samplers of a prefix are asked for, by encoded id.
func (n *Namer) SampledSums() string { return n.of("sampled", Sampled) }

// SampledProcesses is the key of the processes that sample.
func (n *Namer) SampledProcesses() string { return n.SampledSums() + ":p" }

// unblockScript ends the block of a key, and keeps what was counted. Only operators use it.
var unblockScript = newScript("unblock", "unblock")

// Unblock ends the block of a key of any algorithm; Was says that there was one.
type Unblock struct {
	Keys Keys

	Was bool
}

func (u *Unblock) request(*Clock) (*Script, *wire, bool) {
	return unblockScript, wireOf(u.Keys.State(), 0), false
}

func (u *Unblock) reply(v []int64) error {
	if len(v) != 1 || v[0] < 0 {
		return &ReplyError{fmt.Sprintf("the key %q does not hold the state of a limit", u.Keys.State())}
	}
	u.Was = v[0] == 1
	return nil
}
