// Tokens: programs that share an account of a language model's API keep to its two
// limits, requests per second and tokens per second, although what a call costs is
// known only when it has been answered: they reserve an estimate for both at once,
// and settle at the real cost.
//
// It uses REDIS_URL where that is set, else a redis-server found on PATH, else a
// Redis embedded in this program.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/examples/internal/demo"
	"github.com/holdfast-go/holdfast/limiter"
)

type config struct {
	requests, tokens, estimate, programs int
	length                               time.Duration
}

func main() {
	var cfg config
	flag.IntVar(&cfg.requests, "requests", 50, "requests per second that the account allows")
	flag.IntVar(&cfg.tokens, "tokens", 20_000, "tokens per second that it allows")
	flag.IntVar(&cfg.estimate, "estimate", 2000, "tokens that a call may take at most: what is reserved")
	flag.IntVar(&cfg.programs, "programs", 4, "programs, each of eight goroutines")
	flag.DurationVar(&cfg.length, "length", 4*time.Second, "how long each of the two runs takes")
	demo.Main("tokens", &cfg, run)
}

// outcome is what came of a run.
type outcome struct{ calls, tokens int64 }

func run(ctx context.Context, cfg config, out io.Writer) error {
	if cfg.requests < 1 || cfg.tokens < cfg.estimate || cfg.estimate < 10 || cfg.programs < 1 || cfg.length <= 0 {
		return fmt.Errorf("requests, tokens, estimate, programs and length are %d, %d, %d, %d and %v: must be above 0, with an estimate of at least 10 and at most the tokens", cfg.requests, cfg.tokens, cfg.estimate, cfg.programs, cfg.length)
	}
	server, err := demo.StartRedis()
	if err != nil {
		return err
	}
	defer server.Close()
	fmt.Fprintf(out, "Redis: %s\n%d programs share %d requests and %d tokens per second. A call reserves %d tokens, and takes a quarter of that on average.\n\n",
		server.What, cfg.programs, cfg.requests, cfg.tokens, cfg.estimate)
	for _, settles := range []bool{false, true} {
		o, err := cfg.fleet(ctx, server.Options, settles)
		if err != nil {
			return err
		}
		how := "keep what they reserved"
		if settles {
			how = "settle at the real cost"
		}
		seconds := cfg.length.Seconds()
		fmt.Fprintf(out, "They %s: %.0f calls and %.0f tokens per second.\n", how, float64(o.calls)/seconds, float64(o.tokens)/seconds)
		if limit := float64(2*cfg.tokens) + float64(cfg.tokens)*seconds; float64(o.tokens) > limit {
			return fmt.Errorf("%d tokens in %v: more than the limit", o.tokens, cfg.length)
		}
	}
	return nil
}

// fleet lets all programs call for a while.
func (cfg config) fleet(ctx context.Context, opt *redis.Options, settles bool) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, cfg.length)
	defer cancel()
	var o outcome
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	for range cfg.programs {
		p, err := newProgram(cfg, opt, settles)
		if err != nil {
			return o, err
		}
		defer p.close()
		for range 8 {
			wg.Go(func() {
				if err := p.work(ctx, &o); err != nil {
					failed.Store(&err)
				}
			})
		}
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return o, *err
	}
	return o, nil
}

// program is one of those that share the account.
type program struct {
	cfg              config
	rdb              *redis.Client
	requests, tokens *limiter.Limiter
	both             *limiter.Multi
	settles          bool
}

func newProgram(cfg config, opt *redis.Options, settles bool) (*program, error) {
	p := &program{cfg: cfg, rdb: redis.NewClient(opt), settles: settles}
	prefix := fmt.Sprint("tokens-demo:", settles, ":", time.Now().Unix()/60)
	var err error
	if p.requests, err = limiter.New(p.rdb, limiter.TokenBucket(limiter.PerSecond(cfg.requests), cfg.requests), limiter.WithPrefix(prefix+":requests")); err != nil {
		return nil, err
	}
	// A sliding window takes back whatever was reserved within it; see docs/choosing.md.
	if p.tokens, err = limiter.New(p.rdb, limiter.SlidingWindowCounter(limiter.PerSecond(cfg.tokens)), limiter.WithPrefix(prefix+":tokens")); err != nil {
		return nil, err
	}
	p.both, err = limiter.NewMulti(
		limiter.Part{Name: "requests", Limiter: p.requests},
		limiter.Part{Name: "tokens", Limiter: p.tokens},
	)
	return p, err
}

func (p *program) close() {
	_ = p.requests.Close()
	_ = p.tokens.Close()
	_ = p.rdb.Close()
}

// work calls the API again and again, within both limits.
func (p *program) work(ctx context.Context, o *outcome) error {
	for ctx.Err() == nil {
		r, err := p.both.Reserve(ctx, "account", limiter.Cost(1), limiter.Cost(p.cfg.estimate))
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if !r.Allowed {
			if !pause(ctx, r.RetryAfter) {
				return nil
			}
			continue
		}
		real := p.call(ctx)
		atomic.AddInt64(&o.calls, 1)
		atomic.AddInt64(&o.tokens, int64(real))
		if p.settles {
			// With the reply lost it may not be settled: then the window's end does it.
			if err := r.Settle(ctx, 1, real); err != nil && !errors.Is(err, limiter.ErrUnavailable) {
				return err
			}
		}
	}
	return nil
}

// call is the API: it thinks for a while, and says what that took.
func (p *program) call(ctx context.Context) (tokens int) {
	pause(ctx, time.Duration(20+rand.IntN(60))*time.Millisecond)
	return p.cfg.estimate/10 + rand.IntN(p.cfg.estimate*3/10)
}

// pause reports whether there is time left after it.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
