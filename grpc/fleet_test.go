package holdfastgrpc_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	holdfastgrpc "github.com/holdfast-go/holdfast/grpc"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/sim"
	"github.com/holdfast-go/holdfast/limiter"
)

// counter remembers when calls and streams reach a server, refused ones too.
type counter struct {
	mu sync.Mutex
	at []time.Time
}

func (c *counter) came() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = append(c.at, time.Now())
}

// within counts those that came in (from, to).
func (c *counter) within(from, to time.Time) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, at := range c.at {
		if at.After(from) && at.Before(to) {
			n++
		}
	}
	return n
}

func (c *counter) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
			c.came()
			return h(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
			c.came()
			return h(srv, ss)
		}),
	}
}

// member is a limiter of a fleet, with a client of its own as another process has.
func member(t *testing.T, rdb *redis.Client, prefix string, limit limiter.Limit, opts ...limiter.Option) *limiter.Limiter {
	t.Helper()
	lim, err := limiter.New(rdb, limit, append([]limiter.Option{limiter.WithPrefix(prefix), limiter.WithLogger(discard)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lim.Close() })
	return lim
}

// patient is for tests in which Redis answers, however slow the machine is.
var patient = limiter.WithBudget(5 * time.Second)

// apiKey is the key of all clients: they use the same quota.
var apiKey = holdfastgrpc.WithKey(func(context.Context, string, string) string { return "the api" })

// TestOneRejectionStopsTheFleet: clients of two servers that share a limit share a limiter.
// When one of them is refused, on one server, none of them sends anything to either until
// the time is up, and then all are served.
func TestOneRejectionStopsTheFleet(t *testing.T) {
	const clients, each, quota = 6, 10, 100
	window := limiter.SlidingWindowLog(limiter.Per(quota, 4*time.Second))
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		redises := 0
		own := func() *redis.Client {
			redises++
			rdb := r.Client(fmt.Sprint(redises), redis.Options{})
			t.Cleanup(func() { _ = rdb.Close() })
			return rdb
		}
		var arrived counter
		var servers [2]grpc.DialOption
		for i := range servers {
			servers[i] = serveInMemory(t, &backend{}, append(arrived.options(), limited(t, member(t, own(), "server", window, patient), holdfastgrpc.Everyone())...)...)
		}
		var conns []testgrpc.TestServiceClient
		for i := range clients {
			loose := member(t, own(), "client", limiter.TokenBucket(limiter.PerSecond(100_000), 100_000), patient)
			conns = append(conns, dial(t, memory, append(paced(t, apiKey, holdfastgrpc.WithLimiter(loose), holdfastgrpc.WithAttempts(20)), servers[i%2])...))
		}
		// One that is told, and does not wait: its deadline leaves no time for that.
		if res, err := member(t, own(), "server", window, patient).AllowN(t.Context(), "everyone", quota); err != nil || !res.Allowed {
			t.Fatal(res, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		before := time.Now()
		refused := call(ctx, conns[0])
		told := time.Now()
		wait, ok := holdfastgrpc.Wait(refused)
		if status.Code(refused) != busy || !ok || wait < 2*time.Second {
			t.Fatalf("%v, %v", refused, wait)
		}

		var wg sync.WaitGroup
		for i, c := range conns {
			for j := range each {
				wg.Go(func() {
					send := call
					if j%2 == 1 {
						// A stream is not opened again when it is refused.
						send = func(ctx context.Context, c testgrpc.TestServiceClient, md ...string) error {
							err := drain(ctx, c, md...)
							for status.Code(err) == busy {
								err = drain(ctx, c, md...)
							}
							return err
						}
					}
					if err := send(t.Context(), c); err != nil {
						t.Errorf("client %d: %v", i, err)
					}
				})
			}
		}
		wg.Wait()
		if n := arrived.within(told, before.Add(wait)); n > 0 {
			t.Errorf("%d were sent in the %v of the cooldown", n, wait)
		}
		if n := arrived.within(before.Add(wait), time.Now().Add(1)); n < clients*each {
			t.Errorf("%d were sent after it, want at least %d", n, clients*each)
		}
	})
}

// TestPacingOfTheFleet: clients that share a limiter keep within it, so that no server
// refuses anything.
func TestPacingOfTheFleet(t *testing.T) {
	srv := redistest.Start(t)
	const clients, each, rate, burst = 4, 25, 50, 10
	var arrived counter
	var refused atomic.Int64
	hook := holdfastgrpc.WithHook(func(_ context.Context, d holdfastgrpc.Decision) {
		if d.Code != okay {
			refused.Add(1)
		}
	})
	var addrs [2]string
	for i := range addrs {
		lim := member(t, redistest.Client(t, srv), "server", limiter.GCRA(limiter.PerSecond(rate), burst+rate), patient)
		addrs[i] = serve(t, &backend{}, append(arrived.options(), limited(t, lim, holdfastgrpc.Everyone(), hook)...)...)
	}
	start := time.Now()
	var wg sync.WaitGroup
	for i := range clients {
		lim := member(t, redistest.Client(t, srv), "client", limiter.TokenBucket(limiter.PerSecond(rate), burst), patient)
		c := dial(t, addrs[i%2], paced(t, apiKey, holdfastgrpc.WithLimiter(lim))...)
		wg.Go(func() {
			for range each {
				if err := call(t.Context(), c); err != nil {
					t.Errorf("client %d: %v", i, err)
				}
			}
		})
	}
	wg.Wait()
	if least := (clients*each - burst) * time.Second / rate; time.Since(start) < least {
		t.Errorf("%d calls took %v, want at least %v", clients*each, time.Since(start), least)
	}
	if n := arrived.within(start, time.Now()); n != clients*each || refused.Load() > 0 {
		t.Errorf("%d calls came, %d were refused", n, refused.Load())
	}
}

// TestRedisIsKilled: servers and clients go on within their shares, and nobody gets an
// error because of it.
func TestRedisIsKilled(t *testing.T) {
	srv := redistest.Start(t)
	const rate, burst = 100, 20
	limit, half := limiter.GCRA(limiter.PerSecond(rate), burst), limiter.WithShare(0.5)
	backends := [2]*backend{{}, {}}
	var addrs [2]string
	for i := range addrs {
		addrs[i] = serve(t, backends[i], limited(t, member(t, redistest.Client(t, srv), "server", limit, half), holdfastgrpc.Everyone())...)
	}
	start := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for i := range 4 {
		c := dial(t, addrs[i%2], paced(t, apiKey, holdfastgrpc.WithLimiter(member(t, redistest.Client(t, srv), "client", limiter.TokenBucket(limiter.PerSecond(4*rate), burst), half)))...)
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := call(ctx, c); err != nil && ctx.Err() == nil && status.Code(err) != codes.ResourceExhausted {
					t.Errorf("client %d: %v", i, err)
				}
			}
		})
	}
	served := func() (n [2]int) { return [2]int{len(backends[0].times()), len(backends[1].times())} }
	until := func(more [2]int) {
		for n := served(); n[0] < more[0] || n[1] < more[1]; n = served() {
			if time.Since(start) > 30*time.Second {
				t.Errorf("served %v in %v", n, time.Since(start))
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	until([2]int{20, 20})
	srv.Kill()
	n := served()
	until([2]int{n[0] + 30, n[1] + 30})
	n = served()
	took := time.Since(start)
	cancel()
	wg.Wait()
	// limit·t + burst·(B + E + share·T): the whole time at the full rate, one state
	// lost, and a transition of each of two processes.
	if most := rate*took.Seconds() + burst*(1+1+2*0.5); float64(n[0]+n[1]) > most {
		t.Errorf("served %d in %v, want at most %.0f", n[0]+n[1], took, most)
	}
}
