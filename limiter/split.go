package limiter

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/redislink"
)

// each runs fn for the limits and names under which Redis knows key, side by side: for
// its parts, where it is split. It returns the first error.
func each(s *spec, key string, fn func(i int, s *spec, name string) error) error {
	if s.parts == nil {
		return fn(0, s, key)
	}
	return cmp.Or(sideBySide(len(s.parts), func(i int) error {
		return redislink.OfKey(fn(i, &s.parts[i], lua.PartKey(key, i)), key)
	})...)
}

// sideBySide calls fn for each of n, so that all together take no longer than one budget, and returns their errors. When a
// function of the user's panics, it does so where the caller can recover.
func sideBySide(n int, fn func(i int) error) []error {
	errs, panics := make([]error, n), make(chan any, n)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			defer func() {
				if v := recover(); v != nil {
					panics <- v
				}
			}()
			errs[i] = fn(i)
		})
	}
	wg.Wait()
	if len(panics) > 0 {
		panic(<-panics)
	}
	return errs
}

// partsAsked is how many parts are asked until one admits. Parts whose denials are remembered
// do not count.
const partsAsked = 2

// shared decides in Redis, or by the fallback, on keys that may be split.
type shared struct {
	*decider // on keys that are not
	// turns has, by the hash of the key, the part that is asked first.
	turns [1024]atomic.Uint32
}

// within decides with a budget for all calls together, and writes that into res, an empty one.
func (p *shared) within(ctx context.Context, budget time.Duration, s *spec, key string, n int, fewer bool, rc *receipt, res *Result) error {
	if s.parts != nil {
		return p.inParts(ctx, budget, s, key, n, fewer, rc, res)
	}
	var r request
	r.begin(p.decider, budget, s, key, n, rc)
	r.fewer = fewer
	return p.decider.decide(ctx, &r, res)
}

// inParts is within for a split key. It asks its parts in turn: one for each decision. When that part denies,
// another one decides, in what is left of the budget.
func (p *shared) inParts(ctx context.Context, budget time.Duration, s *spec, key string, n int, fewer bool, rc *receipt, res *Result) error {
	if n == 0 {
		rc.of(&s.parts[0], lua.PartKey(key, 0))
		return p.peek(ctx, s, key, res)
	}
	parts := uint32(len(s.parts))
	turn := &p.turns[p.denials.Hash(key)%uint64(len(p.turns))]
	first := turn.Add(1) - 1
	soonest, asked, unsure := first, 0, false
	end := time.Now().Add(budget)
	for k := uint32(0); k < parts && asked < partsAsked; k++ {
		i := (first%parts + k) % parts
		if k > 0 {
			budget = time.Until(end)
		}
		var r request
		r.begin(p.decider, budget, &s.parts[i], lua.PartKey(key, int(i)), n, rc)
		r.unsure, r.fewer = &unsure, fewer
		var other Result
		err := p.decider.decide(ctx, &r, &other)
		if err != nil || other.Allowed || unsure { // no second part is charged
			*res = other
			return redislink.OfKey(err, key)
		}
		p.recount(key, i, other.Source, -1)
		if other.Source != SourceCache {
			asked++
		}
		if k == 0 {
			*res = other
			continue
		}
		if other.RetryAfter < res.RetryAfter {
			soonest = i
		}
		*res = either(*res, other)
	}
	// A caller that comes back after RetryAfter finds the part with that RetryAfter.
	turn.Store(soonest)
	p.recount(key, soonest%parts, res.Source, 1)
	return nil
}

// recount counts a decision that was made of those on parts, which count
// themselves, as one.
func (p *shared) recount(key string, part uint32, s Source, by int64) {
	p.redis.Server(lua.EncodeID(lua.PartKey(key, int(part)))).Counts[s].Add(uint64(by))
}

// either is the result of asking two parts which denied.
func either(a, b Result) Result {
	if b.RetryAfter < a.RetryAfter {
		a, b = b, a
	}
	a.BeyondClaim = a.BeyondClaim && b.BeyondClaim
	a.Remaining, a.ResetAfter = max(a.Remaining, b.Remaining), max(a.ResetAfter, b.ResetAfter)
	return a
}

// peek asks all parts for the largest cost that one of them has room for.
func (p *shared) peek(ctx context.Context, s *spec, key string, best *Result) error {
	all := make([]Result, len(s.parts))
	err := each(s, key, func(i int, s *spec, part string) error {
		var r request
		r.begin(p.decider, p.redis.Budget, s, part, 0, nil)
		return p.decider.decide(ctx, &r, &all[i])
	})
	if err != nil {
		return err
	}
	*best = all[0]
	for i, res := range all[1:] {
		p.recount(key, uint32(i+1), res.Source, -1)
		*best = either(*best, res)
	}
	p.recount(key, 0, all[0].Source, -1)
	p.recount(key, 0, best.Source, 1)
	return nil
}

func (p *shared) refund(ctx context.Context, s *spec, key string, n int64) error {
	if s.parts == nil {
		_, err := p.decider.refund(ctx, p.redis.Budget, s, key, n)
		return err
	}
	end := time.Now().Add(p.redis.Budget)
	for i := 0; i < len(s.parts) && n > 0; i++ {
		given, err := p.decider.refund(ctx, time.Until(end), &s.parts[i], lua.PartKey(key, i), n)
		if err != nil {
			return redislink.OfKey(err, key)
		}
		n -= given
	}
	return nil
}

func (p *shared) block(ctx context.Context, s *spec, key string, us int64) error {
	return each(s, key, func(_ int, s *spec, name string) error { return p.decider.block(ctx, s, name, us) })
}

func (p *shared) reset(ctx context.Context, s *spec, key string) error {
	return each(s, key, func(_ int, s *spec, name string) error { return p.decider.reset(ctx, s, name) })
}

func (p *shared) answers() time.Duration { return p.redis.Budget }

func (p *shared) changed(limit Limit) {
	p.redis.Change(limit.Algorithm(), limit)
	if p.leases != nil {
		p.leases.GiveBackSoon()
	}
}

func (p *shared) health() Health {
	link := p.redis
	servers, decisions := redislink.Health[Source](link)
	h := Health{
		Share: link.Share(), ShareOrigin: link.ShareOrigin(), Processes: link.Processes(), Decisions: decisions,
		Reconciled: p.outbox.Reconciled(), Owed: p.local.Owed(), LocalKeys: p.local.Len(),
		FunctionsError: link.FunctionsError(), PeerCountError: link.PeerCountError(),
	}
	for _, srv := range servers {
		h.Servers = append(h.Servers, ServerHealth(srv))
	}
	return h
}

func (p *shared) done() <-chan struct{} { return p.redis.Life().Done() }

func (p *shared) close() { p.redis.Close(p.decider.close) }
