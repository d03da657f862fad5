//go:debug randseednop=0

package sim

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func TestMain(m *testing.M) {
	redis.SetLogger(silent{})
	runtime.GOMAXPROCS(1) // so that what happens at one time happens in one order
	m.Run()
}

func TestSimulate(t *testing.T) {
	seed, _ := strconv.ParseUint(os.Getenv("SEED"), 10, 64)
	length := 10 * time.Second
	if d, err := time.ParseDuration(os.Getenv("SIM")); err == nil {
		length = d
	}
	began := time.Now()
	total, decisions, worlds, last := time.Duration(0), 0, 0, uint64(0)
	for time.Since(began) < length {
		seed++
		rep := Run(t, Draw(seed), os.Getenv("TRACE") != "")
		worlds++
		total += rep.Simulated
		decisions += rep.Decisions
		last = rep.Hash
		for _, line := range rep.Trace {
			t.Log(line)
		}
		if len(rep.Violations) > 0 {
			for _, v := range rep.Violations {
				t.Errorf("seed %d: %v", seed, v)
			}
			t.Logf("plan %+v", rep.Plan)
			if os.Getenv("SIM_STOP") != "" {
				break
			}
		}
		if os.Getenv("ONE") != "" {
			break
		}
	}
	t.Logf("hash %x", last)
	t.Logf("%d worlds, %.1f process-hours, %d decisions in %v", worlds, total.Hours(), decisions, time.Since(began))
}

// TestSameSeedSameTrace: a seed can be replayed.
func TestSameSeedSameTrace(t *testing.T) {
	for seed := range uint64(60) {
		p := Draw(seed + 100)
		p.Life = min(p.Life, 90*time.Second)
		first, second := Run(t, p, true), Run(t, p, true)
		if first.Hash == second.Hash {
			continue
		}
		for i := range first.Trace {
			if i >= len(second.Trace) || first.Trace[i] != second.Trace[i] {
				t.Errorf("seed %d: line %d of the trace differs:\n%s\n%s", p.Seed, i, first.Trace[i], second.Trace[min(i, len(second.Trace)-1)])
				break
			}
		}
	}
}
