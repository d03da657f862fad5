package lua_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
)

const (
	sec = int64(1_000_000)
	t0  = 1_760_000_000 * sec
)

func params(t *testing.T, l algo.Limit) lua.Args {
	t.Helper()
	p, err := l.Params()
	if err != nil {
		t.Fatal(err)
	}
	return lua.NewArgs(p)
}

// ask sends requests of cost 1 at one time and counts those admitted.
func ask(t *testing.T, rdb *redis.Client, p lua.Args, key string, now int64, requests int) (admitted int) {
	t.Helper()
	for i := range requests {
		item := lua.Item{Keys: lua.NewNamer("ref").KeysOf(p.Kind, key), Params: p, Cost: 1}
		_, out, err := lua.NewClient(rdb).Decide(context.Background(), now, fmt.Sprint("n", now, "-", i), []lua.Item{item}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if out[0].Allowed {
			admitted++
		}
	}
	return admitted
}

// TestReferenceResults are those of the step functions, here on a real server.
func TestReferenceResults(t *testing.T) {
	rdb := newClient(t)
	type burst struct {
		at             int64
		requests, want int
	}
	minute := 60 * sec
	m0 := t0 - t0%minute
	for _, c := range []struct {
		name   string
		limit  algo.Limit
		bursts []burst
	}{
		{"border", algo.Limit{Kind: algo.FixedWindow, N: 10, Per: sec}, []burst{{t0 - 1000, 10, 10}, {t0, 10, 10}}},
		{"border", algo.Limit{Kind: algo.SlidingWindowLog, N: 10, Per: sec}, []burst{{t0 - 1000, 10, 10}, {t0, 10, 0}}},
		{"border", algo.Limit{Kind: algo.SlidingWindowCounter, N: 10, Per: sec}, []burst{{t0 - 1000, 10, 10}, {t0, 10, 0}}},
		{"refill", algo.Limit{Kind: algo.TokenBucket, N: 5, Per: sec, Burst: 10}, []burst{{t0, 15, 10}, {t0 + sec, 10, 5}}},
		{"refill", algo.Limit{Kind: algo.GCRA, N: 5, Per: sec, Burst: 10}, []burst{{t0, 15, 10}, {t0 + sec, 10, 5}}},
		{"drain", algo.Limit{Kind: algo.LeakyBucket, N: 1, Per: sec, Burst: 5}, []burst{{t0, 10, 5}, {t0 + 3*sec, 10, 3}}},
		{"drain", algo.Limit{Kind: algo.LeakyBucketShaping, N: 1, Per: sec, Burst: 5}, []burst{{t0, 10, 5}, {t0 + 3*sec, 10, 3}}},
		{"estimate", algo.Limit{Kind: algo.SlidingWindowCounter, N: 100, Per: minute}, []burst{{m0 - minute, 80, 80}, {m0 + minute/4, 30, 30}, {m0 + minute/4, 11, 10}}},
	} {
		p := params(t, c.limit)
		for _, b := range c.bursts {
			if got := ask(t, rdb, p, c.name, b.at, b.requests); got != b.want {
				t.Errorf("%v, %s: %d of %d admitted at %d, want %d", c.limit.Kind, c.name, got, b.requests, b.at-t0, b.want)
			}
		}
	}
}

// TestNoWindowAboveItsLimitUnderConcurrency: 50 callers on one key, and every
// stretch of time of what they were granted holds to the algorithm's promise.
func TestNoWindowAboveItsLimitUnderConcurrency(t *testing.T) {
	rdb := newClient(t)
	for _, kind := range algo.Kinds {
		p := params(t, algo.Limit{Kind: kind, N: 20, Per: 50_000, Burst: 20})
		var mu sync.Mutex
		var granted []int64
		var wg sync.WaitGroup
		ctx, cancel := context.WithTimeout(context.Background(), 400*time.Millisecond)
		for caller := range 50 {
			wg.Go(func() {
				item := []lua.Item{{Keys: lua.NewNamer("many").KeysOf(kind, "k"), Params: p, Cost: 1}}
				for i := 0; ctx.Err() == nil; i++ {
					now, out, err := lua.NewClient(rdb).Decide(context.Background(), 0, fmt.Sprint(caller, "-", i), item, nil)
					if err != nil {
						t.Error(err)
						return
					}
					if out[0].Allowed {
						mu.Lock()
						granted = append(granted, now)
						mu.Unlock()
					}
				}
			})
		}
		wg.Wait()
		cancel()
		slices.Sort(granted)
		if len(granted) < 60 {
			t.Errorf("%v: only %d granted in 400 ms", kind, len(granted))
		}
		checkWindows(t, p.Params, granted)
	}
}

func checkWindows(t *testing.T, p algo.Params, granted []int64) {
	t.Helper()
	for i, first := range granted {
		for j := i; j < len(granted); j++ {
			n, span := int64(j-i+1), granted[j]-first
			aligned := first/p.Den == granted[j]/p.Den
			over := false
			switch p.Kind {
			case algo.FixedWindow, algo.SlidingWindowCounter:
				over = aligned && n > p.Cap
			case algo.SlidingWindowLog:
				over = span < p.Den && n > p.Cap
			default:
				over = n*p.Den > p.Full()+span*p.Num
			}
			if over {
				t.Errorf("%v: %d granted within %d µs", p.Kind, n, span)
				return
			}
		}
	}
}
