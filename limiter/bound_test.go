package limiter_test

import (
	"context"
	"flag"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/limiter/limitertest"
)

var outageSeed = flag.Uint64("outage.seed", 0, "seed of the random outages; 0 draws one")

// process is one of several that share a limit, with a network of its own.
type process struct {
	lim   *limiter.Limiter
	proxy *faultproxy.Proxy

	admitted    int
	transitions int
	local       []span // times in which it decided on its own
}

type span struct{ from, to time.Duration }

// run asks for one unit after the other and keeps the account.
func (p *process) run(ctx context.Context, t *testing.T, start time.Time) {
	source := limiter.SourceRedis
	var since time.Duration
	for ctx.Err() == nil {
		before := time.Since(start)
		res, err := p.lim.Allow(context.Background(), "k")
		if err != nil {
			t.Errorf("a decision failed: %v", err)
			return
		}
		if res.Allowed {
			p.admitted++
		}
		if res.Source != source {
			source = res.Source
			p.transitions++
			if source == limiter.SourceLocal {
				since = before
			} else {
				p.local = append(p.local, span{since, time.Since(start)})
			}
		}
		time.Sleep(200 * time.Microsecond) // a rate, not a race
	}
	if source == limiter.SourceLocal {
		p.local = append(p.local, span{since, time.Since(start)})
	}
}

// allLocal is for how long no process reached Redis.
func allLocal(ps []*process, length time.Duration) time.Duration {
	total := time.Duration(0)
	const step = time.Millisecond
	for at := time.Duration(0); at < length; at += step {
		all := true
		for _, p := range ps {
			in := false
			for _, s := range p.local {
				in = in || s.from <= at && at+step <= s.to
			}
			all = all && in
		}
		if all {
			total += step
		}
	}
	return total
}

// TestOverAdmissionBound: random outages, of single processes and of all, and
// losses of Redis's state; what is admitted never exceeds the published bound
//
//	limit·(t_r + Σ claim·t_p) + B·burst·(1 + A + E + Σ claim·L_p)
//
// where B is 1, or 2 for the algorithms that count in aligned windows, and each process has
// a fixed claim. It is compared with less: with what warm starts and settling leave of it.
func TestOverAdmissionBound(t *testing.T) {
	t.Parallel()
	seed := *outageSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("rerun with: go test -run %s ./limiter -args -outage.seed=%d", t.Name(), seed)
	const length, rate, per = 2 * time.Second, 60, 100 * time.Millisecond
	for i, limit := range limitertest.Limits(limiter.Per(rate, per)) {
		t.Run(limit.Algorithm(), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			srv := redistest.Start(t)
			admin := redistest.Admin(t, srv)
			n := 2 + rng.IntN(3)
			ps := make([]*process, n)
			for i := range ps {
				proxy, rdb := behind(t, srv, redis.Options{})
				ps[i] = &process{proxy: proxy, lim: newLimiter(t, rdb, limit, limiter.WithShare(1/float64(n)))}
			}
			ctx, cancel := context.WithTimeout(context.Background(), length)
			defer cancel()
			start := time.Now()
			var wg sync.WaitGroup
			for _, p := range ps {
				wg.Go(func() { p.run(ctx, t, start) })
			}
			lost := 0
			for ctx.Err() == nil {
				switch p := ps[rng.IntN(n)]; rng.IntN(7) {
				case 0:
					p.proxy.Set(faultproxy.Mode{BlackHole: true})
				case 1:
					p.proxy.Set(faultproxy.Mode{Refuse: true})
					p.proxy.Reset()
				case 2:
					p.proxy.Set(faultproxy.Mode{HalfOpen: true})
				case 3:
					for _, p := range ps {
						p.proxy.Set(faultproxy.Mode{Refuse: true})
						p.proxy.Reset()
					}
				case 4:
					if rng.IntN(2) == 0 {
						lost++
						must(t, admin.FlushAll(context.Background()).Err())
					}
				default:
					for _, p := range ps {
						p.proxy.Pass()
					}
				}
				time.Sleep(time.Duration(20+rng.IntN(150)) * time.Millisecond) // the schedule
			}
			wg.Wait()
			took := time.Since(start)
			for _, p := range ps { // Close waits for the calls that are held up
				p.proxy.Pass()
				p.proxy.Reset()
			}

			admitted, transitions, alone := 0, 0, time.Duration(0)
			for _, p := range ps {
				admitted += p.admitted
				transitions += p.transitions
				for _, s := range p.local {
					alone += s.to - s.from
				}
			}
			base := 1.0
			if a := limit.Algorithm(); a == "fixed window" || a == "sliding window counter" {
				base = 2
			}
			reached := took - allLocal(ps, took)
			perSecond := rate / per.Seconds()
			steady := perSecond * (reached.Seconds() + alone.Seconds()/float64(n))
			bound := steady + rate*(base+float64(lost)+float64(transitions)/float64(2*n)) // a local time has two
			t.Logf("%d processes: %d admitted in %v: %.0f by the rate alone, at most %.0f (%d losses, %d transitions, reached for %v, alone for %v)",
				n, admitted, took.Round(time.Millisecond), steady, bound, lost, transitions, reached.Round(time.Millisecond), alone.Round(time.Millisecond))
			if float64(admitted) > bound {
				t.Errorf("%d admitted, at most %.1f", admitted, bound)
			}
		})
	}
}
