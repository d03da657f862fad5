package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/sim"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/semaphore"
)

// TestCrashedProcess: the permit of a process that died is granted to another one when its time
// to live is over. TestHeldPermitsStay of internal/sim has that those of processes that live are not.
func TestCrashedProcess(t *testing.T) {
	rdb := redistest.Client(t, redistest.Start(t))
	dies := newSemaphore(t, rdb, 2, patient(), semaphore.WithTTL(600*time.Millisecond), limiter.WithProcess("a"))
	lives := newSemaphore(t, rdb, 2, patient(), limiter.WithProcess("b"))
	acquire(t, dies, "k")
	acquire(t, lives, "k")
	must(t, dies.Close()) // does not release: the work goes on, for all it knows
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := lives.Acquire(ctx, "k")
	must(t, err)
}

// TestLostPermits: a Redis that forgets its data knows the holders again after the next
// heartbeat, and they know that they had lost their permits.
func TestLostPermits(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		c := process(t, r, "a", 2, semaphore.WithTTL(3*time.Second))
		a, b := acquire(t, c, "k"), acquire(t, c, "k")
		if n := inFlight(t, c, "k"); n != 2 || isLost(a) || isLost(b) {
			t.Errorf("%d in flight before", n)
		}
		r.Lose("permits")
		<-a.Lost()
		<-b.Lost()
		if n := inFlight(t, c, "k"); n != 2 {
			t.Errorf("%d in flight", n)
		}
		must(t, a.Release())
		if n := inFlight(t, c, "k"); n != 1 {
			t.Errorf("%d in flight after a release", n)
		}
	})
}

// TestPermitsInAnOutage: without Redis each process has its share, and what it holds
// counts; those who wait are served; Redis learns of all when it is back.
func TestPermitsInAnOutage(t *testing.T) {
	srv := redistest.Start(t)
	proxy, rdb := redistest.Behind(t, srv, redis.Options{MaxRetries: -1, DialerRetries: 1})
	c := newSemaphore(t, rdb, 6, limiter.WithShare(0.5), semaphore.WithCriticalHeadroom(0.34), semaphore.WithTTL(300*time.Millisecond))
	before := acquire(t, c, "k")
	proxy.Set(faultproxy.Mode{Refuse: true})
	proxy.Reset()
	var own []*semaphore.Permit
	redistest.Until(t, "this process decides", func() bool {
		s, err := c.TryAcquire(t.Context(), "k")
		must(t, err)
		if s.Allowed {
			own = append(own, s)
		}
		return s.Source == limiter.SourceLocal
	})
	// 3 of 6, of which 1 is for critical callers, and 1 was held already.
	if s, err := c.TryAcquire(t.Context(), "k"); err != nil || s.Allowed || s.Source != limiter.SourceLocal {
		t.Fatalf("beyond the share: %+v, %v", s, err)
	}
	s, err := c.TryAcquire(limiter.Critical(t.Context()), "k")
	if err != nil || !s.Allowed {
		t.Fatalf("a critical caller: %+v, %v", s, err)
	}
	got := make(chan *semaphore.Permit, 1)
	go func() {
		s, err := c.Acquire(context.Background(), "k")
		if err != nil {
			t.Error(err)
		}
		got <- s
	}()
	must(t, s.Release())
	must(t, before.Release())
	waited := <-got
	proxy.Pass()
	redistest.Until(t, "Redis knows what is held", func() bool {
		n, err := c.InFlight(t.Context(), "k")
		return err == nil && n == len(own)+1
	})
	must(t, waited.Release())
	for _, s := range own {
		must(t, s.Release())
	}
	redistest.Until(t, "nothing is left", func() bool {
		n, err := c.InFlight(t.Context(), "k")
		return err == nil && n == 0
	})
}

