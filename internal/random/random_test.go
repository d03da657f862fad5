package random

import (
	"testing"
	"time"
)

// TestOf: the numbers of SplitMix64 with the seed 0, as published.
func TestOf(t *testing.T) {
	for n, want := range []uint64{0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f, 0xf88bb8a8724c81ec} {
		if got := Of(uint64(n)); got != want {
			t.Errorf("%d: %x, want %x", n, got, want)
		}
	}
}

// TestRanges: in many draws each tenth of a range is met, and nothing beside it. That one is not met has
// a probability below 1e-40.
func TestRanges(t *testing.T) {
	const draws = 1000
	for name, c := range map[string]struct {
		draw     func() float64
		from, to float64
	}{
		"Float64": {Float64, 0, 1},
		"Uint64":  {func() float64 { return float64(Uint64()) }, 0, 1 << 64},
		"Below":   {func() float64 { return float64(Below(time.Hour)) }, 0, float64(time.Hour)},
		"About":   {func() float64 { return float64(About(time.Hour)) }, 0.9 * float64(time.Hour), 1.1 * float64(time.Hour)},
	} {
		var met [10]int
		for range draws {
			x := (c.draw() - c.from) / (c.to - c.from)
			if x < 0 || x > 1 {
				t.Fatalf("%s: at %v of its range", name, x)
			}
			met[min(9, int(x*10))]++
		}
		for i, n := range met {
			if n == 0 {
				t.Errorf("%s: nothing in tenth %d of its range", name, i)
			}
		}
	}
	for _, d := range []time.Duration{-1, 0, 1} {
		if got := Below(d); got != 0 {
			t.Errorf("below %d: %d", d, got)
		}
	}
}

// TestFloat64HasAllBits that a number between 0 and 1 can have: in many draws one is odd in 1/2^53.
func TestFloat64HasAllBits(t *testing.T) {
	for range 200 {
		if uint64(Float64()*(1<<53))%2 == 1 {
			return
		}
	}
	t.Error("the last bit is never set")
}
