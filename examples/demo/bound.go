package main

import (
	"time"

	"github.com/holdfast-go/holdfast/limiter"
)

// sums are what the bound across an outage is made of, since the last reset.
type sums struct {
	admitted int
	last     time.Time     // until when the times are counted
	reached  time.Duration // in which any process reached Redis
	alone    float64       // seconds in which processes decided alone, times their claims
	begun    float64       // the claims of processes each time that they began to
	away     int           // times that no process reached Redis any more
	emptied  int           // times that Redis lost its state
}

// totals compare what was admitted with the most that may have been.
type totals struct {
	Admitted int `json:"admitted"`
	Bound    int `json:"bound"`
	// P99Ms is the time within which 99 of 100 decisions of the last minute were made.
	P99Ms float64 `json:"p99Ms"`
	// LateMs is by how much at most 99 of 100 timers of the machine were late.
	LateMs float64 `json:"lateMs"`
}

// add counts a decision of p, one of all.
func (s *sums) add(all []*process, p *process, res limiter.Result) {
	now := time.Now()
	alone, claims := 0, 0.0
	for _, other := range all {
		if other.claim > 0 {
			alone++
		}
		claims += other.claim
	}
	step := now.Sub(s.last)
	s.last = now
	s.alone += step.Seconds() * claims
	if alone < len(all) {
		s.reached += step
	}
	if res.Allowed {
		s.admitted++
	}
	// What the process remembers of Redis' denials is the word of Redis.
	if p.claim == 0 && res.Claim > 0 {
		s.begun += res.Claim
		if alone == len(all)-1 {
			s.away++
		}
	}
	p.claim = res.Claim
}

// bound is the most that may have been admitted, as docs/guarantees.md states it:
//
//	limit·(t_r + Σ claim_p·t_p) + burst·(1 + A + E + Σ claim_p·L_p)
func (s *sums) bound(limit limiter.Limit) int {
	rate := float64(limit.Rate().N) / limit.Rate().Per.Seconds()
	bursts := 1 + float64(s.away+s.emptied) + s.begun
	return int(rate*(s.reached.Seconds()+s.alone) + float64(limit.Burst())*bursts)
}
