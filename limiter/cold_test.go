package limiter_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/sampled"
	"github.com/holdfast-go/holdfast/semaphore"
)

// TestColdStart: processes that start while Redis is down admit at most the limit together,
// if they are as many as was expected, and the part of it that is shared equally.
func TestColdStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		processes int
		opts      []limiter.Option
		most      int
		origin    string
	}{
		"10 by default":            {10, nil, 1000, "assumed"},
		"20 that were expected":    {20, []limiter.Option{limiter.WithExpectedProcesses(20)}, 1000, "assumed"},
		"20 that count each other": {20, []limiter.Option{limiter.WithPeerCount(func(context.Context) (int, error) { return 20, nil })}, 1000, "learnt"},
		"4 with fixed shares":      {4, []limiter.Option{limiter.WithShare(0.25)}, 1000, "fixed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := nowhere(t)
			admitted := 0
			for i := range c.processes {
				opts := append([]limiter.Option{quiet(), hasty(1 << 40), limiter.WithProcess(fmt.Sprint("p", i))}, c.opts...)
				lim, err := limiter.New(rdb, limiter.TokenBucket(limiter.PerHour(1000), 1000), opts...)
				must(t, err)
				t.Cleanup(func() { _ = lim.Close() })
				if c.origin == "learnt" {
					until(t, "the others are counted", func() bool {
						_, err := lim.Peek(t.Context(), "k")
						return err == nil && lim.Health().Processes == 20
					})
				}
				for range 300 {
					if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Source != limiter.SourceLocal {
						t.Fatalf("%+v, %v", res, err)
					} else if res.Allowed {
						admitted++
					}
				}
				if h := lim.Health(); h.ShareOrigin != c.origin {
					t.Errorf("the share of %v is %v", h.Share, h.ShareOrigin)
				}
			}
			if admitted > c.most || admitted < c.most/2 {
				t.Errorf("%d processes admitted %d of 1000", c.processes, admitted)
			}
		})
	}
}

// TestFixedShareGivesTheNumberOfProcesses: who fixes a share needs no other number of processes. Waiting
// lines leave room for that many, too.
func TestFixedShareGivesTheNumberOfProcesses(t *testing.T) {
	for share, want := range map[float64]int{1: 1, 0.5: 2, 0.3: 3, 0.25: 4, 0.001: 1000} {
		lim := newLimiter(t, nowhere(t), good, limiter.WithShare(share), limiter.WithExpectedProcesses(7))
		if h := lim.Health(); h.Processes != want || h.Share != share || h.ShareOrigin != "fixed" {
			t.Errorf("a share of %v: %+v", share, h)
		}
	}
}

// TestPeersAreCountedFirst: the first decision of a process that starts in an outage is
// within the share that WithPeerCount says, not within one that is assumed.
func TestPeersAreCountedFirst(t *testing.T) {
	var log bytes.Buffer
	counted := make(chan struct{})
	lim, err := limiter.New(nowhere(t), limiter.TokenBucket(limiter.PerHour(100), 100), limiter.WithEqualShare(1), limiter.WithLogger(slog.New(slog.NewTextHandler(&log, nil))),
		limiter.WithPeerCount(func(context.Context) (int, error) { defer close(counted); return 2, nil }))
	must(t, err)
	<-counted
	until(t, "the count is known", func() bool { return lim.Health().Processes == 2 })
	res, err := lim.Allow(t.Context(), "k")
	must(t, err)
	if res.Source != limiter.SourceLocal || res.Remaining != 49 {
		t.Errorf("of 100 for two processes: %+v", res)
	}
	must(t, lim.Close())
	if strings.Contains(log.String(), "assuming") {
		t.Errorf("logged:\n%s", log.String())
	}
}

// TestAssumedIsLoggedOnce: when the number is used, and not before.
func TestAssumedIsLoggedOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	lim, err := limiter.New(nowhere(t), good, limiter.WithLogger(slog.New(slog.NewTextHandler(&log, nil))), limiter.WithExpectedProcesses(7), limiter.WithPrefix("shop"))
	must(t, err)
	lim.Health()
	if log.Len() > 0 {
		t.Errorf("before it is used: %s", log.String())
	}
	for range 50 {
		if _, err := lim.Allow(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
	}
	must(t, lim.Close())
	if n := strings.Count(log.String(), "assuming a number"); n != 1 || !strings.Contains(log.String(), "processes=7") || !strings.Contains(log.String(), "prefix=shop") {
		t.Errorf("%d lines in\n%s", n, log.String())
	}
}

