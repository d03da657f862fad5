package sim

import (
	"math"
	"time"

	"github.com/holdfast-go/holdfast/calendar"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/limiter"
)

// rule is what the ledger must know of a limit.
type rule struct {
	account  string
	limits   []limitSince  // in their order; the first is there from the beginning
	parts    float64       // of a key
	late     time.Duration // how long after its charge a unit may be spent
	aligned  bool          // windows that begin at multiples of their length
	windowed bool
	places   bool                        // callers take a place in a queue, and wait outside of the line
	window   func(now int64) (end int64) // of a fixed window; nil of others
}

// limitSince is a limit that holds from some time on.
type limitSince struct {
	at          time.Duration
	within      time.Duration // in which each process knows of it
	rate, burst float64
	grants      granting
}

func sinceThen(at, within time.Duration, l limiter.Limit, unit calendar.Unit) limitSince {
	per := l.Rate().Per
	window := per
	if unit != 0 {
		per, window = shortest[unit], time.Duration(algo.Shortest[unit-calendar.Day])*time.Microsecond
	}
	params, _ := algo.Limit{Kind: algorithmOf(l), N: int64(l.Rate().N), Per: window.Microseconds(), Burst: int64(l.Burst())}.Params()
	length, most := params.Grants()
	rate := float64(l.Rate().N) / window.Seconds()
	return limitSince{at, within + time.Second, float64(l.Rate().N) / per.Seconds(), float64(l.Burst()), granting{rate, length / 1e6, most, 1 - rate*length/1e6/most}}
}

// grants is what Redis grants of the limit that holds at a time.
func (r *rule) grants(at time.Duration) granting {
	i := len(r.limits) - 1
	for i > 0 && r.limits[i].at > at {
		i--
	}
	return r.limits[i].grants
}

// over is the highest that the limit is from one time to another, and its least burst.
func (r *rule) over(from, to time.Duration) (rate, burst, least float64) {
	least = math.Inf(1)
	for i, l := range r.limits {
		if l.at <= to && (i == len(r.limits)-1 || r.limits[i+1].at+r.limits[i+1].within+r.late >= from) {
			rate, burst, least = max(rate, l.rate), max(burst, l.burst), min(least, l.burst)
		}
	}
	return rate, burst, least
}
