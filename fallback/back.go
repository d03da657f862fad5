package fallback

import (
	"math"
	"time"

	"golang.org/x/time/rate"

	"github.com/holdfast-go/holdfast/internal/algo"
)

// Receipt is for units that Take admitted. The zero value is for none.
type Receipt struct {
	entry  *entry
	age    uint32
	debt   *debt
	params algo.Params
	at     int64
	units  int64
}

// GiveBack returns n of the units of rc to id, as algo.GiveBack does, and reports
// how many that were. They are not owed any more either. What has begun anew since
// takes nothing back: Redis has decided again, or the key was reset. A receipt must
// be used once.
func (s *Store) GiveBack(id string, rc *Receipt, n int64) int64 {
	if rc.entry == nil {
		return 0
	}
	now := s.now()
	sh := s.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if d := rc.debt; d != nil && sh.debts[debtKey{rc.params.Kind, id}] == d {
		algo.Forgive(d.own, &d.state, now, rc.at, rc.units, n)
	}
	e := rc.entry
	if e.age != rc.age || e.restart {
		return 0
	}
	return e.giveBack(rc.params, now, rc.at, rc.units, n)
}

// Refund returns n units of id, under p, that were taken just now, by whoever.
func (s *Store) Refund(id string, p algo.Params, n int64) {
	now := s.now()
	sh := s.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if d := sh.debts[debtKey{p.Kind, id}]; d != nil {
		algo.Forgive(d.own, &d.state, now, now, n, n)
	}
	e := sh.keys[p.Kind][id]
	switch {
	case e == nil || e.restart:
	case p.Kind == algo.TokenBucket:
		e.giveBack(p, now, now, n, n)
	default:
		algo.Refund(p, &e.state, now, n)
	}
}

// Charge takes up to n units of id, as many as there is room for, whatever they
// are kept for. With a home all of them are owed.
func (s *Store) Charge(id string, p algo.Params, n int64, home *algo.Params) {
	now := s.now()
	p.Keep, p.MaxDelay = 0, 0
	sh := s.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	s.at(sh, id, p, now, min(n, p.Cap)).debit(p, now, n)
	if home != nil {
		s.owe(sh, id, p, now, n, home)
	}
}

func (e *entry) giveBack(p algo.Params, now, at, taken, n int64) int64 {
	if p.Kind != algo.TokenBucket {
		return algo.GiveBack(p, &e.state, now, at, taken, n)
	}
	if e.bucket == nil {
		return 0
	}
	// As algo.GiveBack, of what cannot have drained since. A bucket of x/time/rate
	// takes whole units: the fraction is what it refills from a moment before now.
	perMicro := float64(p.Num) / float64(p.Den)
	back := min(float64(n), float64(taken)-float64(max(0, now-at))*perMicro)
	if back <= 0 {
		return 0
	}
	before := e.bucket.TokensAt(time.UnixMicro(now))
	tokens := min(before+back, float64(p.Cap))
	if n := math.Round(tokens); math.Abs(tokens-n) < 1e-8 {
		tokens = n // a hair less would not be admitted, although it counts as one
	}
	whole := math.Floor(tokens)
	e.bucket = rate.NewLimiter(rate.Limit(perMicro*1e6), int(p.Cap))
	e.bucket.AllowN(time.UnixMicro(now).Add(-time.Duration((tokens-whole)/perMicro*float64(time.Microsecond))), int(p.Cap)-int(whole))
	return int64(min(tokens-max(0, before), float64(n)) + 1e-9)
}
