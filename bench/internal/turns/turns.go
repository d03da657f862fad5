// Package turns measures contenders that take turns, so that other load on the machine
// affects all of them equally.
package turns

import (
	"fmt"
	"runtime"
	"slices"
	"time"
)

// Figures are per request.
type Figures struct{ NS, Allocs, Bytes float64 }

// Medians lets all take a turn in each round, in an order that moves on by one, after
// one round in which they warm up.
func Medians(names []string, rounds int, turn func(i int) (Figures, error)) ([]Figures, error) {
	all := make([][]Figures, len(names))
	for round := range rounds + 1 {
		for i := range names {
			i = (i + round) % len(names)
			f, err := turn(i)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", names[i], err)
			}
			if round > 0 {
				all[i] = append(all[i], f)
			}
		}
	}
	middle := make([]Figures, len(names))
	for i, fs := range all {
		middle[i] = Figures{
			median(fs, func(f Figures) float64 { return f.NS }),
			median(fs, func(f Figures) float64 { return f.Allocs }),
			median(fs, func(f Figures) float64 { return f.Bytes }),
		}
	}
	return middle, nil
}

func median(fs []Figures, of func(Figures) float64) float64 {
	var vs []float64
	for _, f := range fs {
		vs = append(vs, of(f))
	}
	slices.Sort(vs)
	return vs[len(vs)/2]
}

// Cost is what f took, divided by n.
func Cost(n int, f func() error) (Figures, error) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	start := time.Now()
	if err := f(); err != nil {
		return Figures{}, err
	}
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	per := float64(n)
	return Figures{
		float64(took) / per,
		float64(after.Mallocs-before.Mallocs) / per,
		float64(after.TotalAlloc-before.TotalAlloc) / per,
	}, nil
}
