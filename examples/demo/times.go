package main

import (
	"context"
	"slices"
	"time"
)

// times are how long things took, in milliseconds: those of the past seconds, and last those
// of the current one.
type times [][]float64

// note adds one to the current second.
func (t *times) note(took time.Duration) {
	if len(*t) == 0 {
		*t = times{nil}
	}
	now := len(*t) - 1
	(*t)[now] = append((*t)[now], ms(took))
}

// cut ends the current second, and returns the time that 99 of 100 in it did not exceed, and
// its longest.
func (t *times) cut() (p99, longest float64) {
	if len(*t) > 0 {
		p99, longest = percentile((*t)[len(*t)-1])
	}
	*t = append(*t, nil)
	*t = (*t)[max(0, len(*t)-minute-1):]
	return p99, longest
}

// p99 is that of all seconds.
func (t *times) p99() float64 {
	p, _ := percentile(slices.Concat(*t...))
	return p
}

func percentile(took []float64) (p99, longest float64) {
	if len(took) == 0 {
		return 0, 0
	}
	sorted := slices.Sorted(slices.Values(took))
	return sorted[(len(sorted)*99+99)/100-1], sorted[len(sorted)-1]
}

// late measures the machine itself until ctx ends: how late a timer fires that waits for
// nothing but its time. What decisions take beyond the budget is compared with it.
func late(ctx context.Context, note func(time.Duration)) {
	const wait = 5 * time.Millisecond
	for {
		start := time.Now()
		if sleepUntil(ctx, start.Add(wait)) != nil {
			return
		}
		note(max(0, time.Since(start)-wait))
	}
}
