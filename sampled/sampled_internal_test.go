package sampled

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
)

// TestSampledClosedComesBack: an outage that outlasts the interest in every key, after
// which nothing runs any more, does not outlast itself.
func TestSampledClosedComesBack(t *testing.T) {
	srv := redistest.Start(t)
	s, err := New(redistest.Client(t, srv), limiter.PerSecond(100), WithInterval(100*time.Millisecond),
		limiter.WithFallback(fallback.Closed), limiter.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if _, err := s.Allow(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	if err := srv.Freeze(); err != nil {
		t.Fatal(err)
	}
	redistest.Until(t, "nobody is admitted", func() bool {
		_, err := s.Allow(t.Context(), "k")
		return errors.Is(err, limiter.ErrUnavailable)
	})
	redistest.Until(t, "nothing runs any more", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.last.IsZero() && s.table.count.Load() == 0
	})
	if err := srv.Thaw(); err != nil {
		t.Fatal(err)
	}
	redistest.Until(t, "Redis is known again", func() bool {
		res, err := s.Allow(t.Context(), "k")
		return err == nil && res.Source == limiter.SourceSampled
	})
}

// turning returns a Sampled whose intervals the test ends.
func turning(t *testing.T, rdb redis.UniversalClient, rate limiter.Rate, opts ...Option) *Limiter {
	t.Helper()
	s, err := New(rdb, rate, append([]Option{WithInterval(time.Minute), limiter.WithBudget(10 * time.Second), limiter.WithLogger(slog.New(slog.DiscardHandler))}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestSampledKeepsARareRate: a rate below one unit in an interval is kept, also for a
// key that is asked for so rarely that it is forgotten in between, and without Redis.
func TestSampledKeepsARareRate(t *testing.T) {
	rdb := redistest.Client(t, redistest.Start(t))
	nowhere := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = nowhere.Close() })
	for name, idle := range map[string]int{"always": 1, "now and then": 3, "rarely": idleIntervals + 1} {
		for _, client := range []*redis.Client{rdb, nowhere} {
			t.Run(fmt.Sprint(name, ", Redis ", client == rdb), func(t *testing.T) {
				s := turning(t, client, limiter.Per(1, 24*time.Hour), limiter.WithPrefix(strings.ReplaceAll(name, " ", "-")))
				admitted := 0
				for range 40 {
					res, err := s.Allow(t.Context(), "k")
					if err != nil {
						t.Fatal(err)
					}
					if res.Allowed {
						admitted++
					}
					for range idle {
						s.turn(t.Context(), s.interval)
					}
				}
				if admitted != 1 {
					t.Errorf("%d of 40 admitted at one per day", admitted)
				}
			})
		}
	}
}

// fails is a client whose scripts fail when they are told to.
type fails struct {
	*redis.Client
	scripts atomic.Int64
	from    atomic.Int64 // the number of the first script that fails; 0 is none
	until   atomic.Int64 // and of the first one after that which does not
}

func (f *fails) Process(ctx context.Context, cmd redis.Cmder) error {
	if strings.HasPrefix(cmd.Name(), "eval") {
		if n := f.scripts.Add(1); n >= f.from.Load() && n < f.until.Load() {
			err := fmt.Errorf("no connection")
			cmd.SetErr(err)
			return err
		}
	}
	return f.Client.Process(ctx, cmd)
}

// TestReportsInParts: however many keys are followed, no call has more than a few, and
// one that fails is a matter of its keys alone.
func TestReportsInParts(t *testing.T) {
	const parts = 5
	const keys = (parts-1)*lua.MaxAsked + 1
	srv := redistest.Start(t)
	rdb := &fails{Client: redistest.Client(t, srv)}
	s := turning(t, rdb, limiter.PerSecond(100), WithTopKeys(keys))
	ask := func() {
		t.Helper()
		for i := range keys {
			if _, err := s.Allow(t.Context(), fmt.Sprint("k", i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	byShare := func() (n int) {
		for _, k := range s.table.all() {
			if k.local.Load() {
				n++
			}
		}
		return n
	}
	ask()
	redistest.Until(t, "the process is registered", func() bool { return s.reporter.reported.Load() > 0 })
	before := rdb.scripts.Load()
	rdb.from.Store(before + 3)
	rdb.until.Store(before + 4)
	s.turn(t.Context(), s.interval)
	if n := rdb.scripts.Load() - before; n != parts {
		t.Errorf("%d reports for %d keys", n, keys)
	}
	if n := byShare(); n != lua.MaxAsked {
		t.Errorf("%d keys are decided by the share after a report of %d failed", n, lua.MaxAsked)
	}
	ask()
	s.turn(t.Context(), s.interval)
	if n := byShare(); n != 0 {
		t.Errorf("%d keys are decided by the share", n)
	}
	if n := rdb.HLen(t.Context(), "holdfast:v1:sampled:{all}").Val(); n != 1+keys { // and the era
		t.Errorf("%d keys were reported of %d", n, keys)
	}
	// What was known holds through a report that fails.
	rdb.from.Store(rdb.scripts.Load() + 2)
	rdb.until.Store(rdb.scripts.Load() + 4)
	ask()
	s.turn(t.Context(), s.interval)
	if n := byShare(); n != 0 {
		t.Errorf("%d keys are decided by the share after failures", n)
	}
	// And it leaves in parts, too.
	before = rdb.scripts.Load()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n := rdb.scripts.Load() - before; n < parts {
		t.Errorf("%d calls to leave with %d keys", n, keys)
	}
	if left := rdb.Keys(t.Context(), "*").Val(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestLargeFleetsReportRarely: a process of a large fleet reports so rarely that the fleet makes 2,500 calls a
// second, keeps its part of the limit between two reports, and counts as alive for longer than three of these.
func TestLargeFleetsReportRarely(t *testing.T) {
	srv := redistest.Start(t)
	rdb := &fails{Client: redistest.Client(t, srv)}
	rdb.from.Store(math.MaxInt64)
	s, err := New(rdb, limiter.PerSecond(10_000_000), WithInterval(100*time.Millisecond), WithTopKeys(2*lua.MaxAsked),
		limiter.WithBudget(10*time.Second), limiter.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	s.ticks.End()
	t.Cleanup(func() { _ = s.Close() })
	allow := func() {
		t.Helper()
		if res, err := s.Allow(t.Context(), "k"); err != nil || !res.Allowed {
			t.Errorf("%+v, %v", res, err)
		}
	}
	allow()
	redistest.Until(t, "the process is registered", func() bool { return s.reporter.reported.Load() > 0 })
	for _, c := range []struct {
		n, calls    int64
		least, most time.Duration
	}{
		{250, 1, 100 * time.Millisecond, 100 * time.Millisecond}, {10_000, 1, 4 * time.Second, 5 * time.Second},
		{100_000, 1, 40 * time.Second, 50 * time.Second}, {100_000, 3, 120 * time.Second, 150 * time.Second},
		{1_000_000, 1, 200 * time.Second, 250 * time.Second},
	} {
		s.redis.Counted(c.n)
		s.reporter.calls.Store(c.calls)
		if least, most := s.reporter.pause(); least != c.least || most != c.most {
			t.Errorf("%d processes, %d calls: a report every %v to %v", c.n, c.calls, least, most)
		}
	}
	s.reporter.calls.Store(1)
	s.reporter.next.Store(0)
	s.turn(t.Context(), s.interval)
	before := rdb.scripts.Load()
	for range 20 {
		allow()
		s.turn(t.Context(), s.interval)
	}
	if n := rdb.scripts.Load() - before; n != 0 {
		t.Errorf("%d calls within two seconds", n)
	}
	if life := rdb.ZScore(t.Context(), "holdfast:v1:sampled:{all}:p", fmt.Sprint(s.reporter.number.Load())).Val()/1e6 - float64(time.Now().Unix()); life < 600 || life > 900 {
		t.Errorf("it lives for %v s", life)
	}
	s.reporter.next.Store(0)
	s.turn(t.Context(), s.interval)
	if n := rdb.scripts.Load() - before; n != 1 {
		t.Errorf("%d calls when a report is due", n)
	}
}

// TestChoose: candidates that are asked for at least twice as much take the place of the
// keys that are asked for least, the greatest of them first; idle keys go.
func TestChoose(t *testing.T) {
	s := unreachable(t, WithTopKeys(5))
	own := map[*sample]float64{}
	for _, n := range []int{30, 10, 50, 20, 40} {
		if _, err := s.Allow(t.Context(), fmt.Sprint("own", n)); err != nil {
			t.Fatal(err)
		}
	}
	all := s.table.all()
	for _, k := range all {
		var n float64
		if _, err := fmt.Sscanf(k.key, "own%g", &n); err != nil {
			t.Fatal(err)
		}
		own[k] = n
	}
	_, h := s.table.find("another")
	for i, n := range []int64{39, 19, 40, 300, 38} {
		s.candidates.Load().Add(h+uint64(i)+1, fmt.Sprint("candidate", n), n)
	}
	names := func(keys []*sample) (out []string) {
		for _, k := range keys {
			out = append(out, k.key)
		}
		slices.Sort(out)
		return out
	}
	// The counts are of one in so many calls, so the scale is that.
	kept, gone := s.choose(all, own, 1./candidateEvery)
	if got := names(gone); !slices.Equal(got, []string{"own10", "own20"}) {
		t.Errorf("replaced: %v", got)
	}
	if got := names(kept); !slices.Equal(got, []string{"candidate300", "candidate40", "own30", "own40", "own50"}) {
		t.Errorf("kept: %v", got)
	}
	for _, k := range kept {
		var n float64
		if _, err := fmt.Sscanf(strings.TrimLeft(k.key, "acdeinotw"), "%g", &n); err != nil || own[k] != n {
			t.Errorf("%s is asked for %v, %v", k.key, own[k], err)
		}
	}
	if s.table.count.Load() != 5 {
		t.Errorf("%d keys are followed", s.table.count.Load())
	}
	for _, k := range kept {
		if k.key == "own50" {
			k.idle = idleIntervals
		}
	}
	kept, gone = s.choose(kept, own, 1)
	if !slices.Equal(names(gone), []string{"own50"}) || len(kept) != 4 {
		t.Errorf("kept %v, gone %v", names(kept), names(gone))
	}
	// A place that is free is for any candidate.
	s.candidates.Load().Add(h, "another", 1)
	if kept, gone = s.choose(kept, own, 1./candidateEvery); len(gone) > 0 || !slices.Contains(names(kept), "another") {
		t.Errorf("kept %v, gone %v", names(kept), names(gone))
	}
}

// TestDroppedKeysAreNotFound: a caller that has found a key and stores it for the next one
// while the key is dropped must not bring it back, since nothing would fill its units again.
func TestDroppedKeysAreNotFound(t *testing.T) {
	table := sampleTable{seed: maphash.MakeSeed(), max: 1}
	k, _ := table.add("key", func(*sample) {})
	_, h := table.find("key")
	table.drop(k)
	table.remember(k, h)
	if again, _ := table.find("key"); again != nil {
		t.Error("a key was found after it was dropped")
	}
}
