package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/redisproc"
	"github.com/holdfast-go/holdfast/limiter"
)

const (
	processes = 4
	callers   = 8 // per process
	rate      = 500
	burst     = 50
	healthy   = time.Second // before the fault, and after it at least
)

// stage is a server with a proxy in front of it.
type stage struct {
	srv   *redisproc.Server
	proxy *faultproxy.Proxy
	admin *redis.Client
}

// allow asks for one unit and says whether Redis answered.
type allow func(ctx context.Context) (allowed, byRedis bool, err error)

// score is what the callers of all processes saw.
type score struct {
	mu       sync.Mutex
	took     []time.Duration // of decisions that began during the fault
	slowest  time.Duration
	errors   int
	admitted atomic.Int64
}

// figures are what callers of one limiter saw during one fault.
type figures struct {
	p50, p99, slowest, back time.Duration
	errors, decisions       int
	admitted                float64 // ÷ what the limit allows
}

// measure runs one fault through one kind of limiter.
func measure(f fault, kind string, length time.Duration) (figures, error) {
	srv, err := redisproc.Start(redisproc.Options{})
	if err != nil {
		return figures{}, err
	}
	defer srv.Close()
	proxy, err := faultproxy.New(srv.Addr())
	if err != nil {
		return figures{}, err
	}
	defer proxy.Close()
	admin := redis.NewClient(&redis.Options{Addr: srv.Addr(), MaxRetries: -1})
	defer admin.Close()
	s := &stage{srv, proxy, admin}

	var sc score
	var faulty, ended atomic.Int64 // ns since start; 0 is not yet
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	start := time.Now()
	var wg sync.WaitGroup
	backs := make([]atomic.Int64, processes)
	for i := range processes {
		ask, done, err := newLimiter(kind, proxy.Addr(), i)
		if err != nil {
			return figures{}, err
		}
		defer done()
		for range callers {
			wg.Go(func() { caller(ctx, ask, start, &sc, &faulty, &ended, &backs[i]) })
		}
	}
	time.Sleep(healthy)
	faulty.Store(int64(time.Since(start)))
	if err := f.begin(s); err != nil {
		return figures{}, err
	}
	time.Sleep(length)
	if err := f.end(s); err != nil {
		return figures{}, err
	}
	ended.Store(int64(time.Since(start)))
	// Until every process is back, for at most 20 s.
	for limit := time.Now().Add(20 * time.Second); time.Now().Before(limit); time.Sleep(10 * time.Millisecond) {
		all := true
		for i := range backs {
			all = all && backs[i].Load() != 0
		}
		if all {
			break
		}
	}
	time.Sleep(healthy)
	total := time.Since(start)
	stop()
	wg.Wait()

	slices.Sort(sc.took)
	if len(sc.took) == 0 {
		sc.took = []time.Duration{0}
	}
	slowestBack := time.Duration(0)
	for i := range backs {
		slowestBack = max(slowestBack, time.Duration(backs[i].Load()-ended.Load()))
	}
	allowed := rate*total.Seconds() + burst
	return figures{
		p50: sc.took[len(sc.took)/2], p99: sc.took[len(sc.took)*99/100], slowest: sc.slowest, back: max(0, slowestBack),
		errors: sc.errors, decisions: len(sc.took), admitted: float64(sc.admitted.Load()) / allowed,
	}, nil
}

func short(d time.Duration) string {
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= 10*time.Millisecond:
		return d.Round(time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(100 * time.Nanosecond).String()
}

// caller asks at a steady pace and notes what it sees.
func caller(ctx context.Context, ask allow, start time.Time, sc *score, faulty, ended, back *atomic.Int64) {
	tick := time.NewTicker(time.Second * processes * callers / (3 * rate))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		began := time.Now()
		allowed, byRedis, err := ask(ctx)
		took := time.Since(began)
		if ctx.Err() != nil {
			return
		}
		at, from, to := int64(began.Sub(start)), faulty.Load(), ended.Load()
		if allowed {
			sc.admitted.Add(1)
		}
		if byRedis && to != 0 && at >= to {
			back.CompareAndSwap(0, at+int64(took))
		}
		if from == 0 || at < from || to != 0 && at > to {
			continue
		}
		sc.mu.Lock()
		sc.took = append(sc.took, took)
		sc.slowest = max(sc.slowest, took)
		if err != nil {
			sc.errors++
		}
		sc.mu.Unlock()
	}
}

// newLimiter returns one process's limiter: a client with default options, and
// what decides.
func newLimiter(kind, addr string, i int) (allow, func(), error) {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	if kind == "plain script" {
		return plain(rdb), func() { rdb.Close() }, nil
	}
	lim, err := limiter.New(rdb, limiter.GCRA(limiter.PerSecond(rate), burst), limiter.WithProcess(fmt.Sprint("p", i)))
	if err != nil {
		return nil, nil, err
	}
	ask := func(ctx context.Context) (bool, bool, error) {
		res, err := lim.Allow(ctx, "k")
		return res.Allowed, res.Source == limiter.SourceRedis, err
	}
	return ask, func() { lim.Close(); rdb.Close() }, nil
}

// gcra is a limiter as it is often written: one script, run by the client as it
// comes.
var gcra = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local tat = math.max(now, tonumber(redis.call('GET', KEYS[1]) or '0'))
local interval, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
if tat + interval - burst * interval > now then return 0 end
redis.call('SET', KEYS[1], string.format('%.0f', tat + interval), 'PX', 1000)
return 1`)

func plain(rdb *redis.Client) allow {
	return func(ctx context.Context) (bool, bool, error) {
		n, err := gcra.Run(ctx, rdb, []string{"plain"}, 1_000_000/rate, burst).Int()
		return n == 1, err == nil, err
	}
}
