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
	outages         int64 // times that Redis lost its state
	transitions     int64 // changes between Redis and local, over all workers
	admitted, apiCalls, errors,
	redis, local int64
}

// bound is the most that may have been admitted: the rate over the whole time,
// since the workers' shares add up to it, and a burst at the start, each time
// that Redis lost its state, and in each worker's share at each transition.
func (r *report) bound() int64 {
	rate := float64(r.limit.Rate().N) / r.limit.Rate().Per.Seconds()
	bursts := 1 + float64(r.outages) + float64(r.transitions)/float64(r.workers)
	return int64(rate*r.length.Seconds() + float64(r.limit.Burst())*bursts)
}

// print writes the verdict and returns whether every promise was kept.
func (r *report) print(w io.Writer) bool {
	// A decision on a loaded machine may be late by a scheduling delay.
	const late = 50 * time.Millisecond
	checks := []struct {
		ok   bool
		text string
	}{
		{r.errors == 0, fmt.Sprintf("%d errors seen by the workers", r.errors)},
		{r.slowest <= r.budget+late, fmt.Sprintf("slowest decision %v, with a budget of %v for Redis", r.slowest.Round(10*time.Microsecond), r.budget)},
		{r.admitted <= r.bound(), fmt.Sprintf("%d admitted in %.1f s (%.1f/s), at most %d by the documented bound", r.admitted, r.length.Seconds(), float64(r.admitted)/r.length.Seconds(), r.bound())},
		{r.outages == 0 || r.local > 0, fmt.Sprintf("%d decisions by Redis, %d locally, %d transitions", r.redis, r.local, r.transitions)},
		{r.apiCalls <= r.admitted, fmt.Sprintf("%d calls reached the API", r.apiCalls)},
	}
	fmt.Fprintln(w)
	held := true
	for _, c := range checks {
		mark := "ok  "
		if !c.ok {
			mark, held = "FAIL", false
		}
		fmt.Fprintf(w, "  %s  %s\n", mark, c.text)
	}
	if held {
		fmt.Fprintln(w, "\nThe limit held.")
	} else {
		fmt.Fprintln(w, "\nThe limit did NOT hold.")
	}
	return held
}
