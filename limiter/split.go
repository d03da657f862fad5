package limiter

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
)

// maxKeyShards is the most parts of a key whose slots are certain to differ.
const maxKeyShards = 64

// turns says, for keys by their hash, which part is asked first.
type turns [1024]atomic.Uint32

// split gives s its parts: each a limit of its own, which together are
// exactly s.
func (s *spec) split() error {
	n := s.keyShards
	switch {
	case n <= 1:
		return nil
	case s.args.Kind == algo.LeakyBucketShaping:
		return &ConfigError{"key shards", n, "cannot be used with leaky bucket shaping, whose starts would not be evenly spaced"}
	case int64(n) > s.args.Cap:
		return &ConfigError{"key shards", n, "must be at most the limit's burst, or the units of its window: each has a part of it"}
	}
	s.parts = make([]spec, n)
	for i := range s.parts {
		p, err := s.args.Part(int64(i), int64(n))
		if err != nil {
			return &ConfigError{"key shards", n, "makes parts too small for exact arithmetic: " + err.Error()}
		}
		s.parts[i] = spec{limit: s.limit, tuning: s.tuning, leased: s.leased}
		s.parts[i].set(p)
	}
	return nil
}

// partKey names a part of key. No two parts of two keys have one name, and the
// parts of a key are in different slots of a cluster, unless they are so long
// that they are known by their hash.
func partKey(key string, i int) string {
	const digits = "0123456789abcdef"
	return key + string([]byte{0, digits[i>>4], digits[i&15]})
}

// partsAsked is how many parts are asked until one admits. Those of which it is
// known that they deny don't count.
const partsAsked = 2

// decideSplit asks the part whose turn it is; when that denies, another one, in what is
// left of the budget.
func (l *Limiter) decideSplit(ctx context.Context, budget time.Duration, s *spec, key string, n int, rc *receipt) (Result, error) {
	if n == 0 {
		rc.of(&s.parts[0], partKey(key, 0))
		return l.lookSplit(ctx, s, key)
	}
	parts := uint32(len(s.parts))
	var res Result
	turn := &l.turns[l.denials.Hash(key)%uint64(len(l.turns))]
	first := turn.Add(1) - 1
	soonest, asked := first, 0
	end := time.Now().Add(budget)
	for k := uint32(0); k < parts && asked < partsAsked; k++ {
		i := (first%parts + k) % parts
		if k > 0 {
			budget = time.Until(end)
		}
		other, err := l.decidePart(ctx, budget, s, key, i, n, rc)
		if err != nil || other.Allowed {
			return other, err
		}
		l.recount(key, i, other.Source, -1)
		if other.Source != SourceCache {
			asked++
		}
		if k == 0 {
			res = other
			continue
		}
		if other.RetryAfter < res.RetryAfter {
			soonest = i
		}
		res = either(res, other)
	}
	// Who comes back when told to finds the part that it was told of.
	turn.Store(soonest)
	l.recount(key, soonest%parts, res.Source, 1)
	return res, nil
}

// recount counts a decision that was made of those on parts, which count
// themselves, as one.
func (l *Limiter) recount(key string, part uint32, s Source, by int64) {
	l.redis.Server(lua.EncodeID(partKey(key, int(part)))).Counts[s].Add(uint64(by))
}

// either is the result of asking two parts which denied.
func either(a, b Result) Result {
	if b.RetryAfter < a.RetryAfter {
		a, b = b, a
	}
	a.Remaining, a.ResetAfter = max(a.Remaining, b.Remaining), max(a.ResetAfter, b.ResetAfter)
	return a
}

func (l *Limiter) decidePart(ctx context.Context, budget time.Duration, s *spec, key string, i uint32, n int, rc *receipt) (Result, error) {
	part := &s.parts[i]
	if s.args.MaxDelay > 0 {
		part = part.withMaxDelay(s.args.MaxDelay)
	}
	res, err := l.decideOne(ctx, budget, part, partKey(key, int(i)), n, rc)
	return res, ofKey(err, key)
}

// lookSplit looks at all parts: the largest cost that one of them has room for.
func (l *Limiter) lookSplit(ctx context.Context, s *spec, key string) (Result, error) {
	all := make([]Result, len(s.parts))
	err := l.eachPart(s, key, func(i int, part string) (err error) {
		all[i], err = l.decideOne(ctx, l.budget, &s.parts[i], part, 0, nil)
		return err
	})
	if err != nil {
		return Result{}, err
	}
	best := all[0]
	for i, res := range all[1:] {
		l.recount(key, uint32(i+1), res.Source, -1)
		best = either(best, res)
	}
	l.recount(key, 0, all[0].Source, -1)
	l.recount(key, 0, best.Source, 1)
	return best, nil
}

// eachPart runs fn for the names under which Redis knows key, at once.
func (l *Limiter) eachPart(s *spec, key string, fn func(i int, part string) error) error {
	if s.parts == nil {
		return fn(0, key)
	}
	errs := make([]error, len(s.parts))
	var wg sync.WaitGroup
	for i := range s.parts {
		wg.Go(func() { errs[i] = ofKey(fn(i, partKey(key, i)), key) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// ofKey names key, as the caller passed it, in an error of one of its parts.
func ofKey(err error, key string) error {
	var state *StateError
	if errors.As(err, &state) {
		return &StateError{Key: key, Err: state.Err}
	}
	return err
}
