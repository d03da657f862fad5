package redislink_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/redislink"
	"github.com/holdfast-go/holdfast/internal/sim"
)

// process is the link of a process.
func process(t *testing.T, r *sim.Redis, name string, change func(*redislink.Config)) *redislink.Link {
	t.Helper()
	rdb := r.Client(name, redis.Options{MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	c := redislink.Config{Client: rdb, Process: name, Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&c)
	}
	l, err := redislink.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(func() {}) })
	return l
}

// limitOf is n in an hour.
func limitOf(t *testing.T, kind algo.Kind, n int64) *lua.Args {
	t.Helper()
	p, err := algo.Limit{Kind: kind, N: n, Per: 3600_000_000, Burst: n}.Params()
	if err != nil {
		t.Fatal(err)
	}
	a := lua.NewArgs(p)
	return &a
}

// ask decides on n units of a key.
func ask(ctx context.Context, l *redislink.Link, a *lua.Args, id string, n int64) (*redislink.Op, breaker.Class, error) {
	o := l.NewOp()
	o.ID, o.Args, o.Keys, o.Cost = id, a, l.Names.KeysOf(a.Kind, id), n
	class, err := l.Do(ctx, l.Server(id), o, l.Budget)
	return o, class, err
}

// busy asks every 100 ms, as traffic does, and sends the heartbeats that are due.
func busy(ctx context.Context, t *testing.T, l *redislink.Link, a *lua.Args) {
	for ctx.Err() == nil {
		srv := l.Server("busy")
		if srv.Breaker.Rejects() {
			l.BeatAway(srv)
			l.UseShare()
		} else if o, class, _ := ask(context.WithoutCancel(ctx), l, a, "busy", 0); class == breaker.ClassOK {
			l.Free(o)
			l.Beat(srv)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// begun is a context that is asked for its deadline when a call has begun, which takes a moment.
type begun struct{ context.Context }

func (begun) Deadline() (deadline time.Time, ok bool) {
	time.Sleep(time.Microsecond)
	return deadline, false
}

// TestTheWholeBudgetIsFair: where an answer may take all of the budget, one that does not come says that Redis is slow,
// also where some of the budget has passed when the call was sent. Else each call would be a probe.
func TestTheWholeBudgetIsFair(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		l := process(t, r, "a", func(c *redislink.Config) { c.Breaker.SlowCall = redislink.DefaultBudget })
		a, waited := limitOf(t, algo.GCRA, 1000), 0
		ask(t.Context(), l, a, "k", 1)
		r.Set(func(h *sim.Health) { h.Frozen = true })
		for range 300 {
			if _, class, err := ask(begun{t.Context()}, l, a, "k", 1); class == breaker.ClassOK {
				t.Error("there was an answer")
			} else if !errors.Is(err, redislink.ErrOpen) {
				waited++
			}
			time.Sleep(100 * time.Millisecond)
		}
		if waited < 10 || waited > 30 {
			t.Errorf("%d of 300 calls waited for Redis", waited)
		}
	})
}

// TestTooLittleTimeSaysNothing: callers that leave before an answer can be there say nothing of Redis, although the client
// ends the call, and the connection, at their deadline. That there is no connection in their time says no more.
func TestTooLittleTimeSaysNothing(t *testing.T) {
	for _, lost := range []bool{false, true} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			l := process(t, r, "a", func(c *redislink.Config) { c.Breaker.MinRequests = 2 })
			a := limitOf(t, algo.GCRA, 1000)
			ask(t.Context(), l, a, "k", 1)
			r.SetPath("a", func(p *sim.Path) { p.Delay, p.Lost = time.Millisecond, lost })
			for range 4 {
				ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Microsecond)
				if _, class, err := ask(ctx, l, a, "k", 1); class != breaker.ClassAborted || l.Server("k").Breaker.Rejects() {
					t.Errorf("%v, %v", class, err)
				}
				cancel()
				time.Sleep(20 * time.Millisecond)
			}
			for range 4 { // those who wait as long as an answer may take do
				ask(t.Context(), l, a, "k", 1)
			}
			if l.Server("k").Breaker.Rejects() != lost {
				t.Errorf("lost %v: %v", lost, l.Server("k").Breaker.State())
			}
		})
	}
}

