//go:build !race

package lua_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// TestTraceServerClock: mixed keys, costs, pauses and changes of limit, by the
// server's clock.
func TestTraceServerClock(t *testing.T) {
	t.Parallel()
	for _, kind := range algo.Kinds {
		t.Run(kind.Short(), func(t *testing.T) {
			rdb := newClient(t)
			tr := newTracer(t, rdb)
			limits := map[string]algo.Params{}
			for range *traceSteps {
				key := fmt.Sprint("k", tr.rng.IntN(8))
				p, ok := limits[key]
				if !ok || tr.rng.IntN(100) == 0 {
					p = tr.limit(kind, 100*time.Microsecond, 20*time.Millisecond)
					limits[key] = p
				}
				tr.step(p, key, 0, tr.cost(p))
				if tr.rng.IntN(400) == 0 {
					pause(time.Duration(tr.rng.IntN(5000)) * time.Microsecond)
				}
				if tr.rng.IntN(500) == 0 {
					tr.blockFor(p, key, 0, 1+tr.rng.Int64N(5000))
				}
				if tr.rng.IntN(500) == 0 {
					tr.reset(p, key)
				}
			}
		})
	}
}

// TestTraceFunctions: the same scripts as functions give the same answers.
func TestTraceFunctions(t *testing.T) {
	t.Parallel()
	redistest.Since(t, 7, 0, "functions")
	for _, kind := range algo.Kinds {
		t.Run(kind.Short(), func(t *testing.T) {
			rdb := newClient(t)
			tr := newTracer(t, rdb)
			tr.lua.UseFunctions(rdb)
			p := tr.limit(kind, 100*time.Microsecond, 20*time.Millisecond)
			for i := range *traceSteps / 10 {
				if i%100 == 0 {
					p = tr.limit(kind, 100*time.Microsecond, 20*time.Millisecond)
				}
				tr.step(p, fmt.Sprint("k", i/100), 0, tr.cost(p))
			}
			if used, err := tr.lua.Functions(); !used || err != nil {
				t.Errorf("functions were given up: %v", err)
			}
		})
	}
}

// TestTraceGivenClock: the same on a clock that jumps, forward and back.
func TestTraceGivenClock(t *testing.T) {
	t.Parallel()
	for _, kind := range algo.Kinds {
		t.Run(kind.Short(), func(t *testing.T) {
			rdb := newClient(t)
			tr := newTracer(t, rdb)
			now := int64(1_760_000_000_123_456)
			p := algo.Params{}
			for i := range *traceSteps {
				// A key lives for few steps, so that no TTL fires on the real
				// clock while the given one stands still.
				key := fmt.Sprint("k", i/200)
				if i%200 == 0 || tr.rng.IntN(50) == 0 {
					p = tr.limit(kind, 10*time.Minute, 10*24*time.Hour)
				}
				span := p.Den
				if !kind.Windowed() {
					span = p.Den * (1 + p.Cap) / p.Num
				}
				if now > 4_000_000_000_000_000 {
					now = 1_760_000_000_123_456
				}
				switch r := tr.rng.IntN(20); {
				case r == 0:
					now -= tr.rng.Int64N(min(4*span, now/2))
				case r < 4:
					now += tr.rng.Int64N(2 * span)
				case r < 16:
					now += tr.rng.Int64N(span/p.Cap + 1)
				}
				tr.step(p, key, now, tr.cost(p))
				if tr.rng.IntN(100) == 0 {
					tr.blockFor(p, key, now, 1+tr.rng.Int64N(2*span))
				}
			}
		})
	}
}

func (tr *tracer) cost(p algo.Params) int64 {
	switch tr.rng.IntN(10) {
	case 0:
		return 0
	case 1, 2:
		return tr.rng.Int64N(p.Cap-p.Keep) + 1
	case 3:
		return -tr.rng.Int64N(2*p.Cap) - 1
	}
	return 1
}

// pause spins: a sleep is too coarse for windows of microseconds.
func pause(d time.Duration) {
	for start := time.Now(); time.Since(start) < d; {
	}
}
