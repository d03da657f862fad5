package sim

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/limiter"
)

// Draw draws a plan.
func Draw(seed uint64) Plan {
	rng := rand.New(rand.NewPCG(seed, 42))
	p := Plan{
		Seed: seed, Processes: 1 + rng.IntN(8), Callers: 1 + rng.IntN(4), Keys: 1 + rng.IntN(6),
		Think: between(rng, 20*time.Millisecond, 2*time.Second),
	}
	// Quiet fleets live longer: each makes about as many decisions.
	const decisions = 40_000
	p.Life = time.Duration(decisions / float64(p.Processes*p.Callers) * float64(p.Think))
	p.Life = min(max(p.Life, time.Minute), time.Hour)
	if rng.IntN(2) == 0 {
		p.Looks = rng.Float64() * 0.7
	}
	p.Options.NoDenials = rng.IntN(2) == 0
	for range 1 + rng.IntN(3) {
		p.Limits = append(p.Limits, limiter.Limit{})
	}
	// What the most used key of a limit is asked for in a second.
	keys := float64(p.Keys)
	demand := 1.4 * float64(p.Processes*p.Callers) / p.Think.Seconds() / float64(len(p.Limits)) * (1 + math.Log(keys)) / keys
	for i := range p.Limits {
		p.Limits[i] = drawLimit(rng, demand*math.Exp2(4*rng.Float64()-3))
	}
	for range 1 + int(p.Life/(5*time.Minute)) + rng.IntN(3) {
		p.Faults = append(p.Faults, drawEpisode(rng, p.Processes, p.Life)...)
	}
	for range rng.IntN(4) {
		if at := p.quiet(rng); at > 0 {
			p.Joins = append(p.Joins, at)
		}
	}
	slices.Sort(p.Joins)
	for i := range rng.IntN(p.Processes) {
		p.Leaves = append(p.Leaves, Leave{time.Duration(rng.Int64N(int64(p.Life))), i, rng.IntN(2) == 0})
	}
	return p
}

// quiet draws a time without a fault, 0 when there is none: a process that starts in an
// outage does not know yet how many there are.
func (p *Plan) quiet(rng *rand.Rand) time.Duration {
	at := time.Duration(rng.Int64N(int64(p.Life - 20*time.Second)))
	for _, f := range p.Faults {
		if at > f.At-20*time.Second && at < f.At+f.For+20*time.Second {
			return 0
		}
	}
	return at
}

// drawLimit draws a limit of about so many units per second.
func drawLimit(rng *rand.Rand, perSecond float64) limiter.Limit {
	period := math.Exp2(9*rng.Float64() - 1) // half a second to four minutes
	n := min(5000, max(1, int(perSecond*period)))
	rate := limiter.Per(n, time.Duration(period*1000)*time.Millisecond)
	burst := 1 + int(perSecond*math.Exp2(7*rng.Float64()-4))
	switch rng.IntN(7) {
	case 0:
		return limiter.FixedWindow(rate)
	case 1:
		return limiter.SlidingWindowLog(rate)
	case 2:
		return limiter.SlidingWindowCounter(rate)
	case 3:
		return limiter.TokenBucket(rate, burst)
	case 4:
		return limiter.LeakyBucket(rate, burst)
	case 5:
		return limiter.LeakyBucketShaping(rate, burst)
	}
	return limiter.GCRA(rate, burst)
}
