package sim

import (
	"cmp"
	"slices"
	"time"
)

// gaps is how often none of the spans covers the time from one moment to another.
func gaps(spans [][2]time.Duration, from, to time.Duration) (n int) {
	slices.SortFunc(spans, func(a, b [2]time.Duration) int { return cmp.Compare(a[0], b[0]) })
	end := from
	for _, s := range append(spans, [2]time.Duration{to, to}) {
		if s[0] > end {
			n++
		}
		end = max(end, s[1])
	}
	return n
}

// union is how long at least one of the spans lasts.
func union(spans [][2]time.Duration) (d time.Duration) {
	slices.SortFunc(spans, func(a, b [2]time.Duration) int { return cmp.Compare(a[0], b[0]) })
	var end time.Duration
	for i, s := range spans {
		if i == 0 || s[0] > end {
			d += s[1] - s[0]
			end = s[1]
		} else if s[1] > end {
			d += s[1] - end
			end = s[1]
		}
	}
	return d
}
