package sim

import (
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/httpclient"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/sampled"
	"github.com/holdfast-go/holdfast/semaphore"
)

// process is one of the fleet.
type process struct {
	w         *World
	n         int
	name      string
	rdb       redis.UniversalClient
	limiters  []*limiter.Limiter
	multi     *limiter.Multi // of all of them, where they are several
	permits   []*semaphore.Semaphore
	transport *httpclient.Transport // nil without a host
	sampled   *sampled.Limiter      // nil without
	callers   sync.WaitGroup
	end       chan struct{}
	gone      atomic.Bool
	dead      atomic.Bool
	thaw      atomic.Int64 // until when it stands still, in nanoseconds of the world
}

// leave ends the process. One that crashes reaches nothing any more; what is left of it
// is still closed, so that no goroutine remains.
func (p *process) leave(crash bool) {
	p.w.ledger.fault("process %d leaves, crash: %v", p.n, crash)
	p.gone.Store(true)
	if crash {
		p.dead.Store(true)
		p.w.ledger.crashed(p.n)
		for _, addr := range addressesOf(p.w.servers) {
			p.w.net.set(p.name, addr, func(path *Path) { path.Lost, path.Gone = true, true })
		}
	}
	close(p.end)
	p.callers.Wait()
	p.close()
}

// nameOf is the name of the n-th process, also before it joins.
func nameOf(n int) string { return "p" + strconv.Itoa(n) }

func (w *World) start(n int) *process {
	p := &process{w: w, n: n, name: nameOf(n), end: make(chan struct{})}
	p.rdb = w.Shape.client(w.servers, w.Options.Deadlines, func(ctx context.Context, addr string) (net.Conn, error) {
		return w.net.dial(ctx, p.name, addr)
	})
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	apart := func() { w.net.instants.sleep(time.Microsecond) } // so that no two of their timers are of one time
	for i := range w.Limits {
		apart()
		l := w.limitAt(i, w.now())
		opts := append(l.options(), limiter.WithPrefix(prefixOf(i)), limiter.WithProcess(p.name), limiter.WithLogger(logger),
			limiter.WithHooks(limiter.Hooks{BreakerChange: func(_ context.Context, ch breaker.Change) {
				w.ledger.breakerChanged(n, i, ch)
			}, Decision: func(ctx context.Context, d limiter.DecisionInfo) {
				w.ledger.decided(p.n, i, w.server(i, d.Key), w.account(i, d.Key), d, hurried(ctx, d.Took))
			}}))
		if w.Options.LocalKeys > 0 {
			opts = append(opts, limiter.WithMaxLocalKeys(w.Options.LocalKeys))
		}
		if w.Options.NoDenials {
			opts = append(opts, limiter.WithoutDenialCache())
		}
		p.limiters = append(p.limiters, must(limiter.New(p.rdb, l.Limit, opts...)))
	}
	for i, s := range w.Permits {
		apart()
		p.permits = append(p.permits, must(semaphore.New(p.rdb, s.N, limiter.WithPrefix("permits"+strconv.Itoa(i)),
			limiter.WithProcess(p.name), limiter.WithLogger(logger), semaphore.WithTTL(s.TTL))))
	}
	if len(p.limiters) > 1 {
		var parts []limiter.Part
		for i, lim := range p.limiters {
			parts = append(parts, limiter.Part{Name: strconv.Itoa(i), Limiter: lim})
		}
		p.multi = must(limiter.NewMulti(parts...))
	}
	if w.api != nil {
		opts := []httpclient.Option{httpclient.WithLimiter(p.limiters[0]), httpclient.WithBudget(w.Host.budget()), httpclient.WithLogger(logger)}
		if w.Host.Says {
			apart()
			opts = append(opts, httpclient.WithDiscovery(p.rdb, limiter.WithProcess(p.name), limiter.WithLogger(logger)))
		}
		p.transport = must(httpclient.New(w.api.of(p), opts...))
	}
	if s := w.Sampled; s.Keys > 0 {
		apart()
		p.sampled = must(sampled.New(p.rdb, s.Rate, limiter.WithPrefix(sampledPrefix), limiter.WithProcess(p.name), limiter.WithLogger(logger),
			sampled.WithInterval(s.Interval), sampled.WithTopKeys(s.TopKeys), sampled.WithMaxLocalKeys(s.LocalKeys)))
	}
	for c := range w.Callers {
		p.callers.Go(func() { p.call(rand.New(rand.NewPCG(w.Seed, uint64(1_000_000+n*1000+c)))) })
	}
	return p
}

// hurried reports that the caller of a decision that took so long has left, or had less time than the budget.
func hurried(ctx context.Context, took time.Duration) bool {
	end, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && time.Until(end)+took < budget
}

// must returns what a constructor made of a plan, which was checked when it was drawn.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}

// hostPart is the part of what callers do that is to call the host, where there is one.
const hostPart = 0.2

// sampledPart is the part that is to ask a sampled limiter, where there is one.
const sampledPart = 0.3

// call is the life of one caller.
func (p *process) call(rng *rand.Rand) {
	w, more := p.w, 0
	for {
		wait := time.Duration(rng.Int64N(1000))
		if more--; more < 0 {
			wait, more = w.pause(rng, p.n), w.Traffic.Burst-1
		}
		if !p.pause(wait) {
			return
		}
		switch {
		case p.transport != nil && rng.Float64() < hostPart:
			p.request(rng)
		case p.sampled != nil && rng.Float64() < sampledPart:
			p.sample(rng)
		case len(p.permits) > 0 && rng.Float64() < 0.1:
			p.hold(rng)
		default:
			p.decide(rng)
		}
	}
}