// TestColdRooms: permits and sampled rates are shared with those that are expected, too.
func TestColdRooms(t *testing.T) {
	t.Parallel()
	rdb := nowhere(t)
	sem, err := semaphore.New(rdb, 40, quiet(), limiter.WithExpectedProcesses(8))
	must(t, err)
	defer func() { _ = sem.Close() }()
	held := 0
	for range 40 {
		p, err := sem.TryAcquire(t.Context(), "k")
		must(t, err)
		if p.Allowed {
			held++
		}
	}
	if h := sem.Health(); held != 5 || h.ShareOrigin != "assumed" || h.Processes != 8 {
		t.Errorf("%d of 40 permits for one of 8 processes: %+v", held, h)
	}
	s, err := sampled.New(rdb, limiter.PerSecond(400), quiet(), limiter.WithExpectedProcesses(8), sampled.WithInterval(time.Minute))
	must(t, err)
	defer func() { _ = s.Close() }()
	if h := s.Health(); h.ShareOrigin != "assumed" || h.Share != 1.0/8 {
		t.Errorf("%+v", h)
	}
}

// TestBadPeerCounts: what is no number of processes leaves the last good one.
func TestBadPeerCounts(t *testing.T) {
	t.Parallel()
	answers := []struct {
		n   int
		err error
	}{{6, nil}, {0, nil}, {-1, nil}, {math.MaxInt, nil}, {0, errors.New("no such host")}, {12, errors.New("half an answer")}, {7, nil}}
	var asked atomic.Int64
	for i := range answers {
		lim := newLimiter(t, nowhere(t), good, limiter.WithPeerCount(func(context.Context) (int, error) {
			asked.Add(1)
			return answers[i].n, answers[i].err
		}))
		asked.Store(0)
		until(t, "it is asked", func() bool {
			if _, err := lim.Allow(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			return asked.Load() > 0
		})
		must(t, lim.Close()) // waits for it
		if err := lim.Health().PeerCountError; (err == nil) != (answers[i].err == nil && answers[i].n >= 1 && answers[i].n <= 1_000_000) {
			t.Errorf("after %+v: the error in Health is %v", answers[i], err)
		}
		want, origin := 1, "assumed"
		if answers[i].n == 6 || answers[i].n == 7 {
			want, origin = answers[i].n, "learnt"
		}
		if h := lim.Health(); h.Processes != want || h.ShareOrigin != origin {
			t.Errorf("after %+v: %+v", answers[i], h)
		}
	}
}

// TestPeerCountThatHangs: it is asked by one goroutine at a time, holds nobody up, and ends
// with the limiter.
func TestPeerCountThatHangs(t *testing.T) {
	var asked, ended atomic.Int64
	lim := newLimiter(t, nowhere(t), good, limiter.WithExpectedProcesses(3), limiter.WithPeerCount(func(ctx context.Context) (int, error) {
		asked.Add(1)
		<-ctx.Done()
		ended.Add(1)
		return 0, ctx.Err()
	}))
	until(t, "it is asked", func() bool {
		if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Source != limiter.SourceLocal {
			t.Fatalf("%+v, %v", res, err)
		}
		return asked.Load() > 0
	})
	if h := lim.Health(); h.Processes != 3 || h.ShareOrigin != "assumed" {
		t.Errorf("%+v", h)
	}
	must(t, lim.Close())
	if asked.Load() != ended.Load() {
		t.Errorf("asked %d times, %d of them have ended", asked.Load(), ended.Load())
	}
}

// TestPeersFromDNS: each address is a process; one of the two families counts.
func TestPeersFromDNS(t *testing.T) {
	if n, err := limiter.PeersFromDNS("127.0.0.1")(t.Context()); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if n, err := limiter.PeersFromDNS("name.invalid")(ctx); err == nil {
		t.Errorf("%d addresses of a name that does not exist", n)
	}
}

// TestLearntOnce: Redis is believed before what was expected, also when it knows fewer.
func TestLearntOnce(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	lim := newLimiter(t, redistest.Client(t, srv), good, limiter.WithExpectedProcesses(10), unhurried())
	if h := lim.Health(); h.Processes != 10 || h.Share != 0.1 || h.ShareOrigin != "assumed" {
		t.Errorf("%+v", h)
	}
	until(t, "the heartbeat", func() bool {
		_, err := lim.Peek(t.Context(), "k")
		return err == nil && lim.Health().Processes == 1
	})
	if h := lim.Health(); h.Share != 1 || h.ShareOrigin != "learnt" {
		t.Errorf("%+v", h)
	}
	// Who is alone may use all of a key, whatever Redis has granted of it.
	must(t, srv.Kill())
	if res, err := lim.Allow(t.Context(), "new"); err != nil || res.Source != limiter.SourceLocal || res.Claim != 1 {
		t.Errorf("%+v, %v", res, err)
	}
}
