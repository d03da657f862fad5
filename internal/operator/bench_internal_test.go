package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/sim"
	"github.com/holdfast-go/holdfast/limiter"
)

// TestRowOfABench: the rate, the median and the slowest hundredth, which part was late, and what one took of Redis.
func TestRowOfABench(t *testing.T) {
	took := func() (all []time.Duration) {
		for i := range 200 {
			all = append(all, time.Duration(200-i)*time.Millisecond)
		}
		return all
	}
	want := BenchRow{PerSecond: 50, Late: 0.25, P50: Duration(101 * time.Millisecond), P99: Duration(199 * time.Millisecond), CPU: Duration(10 * time.Millisecond)}
	if row := rowOf(took(), 50, 4*time.Second, time.Second, 3*time.Second); row != want {
		t.Errorf("%+v, want %+v", row, want)
	}
	want.CPU = 0
	for _, cpu := range [][2]time.Duration{{0, time.Second}, {time.Second, 0}, {2 * time.Second, time.Second}, {0, 0}} {
		if row := rowOf(took(), 50, 4*time.Second, cpu[0], cpu[1]); row != want {
			t.Errorf("%v: %+v, want %+v", cpu, row, want)
		}
	}
	one := BenchRow{PerSecond: 1, Late: 1, P50: Duration(time.Second), P99: Duration(time.Second)}
	if row := rowOf([]time.Duration{time.Second}, 1, time.Second, 0, 0); row != one {
		t.Errorf("%+v, want %+v", row, one)
	}
}

// hook answers commands in the place of a server, or before it: those that it does not handle go on.
type hook func(cmd redis.Cmder) (handled bool, err error)

func (hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		handled, err := h(cmd)
		if !handled {
			return next(ctx, cmd)
		}
		if err != nil {
			cmd.SetErr(err)
		}
		return err
	}
}

// TestUsedCPU: that of one server, for its users and for itself.
func TestUsedCPU(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}, HeartbeatFrequency: time.Hour})
	defer ring.Close()
	if got := (&Operator{rdb: ring}).cpu(t.Context()); got != 0 {
		t.Errorf("of several servers: %v", got)
	}
	for _, c := range []struct {
		text string
		err  error
		want time.Duration
	}{
		{"# CPU\r\nused_cpu_sys:0.25\r\nused_cpu_user:1.5\r\nused_cpu_sys_children:7\r\n", nil, 1750 * time.Millisecond},
		{"used_cpu_user:2", nil, 2 * time.Second}, {"", nil, 0}, {"used_cpu_user:2", errors.New("no"), 0},
	} {
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		defer rdb.Close()
		rdb.AddHook(hook(func(cmd redis.Cmder) (bool, error) {
			cmd.(*redis.StringCmd).SetVal(c.text)
			return true, c.err
		}))
		if got := (&Operator{rdb: rdb}).cpu(t.Context()); got != c.want {
			t.Errorf("%q, %v: %v, want %v", c.text, c.err, got, c.want)
		}
	}
}

// TestBenchOfALimit: all callers decide until the time is over, each at least once, and what Redis did not decide is late.
func TestBenchOfALimit(t *testing.T) {
	l := limiter.GCRA(limiter.PerSecond(1_000_000), 1_000_000)
	for _, c := range []struct {
		callers int
		each    time.Duration
		refused bool
		late    float64
	}{
		{1, -time.Millisecond, false, 0}, // the time was over when it began
		{1, 0, false, 0}, {3, 0, false, 0}, {1, 20 * time.Millisecond, false, 0}, {4, 20 * time.Millisecond, false, 0}, {2, 0, true, 1},
	} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			rdb := r.Client("a", redis.Options{MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true})
			defer rdb.Close()
			r.SetPath("a", func(p *sim.Path) { p.Refused = c.refused })
			began := time.Now()
			row, err := (&Operator{rdb: rdb}).bench(t.Context(), l, c.callers, c.each)
			took := time.Since(began)
			if err != nil || row.Algorithm != l.Algorithm() || row.Callers != c.callers || row.Late != c.late || row.P50 > row.P99 || took < c.each || took > c.each+10*time.Millisecond {
				t.Errorf("%+v: %+v in %v, %v", c, row, took, err)
			}
			// As many decisions are under way as there are callers.
			if n := row.PerSecond * time.Duration(row.P50).Seconds(); n < 0.4*float64(c.callers) || n > 1.3*float64(c.callers) {
				t.Errorf("%+v: %+v, %v at a time", c, row, n)
			}
			ended, end := context.WithCancel(t.Context())
			end()
			if _, err := (&Operator{rdb: rdb}).bench(ended, l, c.callers, c.each); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
}

// TestBenchOfAServer: every algorithm, alone and with others, and what that means.
func TestBenchOfAServer(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		rdb := r.Client("a", redis.Options{MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true})
		defer rdb.Close()
		o, err := New(rdb, "holdfast")
		if err != nil {
			t.Fatal(err)
		}
		for _, callers := range []int{1, 3} {
			b, err := o.Bench(t.Context(), 2*time.Millisecond, callers)
			if err != nil || b.Server != rdb.Options().Addr || b.RoundTrip <= 0 || b.Slowest < b.RoundTrip || !strings.Contains(b.Advice, "more than enough") {
				t.Fatalf("%+v, %v", b, err)
			}
			var want []string
			for _, kind := range algo.Kinds {
				for _, n := range slices.Compact([]int{1, callers}) {
					want = append(want, fmt.Sprintf("%v %d", kind, n))
				}
			}
			var got []string
			for _, row := range b.Rows {
				got = append(got, fmt.Sprintf("%s %d", row.Algorithm, row.Callers))
			}
			if slices.Sort(want); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
				t.Errorf("%v, want %v", got, want)
			}
		}
		r.SetPath("a", func(p *sim.Path) { p.Refused = true })
		if b, err := o.Bench(t.Context(), 2*time.Millisecond, 1); err == nil {
			t.Errorf("%+v", b)
		}
	})
}
