package operator

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/calendar"
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
				if !p.Kind.Windowed() {
					s.params.Cap = p.Cap
				}
				s.Expires = micros(19 * sec)
				s.describe(&state, at, q)
				known := q.Limit == l || !p.Kind.Windowed()
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
				if *s.Remaining != left || left == 0 && *s.RetryAfter != micros(denied.RetryAfter) || left > 0 && *s.RetryAfter != 0 || s.Limit != text && (p.Kind.Windowed() || s.Limit != fmt.Sprintf("%v 2/1s burst 10", p.Kind)) {
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

// TestParamsOfCalendars: a limit of a calendar is compared with the shortest unit of its kind, which its states have.
func TestParamsOfCalendars(t *testing.T) {
	for i, unit := range []calendar.Unit{calendar.Day, calendar.Week, calendar.Month, calendar.Year} {
		l := limiter.Calendar(10, unit, time.UTC)
		if p, err := paramsOf(l); err != nil || p.Den != algo.Shortest[i] || p.Cap != 10 || !followsCalendar(l) {
			t.Errorf("%v: %+v, %v", unit, p, err)
		}
	}
	plain := limiter.FixedWindow(limiter.Per(10, 7*24*time.Hour))
	if p, err := paramsOf(plain); err != nil || p.Den != (7*24*time.Hour).Microseconds() || followsCalendar(plain) {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestDescribeAtTheBorders: a state that was blocked and never used, one of the first microsecond, and those with as much as
// a state can have.
func TestDescribeAtTheBorders(t *testing.T) {
	const now = 1_760_000_000_000_000
	for _, kind := range algo.Kinds {
		s := State{kind: kind, params: algo.Params{Kind: kind}}
		s.describe(&algo.State{Until: now + 5, Length: 5}, now, Question{})
		if s.Rate != "" || s.Limit != "" || s.Used != 0 || s.Remaining != nil || s.ResetAfter != s.BlockedFor || s.Since != nil || s.BlockedFor != micros(5) {
			t.Errorf("%v was never used: %+v", kind, s)
		}
	}
	s := State{kind: algo.GCRA, params: algo.Params{Kind: algo.GCRA, Num: 1, Den: 1_000_000}}
	if s.describe(&algo.State{Birth: 1, At: now}, now, Question{}); s.Since == nil || s.Since.UnixMicro() != 1 {
		t.Errorf("%+v", s)
	}
	if s.describe(&algo.State{At: now}, now, Question{}); s.Since.UnixMicro() != 1 {
		t.Errorf("no time of birth is one: %+v", s)
	}
	// A bucket of one unit is known by its state.
	s = State{kind: algo.GCRA, params: algo.Params{Kind: algo.GCRA, Num: 1, Den: 1_000_000, Cap: 1}}
	if s.describe(&algo.State{At: now}, now, Question{}); s.Remaining == nil || *s.Remaining != 1 || s.Limit == "" {
		t.Errorf("%+v", s)
	}
	// One unit is left, so that nobody has to wait; and in a window of a calendar none is used in the instant in which it ends.
	l := limiter.FixedWindow(limiter.Per(10, 20*time.Second))
	s = State{kind: algo.FixedWindow, params: algo.Params{Kind: algo.FixedWindow, Num: 1, Den: 20_000_000}}
	if s.describe(&algo.State{At: now + 20_000_000, V: 9}, now, Question{Limit: l}); *s.Remaining != 1 || *s.RetryAfter != 0 || s.Used != 9 {
		t.Errorf("%+v", s)
	}
	for ahead, used := range map[int64]int64{-1: 0, 0: 0, 1: 9} {
		s = State{kind: algo.FixedWindow, params: algo.Params{Kind: algo.FixedWindow, Num: 1, Den: algo.Shortest[0]}}
		s.describe(&algo.State{At: now + ahead, V: 9}, now, Question{})
		if s.Used != used || s.Rate != "window of a calendar day, or 16h0m0s" {
			t.Errorf("it ends in %d µs: %+v", ahead, s)
		}
		// A limit without a calendar has such a window, too.
		s = State{kind: algo.FixedWindow, params: algo.Params{Kind: algo.FixedWindow, Num: 1, Den: algo.Shortest[0]}}
		s.describe(&algo.State{At: now + 3_600_000_000, V: 9}, now, Question{Limit: limiter.FixedWindow(limiter.Per(10, 16*time.Hour))})
		p := asksFor(t, limiter.FixedWindow(limiter.Per(10, 16*time.Hour)))
		if _, end := p.Bounds(now); s.Used != 9 || s.ResetAfter != micros(end-now) {
			t.Errorf("%+v, it ends in %d µs", s, end-now)
		}
	}
	// What a state of a window, and of a bucket, can hold under the longest period: more than half of what can be said exactly.
	for _, kind := range []algo.Kind{algo.FixedWindow, algo.SlidingWindowCounter} {
		s = State{kind: kind, params: algo.Params{Kind: kind, Num: 1, Den: algo.MaxPeriod}}
		if s.describe(&algo.State{At: now + algo.MaxPeriod, V: 200}, now, Question{}); s.Used != 200 {
			t.Errorf("%v: %+v", kind, s)
		}
	}
}

// TestParamsForABlock: those of the state, with room for what it holds, or such that expire late where it has none.
func TestParamsForABlock(t *testing.T) {
	for i, c := range []struct {
		of   algo.Params
		want [3]int64
	}{
		{algo.Params{Num: 3, Den: 4, Cap: 5}, [3]int64{3, 4, 5}}, {algo.Params{Num: 1, Den: 1, Cap: 1}, [3]int64{1, 1, 1}},
		{algo.Params{Num: 3, Den: 1_000_000}, [3]int64{3, 1_000_000, algo.MaxExact / 4 / 1_000_000}}, {algo.Params{Num: 1, Den: algo.MaxExact}, [3]int64{1, algo.MaxExact, 1}},
	} {
		c.of.Kind = algo.GCRA
		s := State{kind: algo.GCRA, params: c.of}
		if p := s.forBlock(); p.Kind != algo.GCRA || [3]int64{p.Num, p.Den, p.Cap} != c.want {
			t.Errorf("%d: %+v", i, p)
		}
	}
	for _, of := range []algo.Params{{}, {Num: 1}, {Den: 1}} {
		s := State{kind: algo.GCRA, params: of}
		if p := s.forBlock(); p.Num != 1 || p.Den != 24*3600*1_000_000 || p.Cap != 1 {
			t.Errorf("%+v: %+v", of, p)
		}
	}
}

func asksFor(t *testing.T, l limiter.Limit) algo.Params {
	t.Helper()
	p, err := paramsOf(l)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
