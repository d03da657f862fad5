package operator

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/limiter"
)

// TestRates: as people say them, in the shortest of the usual periods that leaves a whole number.
func TestRates(t *testing.T) {
	const day = 24 * 3600 * 1_000_000
	for _, c := range []struct {
		num, den int64
		want     string
	}{
		{100, 1_000_000, "100/1s"}, {1, 1_000_000, "1/1s"}, {1, 10_000, "100/1s"}, {1, 60_000_000, "1/1m"}, {7, 120_000_000, "210/1h"}, {1, day, "1/24h"}, {1, 7 * day, "1/168h"},
		{3, 7, "3/7µs"}, {0, 1, ""}, {1, 0, ""}, {-1, 1, ""}, {algo.MaxExact / 1_000_000, 1, "9007199254000000/1s"}, {algo.MaxExact/1_000_000 + 1, 1, "9007199255/1µs"},
	} {
		if got := rateOf(c.num, c.den); got != c.want {
			t.Errorf("%d in %d µs: %s, want %s", c.num, c.den, got, c.want)
		}
	}
}

// TestDescribe: of each algorithm what a state says by itself, by the limit that is asked about, by a part of it, and by a
// limit that a process publishes, which may be another one.
func TestDescribe(t *testing.T) {
	const now, sec = 1_760_000_000_000_000, 1_000_000
	limits := map[limiter.Limit]string{ // and the rate that the state says
		limiter.FixedWindow(limiter.Per(10, 20*time.Second)): "window 20s", limiter.SlidingWindowCounter(limiter.Per(10, 20*time.Second)): "window 20s", limiter.SlidingWindowLog(limiter.Per(10, 20*time.Second)): "",
		limiter.TokenBucket(limiter.PerSecond(2), 10): "2/1s", limiter.LeakyBucket(limiter.PerSecond(2), 10): "2/1s", limiter.GCRA(limiter.PerSecond(2), 10): "2/1s",
	}
	for l, rate := range limits {
		p, err := paramsOf(l)
		if err != nil {
			t.Fatal(err)
		}
		for _, blocked := range []bool{false, true} {
			var state algo.State
			for i := range int64(10) { // one in 100 ms
				algo.Step(p, &state, now+i*sec/10, 1)
			}
			at := int64(now + sec)
			if blocked {
				algo.Block(&state, at, 30*sec)
			}
			want := algo.Step(p, &algo.State{At: state.At, V: state.V, W: state.W, Num: state.Num, Cap: state.Cap, Birth: state.Birth, Log: state.Log}, at, 0)
			denied := algo.Decide(p, &algo.State{At: state.At, V: state.V, W: state.W, Num: state.Num, Cap: state.Cap, Birth: state.Birth, Until: state.Until, Length: state.Length, Log: state.Log}, at, 1)
			for _, q := range []Question{{Limit: l}, {}, {Limit: l, published: true}, {Limit: limiter.TokenBucket(limiter.PerSecond(3), 10), published: true}} {
				s := State{kind: p.Kind, params: algo.Params{Kind: p.Kind, Num: p.Num, Den: p.Den}}
				if p.Kind == algo.TokenBucket {
					s.params.Cap = p.Cap
				}
				s.Expires = micros(19 * sec)
				s.describe(&state, at, q)
				known := q.Limit == l || p.Kind == algo.TokenBucket
				if s.Rate != rate || s.Used != 10-want.Remaining || (s.Remaining != nil) != known || (s.BlockedFor == micros(30*sec)) != blocked {
					t.Errorf("%v of %+v, blocked %v: %+v", l, q, blocked, s)
				}
				if reset := max(micros(want.ResetAfter), s.BlockedFor); known && s.ResetAfter != reset {
					t.Errorf("%v of %+v, blocked %v: reset in %v, want %v", l, q, blocked, time.Duration(s.ResetAfter), time.Duration(reset))
				}
				if !known {
					if p.Kind == algo.SlidingWindowLog && s.ResetAfter != max(s.BlockedFor, micros(18*sec)) || s.Limit != "" || s.RetryAfter != nil {
						t.Errorf("%v of %+v, blocked %v: %+v", l, q, blocked, s)
					}
					continue
				}
				left, text := want.Remaining, l.String()
				if blocked {
					left = 0
				}
				if *s.Remaining != left || left == 0 && *s.RetryAfter != micros(denied.RetryAfter) || left > 0 && *s.RetryAfter != 0 || s.Limit != text && (p.Kind != algo.TokenBucket || s.Limit != "token bucket 2/1s burst 10") {
					t.Errorf("%v of %+v, blocked %v: %+v, %v, %v, want %+v, %+v", l, q, blocked, s, *s.Remaining, time.Duration(*s.RetryAfter), want, denied)
				}
			}
		}
	}
	// A part of a split key has its part of the limit, if the number of the parts is known.
	l, one := limiter.FixedWindow(limiter.Per(10, 20*time.Second)), 1
	for shards, limit := range map[int]string{0: "", 1: "", 2: "a part of fixed window 10/20s"} {
		s := State{kind: algo.FixedWindow, params: algo.Params{Kind: algo.FixedWindow, Num: 1, Den: 20 * sec}, Part: &one}
		s.describe(&algo.State{At: now + 20*sec, V: 2}, now, Question{Limit: l, Shards: shards})
		if s.Limit != limit || s.Used != 2 || shards == 2 && (s.Remaining == nil || *s.Remaining != 3) {
			t.Errorf("%d: %+v", shards, s)
		}
	}
}

// TestWindowOfALog: at least as long as the key lives after its newest unit.
func TestWindowOfALog(t *testing.T) {
	log := func(at int64) *algo.State { return &algo.State{Log: []algo.Cell{{T: at, V: 1}}} }
	for i, c := range []struct {
		s    *algo.State
		ttl  time.Duration
		want int64
	}{
		{log(90), 30 * time.Microsecond, 40}, {&algo.State{}, 30 * time.Microsecond, 30}, {log(100), -1, 1}, {log(100), 0, 1}, {log(90), 400 * 24 * time.Hour, algo.MaxPeriod},
	} {
		if got := windowOfLog(c.s, 100, c.ttl); got != c.want {
			t.Errorf("%d: %d, want %d", i, got, c.want)
		}
	}
}

// clocks is a hook in the place of a server whose clock is ahead, and whose round trips take a millisecond more or less each.
type clocks struct {
	n     int
	ahead time.Duration
}

func (c *clocks) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *clocks) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (c *clocks) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		c.n++
		trip := time.Duration(1+(c.n*7)%pings) * time.Millisecond
		time.Sleep(trip / 2)
		cmd.(*redis.TimeCmd).SetVal(time.Now().Add(c.ahead))
		time.Sleep(trip - trip/2)
		return nil
	}
}

// TestRoundTrips: their median and the longest, and by how much the clock of the server is ahead.
func TestRoundTrips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		defer rdb.Close()
		rdb.AddHook(&clocks{ahead: time.Hour})
		var f facts
		if err := f.measure(t.Context(), rdb); err != nil {
			t.Fatal(err)
		}
		if f.P50 != Duration(16*time.Millisecond) || f.P99 != Duration(30*time.Millisecond) || f.Clock != Duration(time.Hour) {
			t.Errorf("%+v", f.Server)
		}
	})
}
