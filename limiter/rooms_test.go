package limiter_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/sampled"
	"github.com/holdfast-go/holdfast/semaphore"
)

// patient outlives any hiccup of a busy machine, so that Redis decides always,
// and sends nothing but decisions.
func patient() limiter.RedisOption {
	return limiter.Options(limiter.WithBudget(patience), limiter.WithShare(1))
}

func newSemaphore(t *testing.T, rdb redis.UniversalClient, n int, opts ...semaphore.Option) *semaphore.Semaphore {
	t.Helper()
	s, err := semaphore.New(rdb, n, append([]semaphore.Option{quiet(), fast(), limiter.WithExpectedProcesses(1)}, opts...)...)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func acquire(t *testing.T, s *semaphore.Semaphore, key string) *semaphore.Permit {
	t.Helper()
	p, err := s.TryAcquire(t.Context(), key)
	must(t, err)
	if !p.Allowed {
		t.Fatalf("no permit: %+v", p.Result)
	}
	return p
}

func newSampled(t *testing.T, rdb redis.UniversalClient, rate limiter.Rate, opts ...sampled.Option) *sampled.Limiter {
	t.Helper()
	s, err := sampled.New(rdb, rate, append([]sampled.Option{quiet(), fast(), limiter.WithExpectedProcesses(1)}, opts...)...)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// permitAllower acquires and releases, for the fault table.
type permitAllower struct{ *semaphore.Semaphore }

func (a permitAllower) AllowN(ctx context.Context, key string, _ int) (limiter.Result, error) {
	p, err := a.TryAcquire(ctx, key)
	if err != nil {
		return limiter.Result{}, err
	}
	if p.Allowed {
		if err := p.Release(); err != nil {
			return limiter.Result{}, err
		}
	}
	return p.Result, nil
}

// sampledAsRedis calls what was sampled decided by Redis, as the fault table does.
type sampledAsRedis struct{ *sampled.Limiter }

func (s sampledAsRedis) AllowN(ctx context.Context, key string, n int) (limiter.Result, error) {
	res, err := s.Limiter.AllowN(ctx, key, n)
	if res.Source == limiter.SourceSampled {
		res.Source = limiter.SourceRedis
	}
	return res, err
}
