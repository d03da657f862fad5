package sim

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	rand1 "math/rand"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/limiter"
)

// World is a fleet and its servers.
type World struct {
	Plan
	began     time.Time
	net       *network
	servers   []*Server
	processes []*process
	ledger    *ledger
	rules     map[string]*rule // by the key in Redis
	keys      []string
	done      chan struct{}
}

func (w *World) now() time.Duration { return time.Since(w.began) }

// Report is what came of a world.
type Report struct {
	Plan       Plan
	Violations []Violation
	Decisions  int
	Checks     int
	Faults     map[string]int
	Simulated  time.Duration // processes × time
	Hash       uint64
	Trace      []string
}

// Run makes a world and lets it live.
func Run(t *testing.T, p Plan, tracing bool) (rep Report) {
	t.Run(fmt.Sprintf("seed=%d", p.Seed), func(t *testing.T) {
		cryptotest.SetGlobalRandom(t, p.Seed)
		rand1.Seed(int64(p.Seed)) //nolint:staticcheck // go-redis draws from it, and only with GODEBUG=randseednop=0
		synctest.Test(t, func(t *testing.T) { rep = live(p, tracing) })
	})
	return rep
}

func live(p Plan, tracing bool) Report {
	w := &World{Plan: p, began: time.Now(), rules: map[string]*rule{}, done: make(chan struct{})}
	w.processes = make([]*process, p.Processes+len(p.Joins))
	w.ledger = newLedger(&w.Plan, w.rules, tracing)
	w.net = newNetwork(rand.New(rand.NewPCG(p.Seed, 1)), 200*time.Microsecond)
	srv := newServer(w.net, w.ledger, "10.0.0.1:6379", p.Seed)
	w.servers = append(w.servers, srv)
	w.net.servers[srv.addr] = srv
	for k := range p.Keys {
		w.keys = append(w.keys, "k"+strconv.Itoa(k))
	}
	for i, l := range p.Limits {
		for _, k := range w.keys {
			w.rules[w.inRedis(i, k)] = &rule{
				rate: float64(l.Rate().N) / l.Rate().Per.Seconds(), burst: float64(l.Burst()),
				windowed: algo.Kind(l.Algorithm()).Windowed(), aligned: l.Algorithm() == limiter.AlgorithmFixedWindow || l.Algorithm() == limiter.AlgorithmSlidingWindowCounter,
			}
		}
	}
	for i := range p.Processes {
		w.processes[i] = w.start(i)
	}
	counts := map[string]int{}
	var wg sync.WaitGroup
	for i, f := range p.Faults {
		counts[f.Kind.String()]++
		from, to := f.At-time.Second, f.At+f.For+15*time.Second
		w.ledger.stretches = append(w.ledger.stretches, [2]time.Duration{max(0, from), min(to, p.Life)})
		wg.Go(func() { w.inject(f, rand.New(rand.NewPCG(p.Seed, 1000+uint64(i)))) })
	}
	for i, at := range p.Joins {
		wg.Go(func() {
			time.Sleep(at)
			w.processes[p.Processes+i] = w.start(p.Processes + i)
		})
	}
	for _, l := range p.Leaves {
		wg.Go(func() {
			time.Sleep(l.At)
			w.processes[l.Process].leave(l.Crash)
		})
	}
	time.Sleep(p.Life)
	close(w.done)
	wg.Wait()
	for _, pr := range w.processes {
		pr.callers.Wait()
	}
	w.settled()
	for _, pr := range w.processes {
		if !pr.gone {
			pr.close()
		}
	}
	time.Sleep(time.Minute) // in which the clients' own dials end
	w.ledger.finish()
	l := w.ledger
	return Report{Plan: p, Violations: l.violations, Decisions: l.decisions, Checks: l.checks, Faults: counts, Simulated: time.Duration(p.Processes) * p.Life, Hash: l.hash, Trace: l.trace}
}

// process is one of the fleet.
type process struct {
	w        *World
	n        int
	name     string
	rdb      *redis.Client
	limiters []*limiter.Limiter
	multi    *limiter.Multi // of all of them, where they are several
	callers  sync.WaitGroup
	end      chan struct{}
	gone     bool
}

// leave ends the process. One that crashes reaches nothing any more; what is left of it
// is still closed, so that no goroutine remains.
func (p *process) leave(crash bool) {
	p.w.ledger.fault("process %d leaves, crash: %v", p.n, crash)
	p.gone = true
	if crash {
		for _, s := range p.w.servers {
			p.w.net.set(p.name, s.addr, func(path *Path) { path.Lost, path.Gone = true, true })
		}
	}
	close(p.end)
	p.callers.Wait()
	p.close()
}

