package algo

import (
	"strconv"
	"time"
)

// Duration converts microseconds, up to the 292 years that fit.
func Duration(us int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Microsecond)
	return time.Duration(min(us, most)) * time.Microsecond
}

// Micros converts to microseconds, rounded up.
func Micros(d time.Duration) int64 {
	return int64((d + time.Microsecond - 1) / time.Microsecond)
}

// micros prints microseconds as a duration in messages.
func micros(us int64) string {
	if us > 1<<62/1000 || us < -1<<62/1000 {
		return strconv.FormatInt(us, 10) + "µs"
	}
	return (time.Duration(us) * time.Microsecond).String()
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// ceilDiv is ⌈a/b⌉ for a ≥ 0, b > 0.
func ceilDiv(a, b int64) int64 {
	if b == 1 {
		return a // of most rates; a division takes a good part of a step
	}
	return (a + b - 1) / b
}

// floorDiv rounds down, also below 0.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// ceilShare rounds up, but takes a value within a billionth of an integer for
// that integer: 1/k is not exact in binary, k is meant.
func ceilShare(x float64) int64 {
	n := int64(x)
	if x-float64(n) > x*1e-12+1e-9 {
		n++
	}
	return n
}
