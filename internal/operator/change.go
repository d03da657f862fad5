package operator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
)

// Change is what was changed for a key.
type Change struct {
	Prefix string `json:"prefix"`
	Key    string `json:"key"`
	// Redis are the keys that were changed.
	Redis []string `json:"redis_keys"`
	// Until is when a block ends, by the clock of Redis: one that was there may end later than the new one.
	Until *time.Time `json:"until,omitempty"`
	// Note is what the operator should know.
	Note string `json:"note,omitempty"`
}

// Reset removes what was counted for a key, and its block, under every algorithm; with permits also the
// permits that are held, and the queue for them, so that as many more are granted as were held.
func (o *Operator) Reset(ctx context.Context, key string, permits bool) (*Change, error) {
	c, states, err := o.change(ctx, key)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(states)+1)
	for i := range states {
		names = append(names, states[i].Redis)
	}
	if permits {
		names = append(names, o.names.Permits(lua.EncodeID(key)))
	}
	gone := make([]*redis.IntCmd, len(names))
	err = o.pipelined(ctx, func(p redis.Pipeliner) {
		for i, name := range names {
			gone[i] = p.Del(ctx, name)
		}
	})
	for i := range gone {
		if gone[i] != nil && gone[i].Val() > 0 {
			c.Redis = append(c.Redis, names[i])
		}
	}
	c.Note = "a process that was denied a moment ago may deny the key for up to 1s more; leases that processes hold are spent until they end"
	return c, err
}

// change begins a change of a key.
func (o *Operator) change(ctx context.Context, key string) (*Change, []State, error) {
	if err := checkKey(key); err != nil {
		return nil, nil, err
	}
	states, err := o.states(ctx, key)
	return &Change{Prefix: o.prefix, Key: key, Redis: []string{}}, states, err
}

// BlockIn says for which algorithms and parts a key is to be blocked. The zero value is: where the key
// has a state, and where it has none under every algorithm, because nothing in Redis says which one its
// limiter uses. A block under an algorithm that no limiter uses disturbs no caller, and expires.
type BlockIn struct {
	// Algorithm is the name of one, or empty.
	Algorithm string
	// Shards is the number of parts of the limiter's keys, 0 if that is not known. Then all parts that can
	// be are blocked where one was found.
	Shards int
}

// unused are the parameters by which a key is blocked that has no state: so slow that what is charged
// meanwhile does not expire too soon.
var unused = algo.Limit{N: 1, Per: 24 * 3600 * 1_000_000, Burst: 1}

// Block denies a key for a time, unless it is blocked for longer.
func (o *Operator) Block(ctx context.Context, key string, d time.Duration, in BlockIn) (*Change, error) {
	if us := d.Microseconds(); us < 1 || us > algo.MaxPeriod {
		return nil, badRequest{fmt.Errorf("a block of %v is not possible: it must be above 0 and at most 366 days", d)}
	}
	if in.Shards < 0 || in.Shards > lua.MaxParts {
		return nil, badRequest{fmt.Errorf("the number of key shards is %d: must be 0 to %d", in.Shards, lua.MaxParts)}
	}
	c, states, err := o.change(ctx, key)
	if err != nil {
		return nil, err
	}
	now, err := o.now(ctx)
	if err != nil {
		return nil, err
	}
	where := map[string]State{}
	split := in.Shards
	for _, s := range states {
		if err := o.read(ctx, &s, now.UnixMicro(), Question{}); err != nil {
			return nil, err
		}
		if in.Algorithm == "" || s.Algorithm == in.Algorithm {
			if s.Broken != "" {
				return nil, fmt.Errorf("the key %q cannot be blocked: %s", s.keys.State(), s.Broken)
			}
			where[s.keys.State()] = s
			if s.Part != nil && split == 0 {
				split = lua.MaxParts
			}
		}
	}
	kinds := slices.DeleteFunc(slices.Clone(algo.Kinds[:]), func(k algo.Kind) bool {
		if in.Algorithm != "" {
			return k.String() != in.Algorithm
		}
		return len(where) > 0 && !slices.ContainsFunc(states, func(s State) bool { return s.kind == k })
	})
	if len(kinds) == 0 {
		return nil, badRequest{fmt.Errorf("there is no algorithm %q", in.Algorithm)}
	}
	for _, k := range kinds {
		first, end := -1, 0
		if split > 1 {
			first, end = 0, split
		}
		for part := first; part < end; part++ {
			s := o.state(k, key, part)
			if _, known := where[s.Redis]; !known {
				where[s.Redis] = s
			}
		}
	}
	var left int64
	for _, name := range slices.Sorted(maps.Keys(where)) {
		s := where[name]
		b := lua.Block{Keys: s.keys, Params: lua.NewArgs(s.forBlock()), Time: d.Microseconds()}
		if err := o.do(ctx, &b); err != nil {
			return c, err
		}
		left = max(left, b.Left)
		c.Redis = append(c.Redis, name)
	}
	until := now.Add(time.Duration(left) * time.Microsecond).Round(time.Millisecond).UTC()
	c.Until = &until
	if split <= 1 && len(states) == 0 {
		c.Note = "limiters with WithKeyShards have other keys: give their number by -shards"
	}
	return c, nil
}

// forBlock are the parameters for a block: those of the state itself, so that it changes nothing else.
func (s *State) forBlock() algo.Params {
	p := s.params
	if p.Num < 1 || p.Den < 1 {
		l := unused
		l.Kind = s.kind
		p, _ = l.Params() // is valid
	}
	if p.Cap < 1 {
		p.Cap = max(1, algo.MaxExact/4/p.Den)
	}
	return p
}

// Unblock ends the block of a key under every algorithm, and keeps what was counted.
func (o *Operator) Unblock(ctx context.Context, key string) (*Change, error) {
	c, states, err := o.change(ctx, key)
	if err != nil {
		return nil, err
	}
	for _, s := range states {
		u := lua.Unblock{Keys: s.keys}
		if err := o.do(ctx, &u); err != nil {
			return c, err
		}
		if u.Was {
			c.Redis = append(c.Redis, s.Redis)
		}
	}
	c.Note = "a process that was denied a moment ago may deny the key for up to 1s more; a process that blocked the key itself, as httpclient does after a 429, obeys its own block until that ends"
	return c, nil
}