// TestCallersGetTheLimit: however callers of several processes come, together or one by one, and whatever they
// ask for, what is admitted of each key is its limit, and nothing that was given back is lost.
func TestCallersGetTheLimit(t *testing.T) {
	const limit = 40
	for seed := range uint64(6) {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			rng := rand.New(rand.NewPCG(seed, 1))
			patient := func(c *redislink.Config) { c.Budget, c.MaxInFlight = time.Minute, 1+int(seed) }
			links := []*redislink.Link{process(t, r, "a", patient), process(t, r, "b", patient)}
			var limits []*lua.Args
			for _, kind := range []algo.Kind{algo.GCRA, algo.FixedWindow, algo.SlidingWindowLog, algo.TokenBucket} {
				limits = append(limits, limitOf(t, kind, limit))
			}
			var mu sync.Mutex
			admitted, largest := map[string]int64{}, map[string]int64{}
			var wg sync.WaitGroup
			for range 2000 {
				l, k, n, what := links[rng.IntN(2)], rng.IntN(12), int64(rng.IntN(3)), rng.IntN(10)
				a, id := limits[k%4], fmt.Sprint("k", k)
				wg.Go(func() {
					o := l.NewOp()
					o.ID = id
					var got, other int64
					second := fmt.Sprint("k", (k+4)%12)
					switch {
					case what == 0 && n > 0:
						o.All = []lua.Item{
							{Keys: l.Names.KeysOf(a.Kind, id), Params: *a, Cost: n},
							{Keys: l.Names.KeysOf(a.Kind, second), Params: *a, Cost: n},
						}
					default:
						o.Args, o.Keys, o.Cost = a, l.Names.KeysOf(a.Kind, id), n
						if what == 1 {
							o.Count = 3
						}
					}
					class, err := l.Do(t.Context(), l.Server(id), o, l.Budget)
					if class != breaker.ClassOK || err != nil {
						t.Errorf("%v, %v", class, err)
						return
					}
					switch {
					case o.All != nil:
						if len(o.Outs) != 2 {
							t.Errorf("%d answers", len(o.Outs))
						} else if o.Outs[0].Allowed && o.Outs[1].Allowed {
							got, other = n, n
						}
					case n > 0:
						got = o.Admitted * n
						if o.Out.Allowed != (o.Admitted > 0) || o.Out.Remaining < 0 || o.Out.Remaining >= limit || !o.Out.Allowed && o.Out.RetryAfter <= 0 {
							t.Errorf("%+v, %d admitted", o.Out, o.Admitted)
						}
					}
					l.Free(o)
					mu.Lock()
					admitted[id] += got
					admitted[second] += other
					largest[id] = max(largest[id], n)
					mu.Unlock()
				})
				if rng.IntN(40) == 0 {
					time.Sleep(time.Duration(rng.IntN(1000)) * time.Microsecond)
				}
			}
			wg.Wait()
			for id, n := range admitted {
				if n != limit {
					t.Errorf("seed %d: %d admitted of %s, want %d", seed, n, id, limit)
				}
			}
			// What is given back can be taken again, and no more.
			for k := range 12 {
				a, id := limits[k%4], fmt.Sprint("k", k)
				if a.Kind == algo.SlidingWindowLog {
					continue // by the names of units
				}
				taken := lua.Taken{Keys: links[0].Names.KeysOf(a.Kind, id), Params: *a, Units: 3, At: time.Now().UnixMicro()}
				o := &redislink.Op{ID: id, Taken: &taken}
				if class, err := links[0].Do(t.Context(), links[0].Server(id), o, time.Minute); class != breaker.ClassOK || o.Given > 3 {
					t.Errorf("%v, %v: %d given back", class, err, o.Given)
				}
				back := int64(0)
				for range 5 {
					o, _, _ := ask(t.Context(), links[1], a, id, 1)
					back += o.Admitted
				}
				if back < o.Given || back > 3 { // a part of a unit was produced meanwhile
					t.Errorf("%s: %d given back, %d taken again", id, o.Given, back)
				}
			}
			if n := r.Commands(); n > 1500 {
				t.Errorf("%d commands for 2000 callers", n)
			}
		})
	}
}

