package limiter_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
)

// panics is a hook of the user's client with a defect.
type panics struct{ seen }

func (*panics) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error { panic("defect") }
}

// TestPanicOfAClientsHook does not end the program, which no caller could prevent: calls
// are made by goroutines of the limiter.
func TestPanicOfAClientsHook(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t, redistest.Start(t))
	lim := newLimiter(t, rdb, good, limiter.WithShare(1))
	rdb.AddHook(new(panics))
	for range 20 {
		if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Source != limiter.SourceLocal {
			t.Fatalf("%+v, %v", res, err)
		}
	}
}

// seen is a hook of the user's client.
type seen struct{ commands atomic.Int64 }

func (s *seen) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (s *seen) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			s.commands.Add(1)
		}
		return next(ctx, cmd)
	}
}

func (s *seen) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestHooksOfTheClientSeeDecisions: what the user has added to the client, before or
// after New.
func TestHooksOfTheClientSeeDecisions(t *testing.T) {
	rdb := redistest.Client(t, redistest.Start(t))
	before, after := new(seen), new(seen)
	rdb.AddHook(before)
	lim := newLimiter(t, rdb, good, patient())
	rdb.AddHook(after)
	for range 3 {
		if _, err := lim.Allow(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
	}
	if b, a := before.commands.Load(), after.commands.Load(); b < 3 || a < 3 {
		t.Errorf("the hooks have seen %d and %d decisions of 3", b, a)
	}
}

// TestLibraryIsLoadedLater: a library that could not be loaded, for want of memory, is
// loaded when it can be.
func TestLibraryIsLoadedLater(t *testing.T) {
	redistest.Since(t, 7, 0, "functions")
	srv := redistest.Start(t)
	admin := redistest.Admin(t, srv)
	must(t, admin.ConfigSet(t.Context(), "maxmemory", "1").Err())
	lim := newLimiter(t, redistest.Client(t, srv), good, unhurried(), limiter.WithShare(1), limiter.WithFunctions())
	if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Source != limiter.SourceLocal {
		t.Fatalf("without memory: %+v, %v", res, err)
	}
	must(t, admin.ConfigSet(t.Context(), "maxmemory", "0").Err())
	until(t, "functions decide", func() bool {
		res, err := lim.Allow(t.Context(), "k")
		must(t, err)
		return res.Source == limiter.SourceRedis && redistest.Calls(t, srv, "fcall") > 0
	})
	if n := redistest.Calls(t, srv, "evalsha"); n > 0 || lim.Health().FunctionsError != nil {
		t.Errorf("%d scripts, %v", n, lim.Health().FunctionsError)
	}
}
