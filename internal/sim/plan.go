package sim

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/limiter"
)

// Plan says what a world is like. New plans are drawn from a seed; a shrinker makes
// smaller ones.
type Plan struct {
	Seed      uint64
	Processes int
	Callers   int // of each process
	Keys      int // of each limit
	Limits    []limiter.Limit
	Life      time.Duration
	Think     time.Duration // of a caller, on average
	Looks     float64       // the part of calls that are peeks
	Faults    []Fault
	// Joins are when further processes start, and Leaves when one ends.
	Joins   []time.Duration
	Leaves  []Leave
	Options options
}

// options are those of the limiters.
type options struct{ NoDenials bool }

// Leave is the end of a process: it closes its limiters, or crashes.
type Leave struct {
	At      time.Duration
	Process int
	Crash   bool
}

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

// claim is the part of a limit that each process may use locally at a time: one of as many
// as could reach Redis lately.
func (p *Plan) claim(at time.Duration) float64 {
	cut := map[int]bool{}
	for _, f := range p.Faults {
		if f.Of != nil && f.For > 2*time.Second && f.At < at && f.At+f.For+20*time.Second > at {
			for _, n := range f.Of {
				cut[n] = true
			}
		}
	}
	// Who joins or leaves is noticed within 15 s.
	n, least := p.Processes, p.Processes
	type change struct {
		at time.Duration
		by int
	}
	var changes []change
	for _, j := range p.Joins {
		changes = append(changes, change{j, 1})
	}
	for _, l := range p.Leaves {
		changes = append(changes, change{l.At, -1})
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	for _, c := range changes {
		if c.at > at {
			break
		}
		if c.at <= at-15*time.Second {
			least = n + c.by
		}
		n += c.by
		least = min(least, n)
	}
	return 1 / float64(max(1, least-len(cut)))
}

// alive is how many processes there are at the end.
func (p *Plan) alive() int { return p.Processes + len(p.Joins) - len(p.Leaves) }

// smaller lists plans with one thing less.
func (p Plan) smaller() (plans []Plan) {
	for i := range p.Faults {
		q := p
		q.Faults = slices.Delete(slices.Clone(p.Faults), i, i+1)
		plans = append(plans, q)
	}
	for i := range p.Joins {
		q := p
		q.Joins = slices.Delete(slices.Clone(p.Joins), i, i+1)
		plans = append(plans, q)
	}
	for i := range p.Leaves {
		q := p
		q.Leaves = slices.Delete(slices.Clone(p.Leaves), i, i+1)
		plans = append(plans, q)
	}
	if p.Processes > 1 && len(p.Leaves) == 0 {
		q := p
		q.Processes--
		q.Faults = slices.Clone(p.Faults)
		for i := range q.Faults {
			if of := q.Faults[i].Of; of != nil {
				q.Faults[i].Of = slices.DeleteFunc(slices.Clone(of), func(n int) bool { return n >= q.Processes })
			}
		}
		plans = append(plans, q)
	}
	if p.Callers > 1 {
		q := p
		q.Callers--
		plans = append(plans, q)
	}
	if len(p.Limits) > 1 {
		q := p
		q.Limits = p.Limits[:len(p.Limits)-1]
		plans = append(plans, q)
	}
	if p.Looks > 0 {
		q := p
		q.Looks = 0
		plans = append(plans, q)
	}
	return plans
}
