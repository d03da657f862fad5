package sim

import (
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/limiter"
)

// Draw draws a plan.
func Draw(seed uint64) Plan {
	rng := rand.New(rand.NewPCG(seed, 42))
	p := Plan{
		Seed: seed, Processes: 1 + rng.IntN(8), Callers: 1 + rng.IntN(4), Keys: 1 + rng.IntN(6),
		Life: 60*time.Second + time.Duration(rng.Int64N(int64(4*time.Minute))), Think: time.Duration(20+rng.IntN(300)) * time.Millisecond,
	}
	if rng.IntN(2) == 0 {
		p.Looks = rng.Float64() * 0.7
	}
	p.Options.NoDenials = rng.IntN(2) == 0
	for range 1 + rng.IntN(3) {
		p.Limits = append(p.Limits, drawLimit(rng))
	}
	for range 1 + rng.IntN(8) {
		p.Faults = append(p.Faults, drawFault(rng, p.Processes, p.Life))
	}
	return p
}

func drawLimit(rng *rand.Rand) limiter.Limit {
	rate := limiter.Per(1+rng.IntN(100), time.Duration(1+rng.IntN(20))*time.Second)
	burst := 1 + rng.IntN(60)
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