// TestProcessesCountEachOther: those that send heartbeats, every two seconds while there is traffic; one that dies
// is counted for a minute, and one that leaves is not.
func TestProcessesCountEachOther(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		a := limitOf(t, algo.GCRA, 100)
		var links []*redislink.Link
		var ends []context.CancelFunc
		var wg sync.WaitGroup
		for i := range 4 {
			l := process(t, r, fmt.Sprint("p", i), nil)
			if l.Processes() != 10 || l.ShareOrigin() != "assumed" || l.Share() != 0.1 {
				t.Errorf("%d processes, %s", l.Processes(), l.ShareOrigin())
			}
			ctx, end := context.WithCancel(t.Context())
			wg.Go(func() { busy(ctx, t, l, a) })
			links, ends = append(links, l), append(ends, end)
		}
		peers := links[0].Names.Peers(0)
		counted := func(when string, want ...int) {
			t.Helper()
			for i, n := range want {
				if l := links[i]; n > 0 && (l.Processes() != n || l.Share() != 1/float64(n) || l.ShareOrigin() != "learnt") {
					t.Errorf("%s: process %d counts %d, a share of %v", when, i, l.Processes(), l.Share())
				}
			}
		}
		time.Sleep(3 * time.Second)
		counted("together", 4, 4, 4, 4)
		if n := len(r.Members(peers)); n != 4 {
			t.Errorf("%d on the list", n)
		}
		before := r.Commands()
		time.Sleep(20 * time.Second)
		if n := r.Commands() - before; n < 800+36 || n > 800+48 {
			t.Errorf("%d commands in 20 s of 4 processes, of which 800 are of callers", n)
		}
		ends[3]()
		r.SetPath("p3", func(p *sim.Path) { p.Lost, p.Gone = true, true })
		time.Sleep(57 * time.Second)
		counted("one has died", 4, 4, 4)
		time.Sleep(10 * time.Second) // to notice that, and not to believe it for a while
		counted("a minute later", 3, 3, 3)
		ends[2]()
		time.Sleep(time.Second)
		links[2].Close(func() {})
		links[2].Close(func() { t.Error("closed twice") })
		if n := len(r.Members(peers)); n > 3 {
			t.Errorf("%d on the list", n)
		}
		time.Sleep(6 * time.Second)
		counted("one has left", 2, 2)
		ends[0]()
		ends[1]()
		wg.Wait()
	})
}

// TestProcessesReturnTogether: while Redis answers some processes again and others not yet, none decides by it; then all
// do, at about one time, and settle once.
func TestProcessesReturnTogether(t *testing.T) {
	for _, n := range []int{2, 3} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) { returnTogether(t, r, n) })
	}
}