func (w *World) start(n int) *process {
	p := &process{w: w, n: n, name: "p" + strconv.Itoa(n), end: make(chan struct{})}
	p.rdb = redis.NewClient(&redis.Options{
		Addr: w.servers[0].addr, Protocol: 2, DisableIdentity: true,
		Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) { return w.net.dial(ctx, p.name, addr) },
	})
	for i, l := range w.Limits {
		opts := []limiter.Option{
			limiter.WithPrefix("sim" + strconv.Itoa(i)), limiter.WithProcess(p.name),
			limiter.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil))),
			limiter.WithHooks(limiter.Hooks{BreakerChange: func(_ context.Context, ch breaker.Change) {
				w.ledger.fault("process %d, limiter %d: breaker %v to %v (%v)", n, i, ch.From, ch.To, ch.Cause)
			}, Decision: func(ctx context.Context, d limiter.DecisionInfo) {
				id := w.inRedis(i, d.Key)
				w.ledger.decided(p.n, i, id, d, ctx.Err() != nil)
			}}),
		}
		if w.Options.NoDenials {
			opts = append(opts, limiter.WithoutDenialCache())
		}
		lim, err := limiter.New(p.rdb, l, opts...)
		if err != nil {
			panic(err) // the plan is ours
		}
		p.limiters = append(p.limiters, lim)
	}
	if len(p.limiters) > 1 {
		var parts []limiter.Part
		for i, lim := range p.limiters {
			parts = append(parts, limiter.Part{Name: strconv.Itoa(i), Limiter: lim})
		}
		var err error
		if p.multi, err = limiter.NewMulti(parts...); err != nil {
			panic(err)
		}
	}
	for c := range w.Callers {
		p.callers.Go(func() { p.call(rand.New(rand.NewPCG(w.Seed, uint64(1_000_000+n*1000+c)))) })
	}
	return p
}

// call is the life of one caller.
func (p *process) call(rng *rand.Rand) {
	w := p.w
	for {
		think := time.Duration(rng.ExpFloat64()*float64(w.Think)) + time.Duration(rng.Int64N(1000))
		select {
		case <-w.done:
			return
		case <-p.end:
			return
		case <-time.After(think):
		}
		p.decide(rng)
	}
}

const budget = limiter.DefaultBudget

func (p *process) decide(rng *rand.Rand) {
	w := p.w
	i := rng.IntN(len(p.limiters))
	lim, l := p.limiters[i], w.Limits[i]
	key := p.key(rng)
	n := 1
	switch u := rng.Float64(); {
	case u < 0.05:
		n = l.Burst() // mostly denied
	case u < 0.2:
		n = 1 + rng.IntN(min(5, l.Burst()))
	}
	ctx, cancel := context.Background(), context.CancelFunc(func() {})
	if rng.Float64() < 0.03 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(rng.Int64N(int64(60*time.Millisecond))))
	}
	defer cancel()
	began := w.now()
	switch u := rng.Float64(); {
	case u < w.Looks:
		_, err := lim.Peek(ctx, key)
		w.ledger.timely(p.n, key, err, w.now()-began, ctx.Err() != nil)
	case u > 0.97:
		ctx, cancel := context.WithTimeout(ctx, between(rng, time.Millisecond, 5*time.Second))
		defer cancel()
		_, err := lim.WaitN(ctx, key, n)
		w.ledger.waited(p.n, key, err, ctx)
	case u > 0.92:
		p.reserve(ctx, rng, i, key, n)
	case u > 0.90 && p.multi != nil:
		_, err := p.multi.AllowN(ctx, key, 1)
		w.ledger.timely(p.n, key, err, w.now()-began, ctx.Err() != nil)
	default:
		_, _ = lim.AllowN(ctx, key, n)
	}
}

// key draws one. Low numbers are asked for more often.
func (p *process) key(rng *rand.Rand) string {
	return p.w.keys[int(float64(len(p.w.keys))*rng.Float64()*rng.Float64())]
}

// reserve takes units of which some are not used, as is known later, or never.
func (p *process) reserve(ctx context.Context, rng *rand.Rand, i int, key string, n int) {
	r, err := p.limiters[i].Reserve(ctx, key, n)
	if err != nil || !r.Allowed || rng.IntN(8) == 0 {
		return
	}
	cost, after := rng.IntN(n+1), between(rng, time.Millisecond, 20*time.Second)
	p.callers.Go(func() {
		select {
		case <-p.w.done:
			return
		case <-p.end:
			return
		case <-time.After(after):
		}
		p.w.ledger.unused(p.n, p.w.inRedis(i, key), int64(n-cost))
		_ = r.Settle(context.Background(), cost)
	})
}

