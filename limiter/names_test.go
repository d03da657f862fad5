package limiter_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/sampled"
	"github.com/holdfast-go/holdfast/semaphore"
)

// opener makes a limiter of some kind.
type opener func(rdb redis.UniversalClient, opts ...limiter.RedisOption) (io.Closer, error)

// convert makes options of one constructor of those of all.
func convert[O, From any](opts []From) (out []O) {
	for _, o := range opts {
		out = append(out, any(o).(O))
	}
	return out
}

func opens(l limiter.Limit) opener {
	return func(rdb redis.UniversalClient, opts ...limiter.RedisOption) (io.Closer, error) {
		return limiter.New(rdb, l, convert[limiter.Option](opts)...)
	}
}

func opensPermits(max int) opener {
	return func(rdb redis.UniversalClient, opts ...limiter.RedisOption) (io.Closer, error) {
		return semaphore.New(rdb, max, convert[semaphore.Option](opts)...)
	}
}

func opensSampled(rate limiter.Rate) opener {
	return func(rdb redis.UniversalClient, opts ...limiter.RedisOption) (io.Closer, error) {
		return sampled.New(rdb, rate, convert[sampled.Option](opts)...)
	}
}

// TestOneLimitPerPrefix: two limiters that would share their counts have one limit, or
// the second one is an error that names both. What is apart is none of the other's.
func TestOneLimitPerPrefix(t *testing.T) {
	gcra := limiter.GCRA(limiter.PerMinute(5), 5)
	for name, c := range map[string]struct {
		first, same, other opener
		says               []string
	}{
		"limiter":   {opens(gcra), opens(gcra), opens(limiter.GCRA(limiter.PerMinute(60), 60)), []string{"5/1m burst 5", "60/1m burst 60"}},
		"burst":     {opens(gcra), opens(gcra), opens(limiter.GCRA(limiter.PerMinute(5), 6)), []string{"burst 5", "burst 6"}},
		"semaphore": {opensPermits(3), opensPermits(3), opensPermits(4), []string{"3 permits", "4 permits"}},
		"sampled":   {opensSampled(limiter.PerSecond(10)), opensSampled(limiter.PerSecond(10)), opensSampled(limiter.PerMinute(10)), []string{"10/1s", "10/1m"}},
	} {
		t.Run(name, func(t *testing.T) {
			rdb := nowhere(t)
			open := func(o opener, rdb redis.UniversalClient, opts ...limiter.RedisOption) io.Closer {
				t.Helper()
				l, err := o(rdb, append(opts, quiet())...)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = l.Close() })
				return l
			}
			refused := func() {
				t.Helper()
				_, err := c.other(rdb)
				if !errors.Is(err, limiter.ErrInvalidConfig) || !strings.HasPrefix(err.Error(), "limiter: prefix is holdfast") && !strings.HasPrefix(err.Error(), "semaphore: prefix is holdfast") && !strings.HasPrefix(err.Error(), "sampled: prefix is holdfast") {
					t.Fatalf("error %v", err)
				}
				for _, part := range append(c.says, "WithPrefix") {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("%q does not say %q", err, part)
					}
				}
			}
			first := open(c.first, rdb)
			refused()
			second := open(c.same, rdb)
			open(c.other, rdb, limiter.WithPrefix("own"))
			open(c.other, nowhere(t))
			open(opens(limiter.FixedWindow(limiter.PerSecond(1))), rdb) // another algorithm
			if err := errors.Join(first.Close(), first.Close()); err != nil {
				t.Fatal(err)
			}
			refused() // the second one is open
			if err := second.Close(); err != nil {
				t.Fatal(err)
			}
			open(c.other, rdb)
		})
	}
}

// TestSetLimitOfOne: limiters of one name are changed one after the other; a new one has
// the limit that was set last. A limit of a call concerns no other.
func TestSetLimitOfOne(t *testing.T) {
	rdb := nowhere(t)
	before, after := limiter.GCRA(limiter.PerMinute(5), 5), limiter.GCRA(limiter.PerMinute(60), 60)
	var all []*limiter.Limiter
	for range 2 {
		l, err := limiter.New(rdb, before, quiet(), limiter.WithBudget(time.Millisecond))
		must(t, err)
		t.Cleanup(func() { _ = l.Close() })
		all = append(all, l)
	}
	if _, err := all[0].Allow(t.Context(), "k", after); err != nil {
		t.Error(err)
	}
	for _, l := range all {
		must(t, l.SetLimit(after))
		if _, err := limiter.New(rdb, before); !errors.Is(err, limiter.ErrInvalidConfig) {
			t.Errorf("a third one with the limit of before: %v", err)
		}
		third, err := limiter.New(rdb, after)
		must(t, err)
		must(t, third.Close())
	}
	// Another algorithm is another name.
	window := limiter.FixedWindow(limiter.PerSecond(1))
	for _, l := range all {
		must(t, l.SetLimit(window))
	}
	if _, err := limiter.New(rdb, limiter.FixedWindow(limiter.PerSecond(2))); !errors.Is(err, limiter.ErrInvalidConfig) {
		t.Errorf("another window: %v", err)
	}
	free, err := limiter.New(rdb, before)
	must(t, err)
	must(t, free.Close())
}

// apart is a client that cannot be compared.
type apart struct {
	*redis.Client
	_ []int
}

// TestClientsThatCannotBeCompared are all different, and no panic.
func TestClientsThatCannotBeCompared(t *testing.T) {
	rdb := apart{Client: nowhere(t)}
	for n := 1; n <= 2; n++ {
		l, err := limiter.New(rdb, limiter.GCRA(limiter.PerSecond(n), n), quiet())
		must(t, err)
		must(t, l.SetLimit(good))
		must(t, l.Close())
	}
}