func returnTogether(t *testing.T, r *sim.Redis, n int) {
	a := limitOf(t, algo.GCRA, 100)
	var everyone []int
	for i := range n {
		everyone = append(everyone, i)
	}
	last := n - 1
	var links []*redislink.Link
	settled := make([]int, n)
	var mu sync.Mutex
	ctx, end := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	set := func(refused bool, which ...int) {
		for _, i := range which {
			r.SetPath(fmt.Sprint("p", i), func(p *sim.Path) { p.Refused = refused })
		}
	}
	for i := range n {
		// All probe within less than the patience, which is a second more than the longest time between two.
		l := process(t, r, fmt.Sprint("p", i), func(c *redislink.Config) {
			c.Breaker = breaker.Settings{OpenMin: 100 * time.Millisecond, OpenMax: 400 * time.Millisecond}
			// After so many dials that failed as it may have connections, a client dials once a second only.
			rdb := r.Client(fmt.Sprint("p", i), redis.Options{MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, PoolSize: 1000})
			t.Cleanup(func() { _ = rdb.Close() })
			c.Client = rdb
		})
		l.OnReturn(func(context.Context) {
			mu.Lock()
			defer mu.Unlock()
			settled[i]++
		})
		if err := l.Claim("gcra", 1); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() { busy(ctx, t, l, a) })
		links = append(links, l)
	}
	state := func() (unavailable, away int) {
		for _, l := range links {
			if l.Server("busy").Unavailable() {
				unavailable++
			}
			if l.Server("busy").Away() {
				away++
			}
		}
		return unavailable, away
	}
	check := func(when string, unavailable, away int) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if u, w := state(); u != unavailable || w != away {
			t.Errorf("%s: %d do not decide by Redis, want %d; %d could already, want %d", when, u, unavailable, w, away)
		}
	}
	time.Sleep(5 * time.Second)
	check("before", 0, 0)
	for round := 1; round <= 2; round++ {
		set(true, everyone...)
		time.Sleep(3 * time.Second)
		for i, l := range links {
			if l.Server("busy").Answers() {
				t.Errorf("process %d is not cut off", i)
			}
		}
		set(false, everyone[:last]...)
		for time.Sleep(500 * time.Millisecond); ; time.Sleep(50 * time.Millisecond) {
			if _, away := state(); away == last {
				break
			}
		}
		time.Sleep(200 * time.Millisecond)
		if _, away := state(); away != last {
			t.Errorf("%d wait for the last one", away)
		}
		mu.Lock()
		for i, times := range settled {
			if times != round-1 {
				t.Errorf("process %d does not wait for the last one", i)
			}
		}
		mu.Unlock()
		set(false, last)
		began := time.Now()
		for _, away := state(); away > 0; _, away = state() {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(50 * time.Millisecond) // they end that together
		check("with the last one", 0, 0)
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("they return after %v", took)
		}
		time.Sleep(10 * time.Second)
		check("after", 0, 0)
		mu.Lock()
		for i, times := range settled {
			if times != round {
				t.Errorf("process %d settled %d times in %d outages", i, times, round)
			}
		}
		mu.Unlock()
	}
	// One that never comes back is waited for no longer than the patience.
	set(true, everyone...)
	time.Sleep(3 * time.Second)
	set(false, everyone[:last]...)
	time.Sleep(13 * time.Second)
	for i, l := range links {
		if srv := l.Server("busy"); srv.Answers() != (i < last) || i < last && srv.Unavailable() {
			t.Errorf("one stays away: process %d answers %v", i, srv.Answers())
		}
	}
	end()
	wg.Wait()
}