// inRedis is the key of a limit's state.
func (w *World) inRedis(i int, key string) string {
	return fmt.Sprintf("sim%d:v2:%s:{%s}", i, algo.Kind(w.Limits[i].Algorithm()).Short(), key)
}

func (p *process) close() {
	for _, lim := range p.limiters {
		_ = lim.Close()
	}
	_ = p.rdb.Close()
}

// settled checks what must hold when all faults have been over for a while: every process
// decides by Redis again, knows its share, and owes nothing.
func (w *World) settled() {
	for range 50 {
		time.Sleep(400 * time.Millisecond)
		for _, p := range w.processes {
			if p.gone {
				continue
			}
			for _, lim := range p.limiters {
				for range 2 { // the first may be a probe
					_, _ = lim.AllowN(context.Background(), "settled", 1)
				}
			}
			time.Sleep(time.Millisecond)
		}
	}
	time.Sleep(time.Second)
	for _, p := range w.processes {
		if p.gone {
			continue
		}
		for i, lim := range p.limiters {
			res, err := lim.AllowN(context.Background(), "settled", 1)
			h := lim.Health()
			w.ledger.mu.Lock()
			w.ledger.check(err == nil && res.Source != limiter.SourceLocal, "return", "process %d, limiter %d: after all faults a decision is by %v (%v)", p.n, i, res.Source, err)
			w.ledger.check(h.Processes == w.alive(), "share", "process %d, limiter %d: %d processes are counted, there are %d", p.n, i, h.Processes, w.alive())
			w.ledger.check(h.Owed == 0, "return", "process %d, limiter %d: %d keys are still owed", p.n, i, h.Owed)
			w.ledger.mu.Unlock()
		}
	}
}

// inject lets a fault happen.
func (w *World) inject(f Fault, rng *rand.Rand) {
	time.Sleep(f.At + time.Duration(rng.Int64N(1000)))
	s := w.servers[0]
	w.ledger.fault("%v", f)
	of := f.Of
	if of == nil {
		for i := range w.Processes {
			of = append(of, i)
		}
	}
	paths := func(change func(*Path)) {
		for _, i := range of {
			w.net.set(w.processes[i].name, s.addr, change)
		}
	}
	end := func() {}
	switch f.Kind {
	case Refused:
		paths(func(p *Path) { p.Refused = true })
		end = func() { paths(func(p *Path) { p.Refused = false }) }
	case BlackHole:
		paths(func(p *Path) { p.Lost = true })
		end = func() { paths(func(p *Path) { p.Lost = false }) }
	case RepliesLost:
		paths(func(p *Path) { p.RepliesLost = true })
		end = func() { paths(func(p *Path) { p.RepliesLost = false }) }
	case Far:
		paths(func(p *Path) { p.Delay += f.By; p.Jitter += f.By / 2 })
		end = func() { paths(func(p *Path) { p.Delay -= f.By; p.Jitter -= f.By / 2 }) }
	case Reset:
		paths(func(p *Path) { p.Refused = true })
		paths(func(p *Path) { p.Refused = false })
	case Frozen:
		s.set(func(h *Health) { h.Frozen = true })
		end = func() { s.set(func(h *Health) { h.Frozen = false }) }
	case Sluggish:
		s.set(func(h *Health) { h.Slow += f.By })
		end = func() { s.set(func(h *Health) { h.Slow -= f.By }) }
	case Rejecting:
		s.set(func(h *Health) { h.Rejects = f.Text })
		end = func() { s.set(func(h *Health) { h.Rejects = "" }) }
	case RejectingWrites:
		s.set(func(h *Health) { h.RejectsWrites = f.Text })
		end = func() { s.set(func(h *Health) { h.RejectsWrites = "" }) }
	case Restarted, RestartedEmpty:
		s.set(func(h *Health) { h.Down = true })
		s.crash()
		end = func() {
			if f.Kind == RestartedEmpty {
				s.lose(func(string) bool { return true })
			}
			s.forgetScripts()
			s.set(func(h *Health) { h.Down = false })
		}
	case FailedOver:
		s.save()
		end = func() {
			s.crash()
			s.restore()
		}
	case Flushed:
		s.lose(func(string) bool { return true })
	case Evicted:
		s.lose(func(string) bool { return rng.IntN(3) == 0 })
	case ScriptsForgotten:
		s.forgetScripts()
	case ClockSteps:
		w.ledger.clockStepped()
		s.step(f.By)
	}
	time.Sleep(f.For)
	end()
	w.ledger.fault("over: %v", f)
}
