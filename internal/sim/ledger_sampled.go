package sim

import (
	"math"
	"time"

	"github.com/holdfast-go/holdfast/limiter"
)

// samples is what sampled limiters were asked for of a key in a time.
type samples struct {
	asked, admitted float64
}

// sampled checks what holds for each decision of a sampled limiter, and counts those of quiet times.
func (l *ledger) sampled(process int, key string, n int64, res limiter.Result, err error, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note("process %d: sampled %s %d %v by %v", process, key, n, res.Allowed, res.Source)
	l.decisions++
	l.check(err == nil, "P3", "process %d: a sampled decision on %s: %v", process, key, err)
	l.check(took == 0, "P2", "process %d: a sampled decision on %s took %v", process, key, took)
	l.check(res.Allowed != (res.RetryAfter > 0), "sampled", "process %d: a sampled decision on %s: %+v", process, key, res)
	for i, q := range l.quiet {
		if now := l.now(); now < q[0] || now > q[1] {
			continue
		}
		of := sampledIn{i, key}
		s := l.samples[of]
		s.asked += float64(n)
		if res.Allowed {
			s.admitted += float64(n)
		}
		l.samples[of] = s
	}
}

// sampledIn is a key in a quiet time.
type sampledIn struct {
	time int
	key  string
}

// sampledWithin checks what a fleet admitted of each key in quiet times, where all keys are tracked: at
// most a few percent more than the rate, an interval's part, and what each process carries over; and
// about the rate where much more is asked for, evenly. A key that only some processes track is admitted by those
// within the limit, and by the others within their shares of it. mu is held.
func (l *ledger) sampledWithin() {
	p := l.plan.Sampled
	rate := float64(p.Rate.N) / p.Rate.Per.Seconds()
	units, processes := rate*p.Interval.Seconds(), float64(l.plan.Processes+len(l.plan.Joins))
	carried := units + processes*(1+2*math.Sqrt(units/processes))
	for of, s := range l.samples {
		from, to := l.quiet[of.time][0], l.quiet[of.time][1]
		limit := rate * (to - from).Seconds()
		most := 1.03 * limit
		if p.TopKeys < p.Keys {
			most = 2 * limit
		}
		l.check(s.admitted <= most+carried, "sampled", "%s from %v to %v: %v of %v units are admitted, the limit is %.1f", of.key, from, to, s.admitted, s.asked, limit)
		if l.plan.Traffic.even() && s.asked > 1.5*limit && units > 5*processes && p.TopKeys >= p.Keys {
			l.check(s.admitted >= 0.9*limit-carried, "sampled", "%s from %v to %v: only %v of %v units are admitted, the limit is %.1f", of.key, from, to, s.admitted, s.asked, limit)
		}
	}
}