// TestBudgetsAndOutages: a call takes no longer than its budget, whatever Redis does, and says what is certain of it.
func TestBudgetsAndOutages(t *testing.T) {
	for name, c := range map[string]struct {
		path   func(*sim.Path)
		health func(*sim.Health)
		never  bool // it is certain that nothing was executed
	}{
		"refused": {path: func(p *sim.Path) { p.Refused = true }, never: true},
		"lost":    {path: func(p *sim.Path) { p.Lost = true }},
		"frozen":  {health: func(h *sim.Health) { h.Frozen = true }},
		"loading": {health: func(h *sim.Health) { h.Rejects = "LOADING Redis is loading the dataset in memory" }, never: true},
		"oom":     {health: func(h *sim.Health) { h.RejectsWrites = "OOM command not allowed when used memory > 'maxmemory'" }, never: true},
	} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			var mu sync.Mutex
			calls, opened, closed := map[breaker.Class]int{}, 0, 0
			l := process(t, r, "a", func(c *redislink.Config) {
				c.OnCall = func(_ context.Context, call redislink.Call) {
					mu.Lock()
					defer mu.Unlock()
					calls[call.Class]++
					if !strings.HasPrefix(call.Server, "holdfast") || (call.Err == nil) != (call.Class == breaker.ClassOK) || call.Took < 0 || call.Took > time.Second {
						t.Errorf("%s: %+v", name, call)
					}
				}
				c.OnChange = func(_ context.Context, ch breaker.Change) {
					mu.Lock()
					defer mu.Unlock()
					switch ch.To {
					case breaker.Open:
						opened++
					case breaker.Closed:
						closed++
					}
				}
			})
			a := limitOf(t, algo.GCRA, 1000)
			try := func(n int) (ok int) {
				for i := range n {
					began := time.Now()
					o, class, err := ask(t.Context(), l, a, "k", 1)
					if took := time.Since(began); took > 50*time.Millisecond {
						t.Errorf("%s: a call takes %v", name, took)
					}
					if class == breaker.ClassOK {
						ok++
						l.Free(o)
					} else if c.never && i >= 10 && !redislink.NeverExecuted(err) { // the first ones meet connections that were reset
						t.Errorf("%s: %v may have been executed", name, err)
					}
					time.Sleep(20 * time.Millisecond)
				}
				return ok
			}
			if n := try(20); n != 20 {
				t.Errorf("%s: %d of 20 at first", name, n)
			}
			if c.path != nil {
				r.SetPath("a", c.path)
			} else {
				r.Set(c.health)
			}
			if n := try(50); n != 0 {
				t.Errorf("%s: %d in the outage", name, n)
			}
			if l.Server("k").Answers() {
				t.Errorf("%s: the breaker is %v", name, l.Server("k").Breaker.State())
			}
			if l.Exec(t.Context(), "k", &lua.Beat{Key: l.Names.Peers(0), ID: "x", Life: 1000}) == nil {
				t.Errorf("%s: a heartbeat is answered", name)
			}
			r.SetPath("a", func(p *sim.Path) { *p = sim.Path{} })
			r.Set(func(h *sim.Health) { *h = sim.Health{} })
			time.Sleep(6 * time.Second)
			try(50)
			if n := try(20); n != 20 {
				t.Errorf("%s: %d of 20 afterwards", name, n)
			}
			mu.Lock()
			defer mu.Unlock()
			if opened == 0 || closed != 1 || calls[breaker.ClassOK] < 40 {
				t.Errorf("%s: opened %d times, closed %d; %v", name, opened, closed, calls)
			}
		})
	}
}

// TestSeveralAtOnce: requests that are made together share calls, and each has its own error.
func TestSeveralAtOnce(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		l := process(t, r, "a", nil)
		ops := func(n int) (ops []*redislink.Op) {
			for i := range n {
				id := fmt.Sprint("k", i)
				of := &lua.Holders{ID: id, Key: l.Names.Permits(id), Callers: []string{"x"}}
				ops = append(ops, &redislink.Op{ID: id, Keep: of, TTL: 1_000_000})
			}
			return ops
		}
		all := ops(50)
		before := r.Commands()
		for i, err := range l.AskAll(t.Context(), all) {
			if err != nil || len(all[i].Lost) != 1 || !all[i].Lost[0] {
				t.Errorf("%d: %v, %v", i, err, all[i].Lost)
			}
		}
		if n := r.Commands() - before; n > 20 {
			t.Errorf("%d commands for 50", n)
		}
		again := ops(50)
		for i, err := range l.AskAll(t.Context(), again) {
			if err != nil || again[i].Lost[0] {
				t.Errorf("%d is lost, %v", i, err)
			}
		}
		ended, end := context.WithCancel(t.Context())
		end()
		for _, err := range l.AskAll(ended, ops(3)) {
			if failed, ok := errors.AsType[*redislink.Error](err); !ok || failed.Class != breaker.ClassCaller {
				t.Errorf("after the end of its context: %v", err)
			}
		}
		r.SetPath("a", func(p *sim.Path) { p.Refused = true })
		for range 10 {
			l.AskAll(t.Context(), ops(3))
			time.Sleep(10 * time.Millisecond)
		}
		for _, err := range l.AskAll(t.Context(), ops(3)) {
			if !errors.Is(err, redislink.ErrOpen) || !redislink.FallsBack(err) {
				t.Errorf("with an open breaker: %v", err)
			}
		}
		l.Close(func() {})
		if !l.IsClosed() || l.Life().Err() == nil {
			t.Error("not closed")
		}
		o := ops(1)[0]
		if class, err := l.Do(t.Context(), l.Server("k"), o, time.Second); class != breaker.ClassCaller || !errors.Is(err, redislink.ErrClosed) {
			t.Errorf("after Close: %v, %v", class, err)
		}
	})
}