// pause waits, and reports whether the process still lives.
func (p *process) pause(d time.Duration) bool {
	at := p.w.net.instants.take(time.Now().Add(max(1, d)))
	defer p.w.net.instants.pass(at)
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-p.w.done:
		return false
	case <-p.end:
		return false
	case <-timer.C:
	}
	if more := time.Duration(p.thaw.Load()) - p.w.now(); more > 0 {
		return p.pause(more)
	}
	return true
}

func (p *process) decide(rng *rand.Rand) {
	w := p.w
	i := rng.IntN(len(p.limiters))
	lim := p.limiters[i]
	key := p.key(rng)
	n := 1
	switch u := rng.Float64(); {
	case u < 0.05:
		n = w.most[i] // mostly denied
	case u < 0.2:
		n = 1 + rng.IntN(min(5, w.most[i]))
	}
	ctx, cancel := context.Background(), context.CancelFunc(func() {})
	if rng.Float64() < 0.03 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(rng.Int64N(int64(60*time.Millisecond))))
	} else if w.Hasty > 0 && rng.Float64() < w.Hasty {
		ctx, cancel = context.WithTimeout(ctx, between(rng, 10*time.Microsecond, time.Millisecond))
	}
	defer cancel()
	began := w.now()
	if w.Varied > 0 && rng.Float64() < w.Varied {
		p.vary(ctx, rng, i, key, n)
		return
	}
	switch u := rng.Float64(); {
	case u < w.Looks:
		_, err := lim.Peek(ctx, key)
		w.ledger.timely(p.n, key, err, w.now()-began, ctx.Err() != nil)
	case u > 0.97-w.Waits:
		ctx, cancel := context.WithTimeout(ctx, between(rng, time.Millisecond, 5*time.Second))
		defer cancel()
		leaves := w.ledger.stands(ctx, line{p.n, w.account(i, key)}, n)
		_, err := lim.Wait(ctx, key, limiter.Cost(n))
		w.ledger.waited(p.n, key, err, ctx)
		leaves(err == nil)
	case u > 0.92:
		p.reserve(ctx, rng, i, key, n)
	case u > 0.90 && p.multi != nil:
		_, err := p.multi.AllowN(ctx, key, 1)
		w.ledger.timely(p.n, key, err, w.now()-began, ctx.Err() != nil)
	default:
		_, _ = lim.AllowN(ctx, key, n)
	}
}

// sample asks the sampled limiter.
func (p *process) sample(rng *rand.Rand) {
	w := p.w
	key, n := "k"+strconv.Itoa(w.Traffic.key(rng, w.Sampled.Keys, w.now())), 1
	switch u := rng.Float64(); {
	case u < 0.05:
		n = 0
	case u < 0.15:
		n = 1 + rng.IntN(min(3, p.sampled.Limit().Burst()))
	}
	began := w.now()
	res, err := p.sampled.AllowN(context.Background(), key, n)
	w.ledger.sampled(p.n, key, int64(n), res, err, w.now()-began)
}

// key draws one.
func (p *process) key(rng *rand.Rand) string {
	return p.w.keys[p.w.Traffic.key(rng, len(p.w.keys), p.w.now())]
}

// reserve takes units of which some are not used, as is known later, or never.
func (p *process) reserve(ctx context.Context, rng *rand.Rand, i int, key string, n int) {
	r, err := p.limiters[i].Reserve(ctx, key, limiter.Cost(n))
	if err != nil || !r.Allowed || rng.IntN(8) == 0 {
		return
	}
	cost, after := rng.IntN(n+1), between(rng, time.Millisecond, 20*time.Second)
	p.callers.Go(func() {
		if !p.pause(after) {
			return
		}
		p.w.ledger.unused(p.n, p.w.account(i, key), int64(n-cost))
		_ = r.Settle(context.Background(), cost)
		_ = r.Settle(context.Background(), 0) // which changes nothing
	})
}

// hold acquires a permit, and holds it for a while.
func (p *process) hold(rng *rand.Rand) {
	w, i := p.w, rng.IntN(len(p.permits))
	sem, key := p.permits[i], p.key(rng)
	ctx, cancel := context.Background(), context.CancelFunc(func() {})
	began := w.now()
	stays := w.ledger.asksPermit(p.n, i, key)
	waits := rng.IntN(2) == 0
	acquire := sem.TryAcquire
	if waits {
		acquire = sem.Acquire
		ctx, cancel = context.WithTimeout(ctx, between(rng, 10*time.Millisecond, 5*time.Second))
	}
	permit, err := acquire(ctx, key)
	if waits {
		w.ledger.waited(p.n, key, err, ctx)
	} else {
		w.ledger.timely(p.n, key, err, w.now()-began, false)
	}
	cancel()
	if err != nil {
		w.ledger.leaves(stays)
		return
	}
	if !permit.Allowed {
		w.ledger.denied(p.n, i, key, permit, stays)
		w.ledger.leaves(stays)
		return
	}
	release := w.ledger.acquired(p.n, i, key, permit)
	life := min(time.Duration(20*rng.ExpFloat64()*float64(w.Think)), holdMost)
	p.callers.Go(func() {
		if p.pause(life); p.crashed() {
			return
		}
		release()
		_ = permit.Release()
		w.ledger.leaves(stays)
	})
}

// crashed reports that the process died without closing anything.
func (p *process) crashed() bool { return p.dead.Load() }

func (p *process) close() {
	for _, sem := range p.permits {
		_ = sem.Close()
	}
	for _, lim := range p.limiters {
		_ = lim.Close()
	}
	if p.sampled != nil {
		_ = p.sampled.Close()
	}
	if p.transport != nil {
		_ = p.transport.Close()
	}
	_ = p.rdb.Close()
}