// TestInFlightKnowsItsOwn: a Redis that answers questions, but does not write, cannot know the permits that this process
// acquired meanwhile. They are in flight.
func TestInFlightKnowsItsOwn(t *testing.T) {
	srv := redistest.Start(t)
	admin := redistest.Client(t, srv)
	c := newSemaphore(t, redistest.Client(t, srv), 6, limiter.WithShare(1))
	acquire(t, c, "k")
	must(t, admin.ConfigSet(t.Context(), "maxmemory", "1").Err())
	for range 2 {
		if s := acquire(t, c, "k"); s.Source != limiter.SourceLocal {
			t.Fatalf("by a Redis without memory: %+v", s)
		}
	}
	if n, _ := c.InFlight(t.Context(), "k"); n != 3 {
		t.Errorf("%d in flight, want 3", n)
	}
}

// TestPermitPolicies: open counts nobody, closed admits nobody.
func TestPermitPolicies(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = rdb.Close() })
	open := newSemaphore(t, rdb, 1, limiter.WithFallback(fallback.Open))
	for range 3 {
		s, err := open.Acquire(t.Context(), "k")
		if err != nil || s.Source != limiter.SourceOpen {
			t.Fatalf("%+v, %v", s, err)
		}
		defer func() { must(t, s.Release()) }()
	}
	closed := newSemaphore(t, rdb, 1, limiter.WithFallback(fallback.Closed))
	if s, err := closed.Acquire(t.Context(), "k"); !errors.Is(err, limiter.ErrUnavailable) {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := closed.TryAcquire(t.Context(), "k"); !errors.Is(err, limiter.ErrUnavailable) {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestNoPermitLeaks: whatever callers do, cancel before, while or after they are
// served, and whatever becomes of Redis, everything is free in the end.
func TestNoPermitLeaks(t *testing.T) {
	srv := redistest.Start(t)
	proxy, rdb := redistest.Behind(t, srv, redis.Options{})
	c := newSemaphore(t, rdb, 3, limiter.WithShare(1), semaphore.WithTTL(500*time.Millisecond))
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			for j := range 15 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration((i*7+j*13)%40)*time.Millisecond/4)
				s, err := c.Acquire(ctx, "k")
				cancel()
				switch {
				case err == nil:
					if err := s.Release(); err != nil {
						t.Error(err)
					}
				case !errors.Is(err, context.DeadlineExceeded):
					t.Error(err)
				}
			}
		})
	}
	for range 3 {
		proxy.Set(faultproxy.Mode{HalfOpen: true})
		redistest.Until(t, "calls get stuck", func() bool {
			return c.Health().Decisions[limiter.SourceLocal] > 0 || c.Health().Servers[0].LastFailure != breaker.ClassOK
		})
		proxy.Pass()
		proxy.Reset()
	}
	wg.Wait()
	redistest.Until(t, "nothing is held", func() bool {
		n, err := c.InFlight(t.Context(), "k")
		return err == nil && n == 0
	})
	s, err := c.Acquire(t.Context(), "k")
	must(t, err)
	must(t, s.Release())
}

// TestPermitsInACluster: keys on all masters.
func TestPermitsInACluster(t *testing.T) {
	cluster := redistest.StartCluster(t, 3, 0)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), ReadTimeout: time.Minute, WriteTimeout: time.Minute})
	t.Cleanup(func() { _ = rdb.Close() })
	c := newSemaphore(t, rdb, 2, patient(), semaphore.WithTTL(9*time.Second))
	for i := range 30 {
		key := fmt.Sprint("k", i)
		acquire(t, c, key)
		acquire(t, c, key)
		if s, err := c.TryAcquire(t.Context(), key); err != nil || s.Allowed || s.Source != limiter.SourceRedis {
			t.Fatalf("%+v, %v", s, err)
		}
	}
	ends := func(i int) float64 {
		return rdb.ZRangeWithScores(t.Context(), fmt.Sprintf("holdfast:v1:permits:{k%d}", i), 0, 0).Val()[0].Score
	}
	var first [30]float64
	for i := range first {
		first[i] = ends(i)
	}
	for i := range first {
		redistest.Until(t, "the heartbeat reaches the key", func() bool { return ends(i) > first[i] })
		if n := inFlight(t, c, fmt.Sprint("k", i)); n != 2 {
			t.Errorf("key %d: %d in flight", i, n)
		}
	}
}
