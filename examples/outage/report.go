package main

import (
	"fmt"
	"io"
	"time"

	"github.com/holdfast-go/holdfast/limiter"
)

// report is what happened, and what follows from it.
type report struct {
	limit           limiter.Limit
	budget          time.Duration
	length, slowest time.Duration
	workers         int
	outages         int64    // times that Redis lost its state
	transitions     int64    // changes between Redis and local, over all workers
	alone           [][]span // per worker, the times in which it decided locally
	admitted, apiCalls, errors,
	redis, local int64
}

type span struct{ from, to time.Duration }

// bound is the most that may have been admitted, as the README states it:
//
//	limit·(t_r + share·Σ t_p) + burst·(1 + E + share·T)
func (r *report) bound() int64 {
	reached, alone := r.times()
	share := 1 / float64(r.workers)
	rate := float64(r.limit.Rate().N) / r.limit.Rate().Per.Seconds()
	bursts := 1 + float64(r.outages) + share*float64(r.transitions)
	return int64(rate*(reached.Seconds()+share*alone.Seconds()) + float64(r.limit.Burst())*bursts)
}

// times returns for how long any worker reached Redis, and for how long workers
// decided locally, summed over them.
func (r *report) times() (reached, alone time.Duration) {
	const step = time.Millisecond
	for at := time.Duration(0); at < r.length; at += step {
		workers := 0
		for _, spans := range r.alone {
			for _, s := range spans {
				if s.from <= at && at < s.to {
					workers++
				}
			}
		}
		alone += step * time.Duration(workers)
		if workers < r.workers {
			reached += step
		}
	}
	return reached, alone
}

// print writes the verdict and returns whether every promise was kept.
func (r *report) print(w io.Writer) bool {
	// A decision on a loaded machine may be late by a scheduling delay.
	const late = 50 * time.Millisecond
	checks := []struct {
		ok    bool
		limit bool // of the limit
		text  string
	}{
		{r.errors == 0, false, fmt.Sprintf("%d errors seen by the workers", r.errors)},
		{r.slowest <= r.budget+late, false, fmt.Sprintf("slowest decision %v, with a budget of %v for Redis", r.slowest.Round(10*time.Microsecond), r.budget)},
		{r.admitted <= r.bound(), true, fmt.Sprintf("%d admitted in %.1f s (%.1f/s), at most %d by the documented bound", r.admitted, r.length.Seconds(), float64(r.admitted)/r.length.Seconds(), r.bound())},
		{r.outages == 0 || r.local > 0, false, fmt.Sprintf("%d decisions by Redis, %d locally, %d transitions", r.redis, r.local, r.transitions)},
		{r.apiCalls <= r.admitted, true, fmt.Sprintf("%d calls reached the API", r.apiCalls)},
	}
	fmt.Fprintln(w)
	held, all := true, true
	for _, c := range checks {
		mark := "ok  "
		if !c.ok {
			mark, all, held = "FAIL", false, held && !c.limit
		}
		fmt.Fprintf(w, "  %s  %s\n", mark, c.text)
	}
	if held {
		fmt.Fprintln(w, "\nThe limit held.")
	} else {
		fmt.Fprintln(w, "\nThe limit did NOT hold.")
	}
	return all
}
