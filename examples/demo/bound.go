package main

import (
	"time"

	"github.com/holdfast-go/holdfast/limiter"
)

// sums are what the bound across an outage is made of, since the last reset.
type sums struct {
	admitted    int
	last        time.Time     // until when the times are counted
	reached     time.Duration // in which any process reached Redis
	alone       time.Duration // in which processes decided alone, summed over them
	transitions int           // between the two, over all processes
	emptied     int           // times that Redis lost its state
}

// totals compare what was admitted with the most that may have been.
type totals struct {
	Admitted int `json:"admitted"`
	Bound    int `json:"bound"`
}

// add counts a decision of p, one of all.
func (s *sums) add(all []*process, p *process, res limiter.Result) {
	now := time.Now()
	alone := 0
	for _, other := range all {
		if other.alone {
			alone++
		}
	}
	step := now.Sub(s.last)
	s.last = now
	s.alone += step * time.Duration(alone)
	if alone < len(all) {
		s.reached += step
	}
	if res.Allowed {
		s.admitted++
	}
	// What the process remembers of Redis' denials is the word of Redis.
	if own := res.Source == limiter.SourceLocal; own != p.alone {
		p.alone = own
		s.transitions++
	}
}

// bound is the most that may have been admitted, as docs/guarantees.md states it:
//
//	limit·(t_r + share·Σ t_p) + burst·(1 + E + share·T)
func (s *sums) bound(limit limiter.Limit, processes int) int {
	share := 1 / float64(processes)
	rate := float64(limit.Rate().N) / limit.Rate().Per.Seconds()
	bursts := 1 + float64(s.emptied) + share*float64(s.transitions)
	return int(rate*(s.reached.Seconds()+share*s.alone.Seconds()) + float64(limit.Burst())*bursts)
}
