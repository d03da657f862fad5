package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/redislink"
	"github.com/holdfast-go/holdfast/internal/sim"
	"github.com/holdfast-go/holdfast/limiter"
)

// daily is a limit of which nothing comes back in a test.
func daily(n int) limiter.Limit { return limiter.FixedWindow(limiter.Per(n, 24*time.Hour)) }

// slotted is a hook of a client whose server takes no two keys in one call.
type slotted struct{}

type crossSlot struct{}

func (crossSlot) Error() string { return "CROSSSLOT Keys in request don't hash to the same slot" }
func (crossSlot) RedisError()   {}

func (*slotted) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*slotted) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") && cmd.Args()[2] != any(1) {
			cmd.SetErr(crossSlot{})
			return crossSlot{}
		}
		return next(ctx, cmd)
	}
}

func (*slotted) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestPartsInSeveralSlots: what Redis does not decide together is decided one part after the other, and what one has taken goes
// back when another denies or fails; nothing of it is kept by a peek.
func TestPartsInSeveralSlots(t *testing.T) {
	for n := range 3 { // the part that is small
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			rdb := clients(t, r)()
			rdb.AddHook(new(slotted))
			limits := []limiter.Limit{daily(10), daily(11), daily(12)}
			limits[n] = daily(3)
			parts := layers(t, []redis.UniversalClient{rdb}, limits, patient())
			m := newMulti(t, parts...)
			want := func(when string, used int) {
				t.Helper()
				for i, p := range parts {
					if got := left(t, p.Limiter, "k@"+p.Name); got != limits[i].Burst()-used && got != limits[i].Rate().N-used {
						t.Errorf("%d, %s: %d are left of part %d of %v", n, when, got, i, limits[i])
					}
				}
			}
			if res, err := m.AllowN(t.Context(), "k", 2); err != nil || !res.Allowed || res.Remaining != 1 {
				t.Errorf("%d: %+v, %v", n, res, err)
			}
			want("allowed", 2)
			res, err := m.Allow(t.Context(), "k", limiter.Cost(2))
			if err != nil || res.Allowed || res.Denied != parts[n].Name || len(res.Parts) != n+1 {
				t.Errorf("%d: %+v, %v", n, res, err)
			}
			want("denied", 2)
			reserved, err := m.Reserve(t.Context(), "k")
			must(t, err)
			want("reserved", 3)
			must(t, reserved.Cancel(t.Context()))
			want("cancelled", 2)
			if res, err := m.Allow(t.Context(), "k", limiter.Cost(0)); err != nil || !res.Allowed || len(res.Parts) != 3 || res.Remaining != 1 {
				t.Errorf("%d, a peek: %+v, %v", n, res, err)
			}
			must(t, parts[n].Limiter.Close())
			if _, err := m.Allow(t.Context(), "k"); !errors.Is(err, limiter.ErrClosed) || !strings.Contains(err.Error(), fmt.Sprintf("%q", parts[n].Name)) {
				t.Errorf("%d: %v", n, err)
			}
		})
	}
}

// bySlot is a hook of a client whose server takes keys of one hash slot only in a call. It notes how many each had.
type bySlot struct{ had []int }

func (*bySlot) DialHook(next redis.DialHook) redis.DialHook { return next }

func (b *bySlot) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if n, ok := cmd.Args()[2].(int); ok && strings.HasPrefix(cmd.Name(), "eval") {
			slots := map[int]bool{}
			for _, key := range cmd.Args()[3 : 3+n] {
				_, tag, _ := strings.Cut(*key.(*string), "{") // by reference, as package lua passes them
				slots[redislink.Slot(strings.TrimSuffix(tag, "}"))] = true
			}
			if len(slots) > 1 {
				cmd.SetErr(crossSlot{})
				return crossSlot{}
			}
			b.had = append(b.had, n)
		}
		return next(ctx, cmd)
	}
}

func (*bySlot) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestPartsOfOneSlotTogether: of a server that takes keys of one hash slot only, parts of one key are one call, and others
// one for each key.
func TestPartsOfOneSlotTogether(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		rdb, seen := clients(t, r)(), new(bySlot)
		rdb.AddHook(seen)
		part := func(name string, key func(string) string) limiter.Part {
			return limiter.Part{Name: name, Key: key, Limiter: newLimiter(t, rdb, daily(10), patient(), limiter.WithShare(1), limiter.WithPrefix(name))}
		}
		m := newMulti(t, part("a", nil), part("b", func(string) string { return "all" }), part("c", nil))
		for _, want := range []string{"[1 1 1]", "[2 1]", "[2 1]"} { // the server says at first which it takes
			if res, err := m.Allow(t.Context(), "k"); err != nil || !res.Allowed {
				t.Errorf("%+v, %v", res, err)
			}
			if got := fmt.Sprint(seen.had); got != want {
				t.Errorf("calls of so many keys: %s, want %s", got, want)
			}
			seen.had = nil
		}
	})
}

// TestPoliciesOfPartsTogether: parts of one Redis that is away are decided each by its own policy: when one denies none is
// charged, here or later in Redis.
func TestPoliciesOfPartsTogether(t *testing.T) {
	for name, c := range map[string]struct {
		policies []fallback.Policy
		admitted int    // of six
		fails    string // the part of the error
	}{
		"local and open":  {[]fallback.Policy{fallback.Local, fallback.Open}, 5, ""},
		"open and local":  {[]fallback.Policy{fallback.Open, fallback.Local}, 5, ""},
		"local and local": {[]fallback.Policy{fallback.Local, fallback.Local}, 5, ""},
		"open":            {[]fallback.Policy{fallback.Open, fallback.Open}, 6, ""},
		"closed at last":  {[]fallback.Policy{fallback.Local, fallback.Local, fallback.Closed}, 0, "c"},
		"closed at first": {[]fallback.Policy{fallback.Closed, fallback.Local}, 0, "a"},
	} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			rdb := clients(t, r)()
			var parts []limiter.Part
			for i, policy := range c.policies {
				part := string(rune('a' + i))
				opts := []limiter.Option{limiter.WithPrefix(part), limiter.WithFallback(policy), limiter.WithoutDenialCache()}
				if policy == fallback.Local {
					opts = append(opts, limiter.WithShare(1))
				}
				parts = append(parts, limiter.Part{Name: part, Limiter: newLimiter(t, rdb, daily(5), opts...)})
			}
			m := newMulti(t, parts...)
			r.SetPath("p1", func(p *sim.Path) { p.Refused = true })
			admitted := 0
			for range 6 {
				res, err := m.Allow(t.Context(), "k")
				if errors.Is(err, limiter.ErrUnavailable) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), fmt.Sprintf("%q", c.fails)) {
					t.Errorf("%s: %v", name, err)
				}
				if res.Allowed {
					if admitted++; len(res.Parts) != len(parts) || res.Admitted != 1 {
						t.Errorf("%s: %+v", name, res)
					}
				} else if err == nil && res.Source != limiter.SourceLocal {
					t.Errorf("%s: %+v", name, res)
				}
			}
			if admitted != c.admitted {
				t.Errorf("%s: %d admitted, want %d", name, admitted, c.admitted)
			}
			for i, p := range parts {
				if c.policies[i] != fallback.Local {
					continue
				}
				if got := left(t, p.Limiter, "k"); got != 5-c.admitted {
					t.Errorf("%s: %d are left of part %d", name, got, i)
				}
			}
			r.SetPath("p1", func(p *sim.Path) { p.Refused = false })
			other := clients(t, r)
			for range 30 {
				time.Sleep(time.Second)
				for _, p := range parts {
					_, _ = p.Limiter.Allow(t.Context(), "another")
				}
			}
			for i, p := range parts {
				check := newLimiter(t, other(), daily(5), limiter.WithPrefix(p.Name), limiter.WithShare(1))
				want := 5
				if c.policies[i] == fallback.Local {
					want -= c.admitted
				}
				if got := left(t, check, "k"); got != want || p.Limiter.Health().Owed != 0 {
					t.Errorf("%s: Redis has %d of part %d, want %d; %d owed", name, got, i, want, p.Limiter.Health().Owed)
				}
			}
		})
	}
}

// TestHooksOfOnePart: the hook of a part is told what its part was asked, and an error that is its own.
func TestHooksOfOnePart(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		rdb := clients(t, r)()
		var told []limiter.DecisionInfo
		plain := newLimiter(t, rdb, daily(3), patient(), limiter.WithPrefix("plain"))
		seen := newLimiter(t, rdb, daily(5), patient(), limiter.WithPrefix("seen"), limiter.WithHooks(limiter.Hooks{Decision: func(_ context.Context, d limiter.DecisionInfo) { told = append(told, d) }}))
		m := newMulti(t, limiter.Part{Name: "plain", Limiter: plain}, limiter.Part{Name: "seen", Limiter: seen})
		for _, n := range []int{2, 2, 0} {
			_, err := m.Allow(t.Context(), "k", limiter.Cost(n))
			must(t, err)
		}
		if len(told) != 2 || told[0].Key != "k" || told[0].Cost != 2 || !told[0].Result.Allowed || told[0].NotCharged || told[0].Took <= 0 || !told[1].Result.Allowed || !told[1].NotCharged {
			t.Errorf("%+v", told)
		}
		must(t, seen.Close())
		if _, err := m.Allow(t.Context(), "k"); !errors.Is(err, limiter.ErrClosed) || len(told) != 3 || !errors.Is(told[2].Err, limiter.ErrClosed) {
			t.Errorf("%v, %+v", err, told)
		}
	})
}

// TestLineOfAMulti: callers stand in line. Who has too little time behind the others is told at once, and all are when a part is
// closed.
func TestLineOfAMulti(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		rdb := clients(t, r)()
		fast := newLimiter(t, rdb, limiter.GCRA(limiter.PerSecond(100), 100), patient(), limiter.WithPrefix("fast"))
		slow := newLimiter(t, rdb, limiter.GCRA(limiter.Per(1, 10*time.Second), 2), patient(), limiter.WithPrefix("slow"))
		m := newMulti(t, limiter.Part{Name: "fast", Limiter: fast}, limiter.Part{Name: "slow", Limiter: slow})
		_, err := m.Allow(t.Context(), "k", limiter.Cost(2))
		must(t, err)
		began := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			if res, err := m.Wait(t.Context(), "k"); err != nil || !res.Allowed {
				t.Errorf("%+v, %v", res, err)
			}
			if took := time.Since(began); took < 9*time.Second || took > 12*time.Second {
				t.Errorf("the first one waits for %v", took)
			}
		})
		time.Sleep(time.Second)
		late := func(left time.Duration, opts ...limiter.CallOption) {
			t.Helper()
			ctx, end := context.WithTimeout(t.Context(), left)
			defer end()
			began := time.Now()
			_, err := m.Wait(ctx, "k", opts...)
			var wait *limiter.WaitError
			if !errors.As(err, &wait) || time.Since(began) != 0 || wait.Remaining != left {
				t.Errorf("%v after %v", err, time.Since(began))
			}
		}
		// Two units are the burst, and three take ten seconds more; of at most six, one is enough.
		late(9 * time.Second)
		late(18*time.Second, limiter.Cost(2))
		late(9*time.Second, limiter.AtMost(6))
		if _, err := m.Wait(t.Context(), "k", limiter.Cost(-1)); !errors.Is(err, limiter.ErrInvalidCost) {
			t.Error(err)
		}
		if _, err := m.Wait(t.Context(), "k", limiter.Cost(6)); !errors.Is(err, limiter.ErrCostExceedsLimit) {
			t.Error(err)
		}
		wg.Go(func() {
			res, err := m.Wait(t.Context(), "k", limiter.AtMost(6))
			if took := time.Since(began); err != nil || res.Admitted != 1 || took < 19*time.Second || took > 25*time.Second {
				t.Errorf("%+v, %v, after %v", res, err, took)
			}
		})
		wg.Wait()
		wg.Go(func() {
			if _, err := m.Wait(t.Context(), "k"); !errors.Is(err, limiter.ErrClosed) {
				t.Error(err)
			}
			if took := time.Since(began); took > 27*time.Second {
				t.Errorf("it was told after %v", took)
			}
		})
		time.Sleep(time.Second)
		must(t, slow.Close())
		wg.Wait()
	})
}

// TestShapedPartsInLine: callers of a part that shapes start one after the other, as far apart as it says.
func TestShapedPartsInLine(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		rdb := clients(t, r)()
		shaping := newLimiter(t, rdb, limiter.LeakyBucketShaping(limiter.Per(1, time.Second), 20), patient(), limiter.WithPrefix("shaping"))
		wide := newLimiter(t, rdb, daily(100), patient(), limiter.WithPrefix("wide"))
		m := newMulti(t, limiter.Part{Name: "wide", Limiter: wide}, limiter.Part{Name: "shaping", Limiter: shaping})
		began := time.Now()
		var wg sync.WaitGroup
		var mu sync.Mutex
		var starts []time.Duration
		for range 5 {
			wg.Go(func() {
				if _, err := m.Wait(t.Context(), "k"); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				starts = append(starts, time.Since(began).Round(100*time.Millisecond))
			})
		}
		wg.Wait()
		for i, at := range starts {
			if at != time.Duration(i)*time.Second {
				t.Errorf("starts at %v", starts)
				break
			}
		}
	})
}

// TestDecisionsOnPartsOfAKey: each is counted once, whatever number of parts was asked; a peek says what the part with most room
// has; and both calls of a decision have one budget.
func TestDecisionsOnPartsOfAKey(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		lim := newLimiter(t, clients(t, r)(), daily(8), limiter.WithShare(1), limiter.WithKeyShards(4), limiter.WithBudget(50*time.Millisecond))
		counted := func() map[limiter.Source]uint64 { return lim.Health().Decisions }
		total := func() (n uint64) {
			for _, k := range counted() {
				n += k
			}
			return n
		}
		admitted := 0
		for i := range 30 {
			res, err := lim.Allow(t.Context(), "k")
			must(t, err)
			if res.Allowed {
				admitted++
			} else if res.RetryAfter <= 0 || res.Limit != lim.Limit() || res.Remaining != 0 {
				t.Errorf("%+v", res)
			}
			if n := total(); n != uint64(i+1) {
				t.Fatalf("%d decisions are counted as %d: %v", i+1, n, counted())
			}
		}
		if admitted != 8 {
			t.Errorf("%d admitted of 8", admitted)
		}
		before := total()
		for key, want := range map[string]int{"k": 0, "unused": 2} {
			if res, err := lim.Peek(t.Context(), key); err != nil || res.Remaining != want {
				t.Errorf("%s: %+v, %v", key, res, err)
			}
		}
		if n := total() - before; n != 2 {
			t.Errorf("two peeks are counted as %d", n)
		}
		must(t, lim.Refund(t.Context(), "k", 2))
		again := 0
		for range 30 {
			res, err := lim.Allow(t.Context(), "k")
			must(t, err)
			if res.Allowed {
				again++
			}
		}
		if again != 2 {
			t.Errorf("%d admitted after a refund of 2", again)
		}
		// A part denies after 30 ms, so that 20 ms are left for the next one.
		other := newLimiter(t, clients(t, r)(), daily(2), limiter.WithShare(1), limiter.WithKeyShards(2), limiter.WithBudget(50*time.Millisecond), limiter.WithoutDenialCache())
		for range 2 {
			_, err := other.Allow(t.Context(), "far")
			must(t, err)
		}
		r.Set(func(h *sim.Health) { h.Slow = 30 * time.Millisecond })
		began := time.Now()
		if _, err := other.Allow(t.Context(), "far"); err != nil || time.Since(began) > 51*time.Millisecond {
			t.Errorf("%v, after %v with a budget of 50 ms", err, time.Since(began))
		}
	})
}

// TestSettledInAnOutage: what costs more than was reserved is charged by the policy, while Redis is away; what was given back
// there is here, too.
func TestSettledInAnOutage(t *testing.T) {
	for policy, fails := range map[fallback.Policy]bool{fallback.Local: false, fallback.Open: false, fallback.Closed: true} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			opts := []limiter.Option{limiter.WithFallback(policy)}
			if policy == fallback.Local {
				opts = append(opts, limiter.WithShare(0.5))
			}
			lim := newLimiter(t, clients(t, r)(), daily(20), opts...)
			first, second := reserve(t, lim, "k", 4), reserve(t, lim, "k", 4)
			r.SetPath("p1", func(p *sim.Path) { p.Refused = true })
			_, _ = lim.Allow(t.Context(), "another") // of which Redis may have the command
			if err := first.Settle(t.Context(), 7); errors.Is(err, limiter.ErrUnavailable) != fails || !fails && err != nil {
				t.Errorf("%v: %v", policy, err)
			}
			if err := lim.Refund(t.Context(), "k", 1); !errors.Is(err, limiter.ErrUnavailable) {
				t.Errorf("%v: a refund: %v", policy, err)
			}
			if policy == fallback.Open {
				if r := reserve(t, lim, "k", 2); r.Source != limiter.SourceOpen || r.Settle(t.Context(), 1) != nil {
					t.Errorf("%+v", r.Result)
				}
			}
			_ = second.Settle(t.Context(), 1)
			r.SetPath("p1", func(p *sim.Path) { p.Refused = false })
			for range 30 {
				time.Sleep(time.Second)
				_, _ = lim.Allow(t.Context(), "another")
			}
			want := map[fallback.Policy]int{fallback.Local: 20 - 6 - 1, fallback.Open: 20 - 4 - 1, fallback.Closed: 20 - 4 - 1}[policy]
			if got := left(t, newLimiter(t, clients(t, r)(), daily(20), limiter.WithShare(1)), "k"); got != want && got != want-1 {
				t.Errorf("%v: %d are left in Redis, want %d", policy, got, want)
			}
		})
	}
}

// TestBlockedInAnOutage: this process obeys a block that Redis does not know, also when Redis is back, which then gets it.
func TestBlockedInAnOutage(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		make := clients(t, r)
		here, there := newLimiter(t, make(), daily(20), limiter.WithShare(0.5)), newLimiter(t, make(), daily(20), limiter.WithShare(0.5))
		r.SetPath("p1", func(p *sim.Path) { p.Refused = true })
		if err := here.Block(t.Context(), "k", time.Hour); !errors.Is(err, limiter.ErrUnavailable) {
			t.Error(err)
		}
		for _, n := range []int{0, 1} {
			if res, err := here.AllowN(t.Context(), "k", n); err != nil || res.Allowed || res.Source != limiter.SourceLocal || res.RetryAfter < 59*time.Minute {
				t.Errorf("%+v, %v", res, err)
			}
		}
		if res, err := there.Allow(t.Context(), "k"); err != nil || !res.Allowed {
			t.Errorf("%+v, %v", res, err)
		}
		r.SetPath("p1", func(p *sim.Path) { p.Refused = false })
		for range 20 {
			time.Sleep(time.Second)
			if res, err := here.Allow(t.Context(), "k"); err != nil || res.Allowed || res.RetryAfter < 58*time.Minute {
				t.Errorf("%+v, %v", res, err)
			}
		}
		if res, err := there.Allow(t.Context(), "k"); err != nil || res.Allowed || res.RetryAfter < 58*time.Minute {
			t.Errorf("elsewhere: %+v, %v", res, err)
		}
		must(t, here.Reset(t.Context(), "k"))
		if res, err := here.Allow(t.Context(), "k"); err != nil || !res.Allowed || res.Source != limiter.SourceRedis {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

// TestDebtsAreCharged: what was admitted without Redis is charged when it is back, and the one share is used of a fleet of four.
func TestDebtsAreCharged(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		lim := newLimiter(t, clients(t, r)(), daily(20), limiter.WithShare(0.25))
		r.SetPath("p1", func(p *sim.Path) { p.Refused = true })
		admitted := 0
		for range 20 {
			res, err := lim.Allow(t.Context(), "k")
			must(t, err)
			if res.Allowed {
				admitted++
			}
			if res.Source != limiter.SourceLocal || res.Claim != 0.25 {
				t.Errorf("%+v", res)
			}
		}
		if n := lim.Health().Owed; admitted != 5 || n != 1 {
			t.Errorf("%d admitted of a quarter of 20, %d keys owe", admitted, n)
		}
		if res, err := lim.AllowN(t.Context(), "k", 6); err != nil || res.Allowed || !res.BeyondClaim || res.RetryAfter < defaultBudget {
			t.Errorf("more than the claim: %+v, %v", res, err)
		}
		r.SetPath("p1", func(p *sim.Path) { p.Refused = false })
		for range 20 {
			time.Sleep(time.Second)
			_, _ = lim.Allow(t.Context(), "another")
		}
		if h := lim.Health(); h.Owed != 0 || h.Reconciled != 1 || left(t, lim, "k") != 15 {
			t.Errorf("%+v, %d are left", h, left(t, lim, "k"))
		}
	})
}

// TestRememberedDenials: of as many units, of no peek, and not where that is not wanted.
func TestRememberedDenials(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		rdb := clients(t, r)()
		for _, off := range []bool{false, true} {
			opts := []limiter.Option{patient(), limiter.WithPrefix(fmt.Sprint("off-", off))}
			if off {
				opts = append(opts, limiter.WithoutDenialCache())
			}
			lim := newLimiter(t, rdb, daily(10), opts...)
			for i, c := range []struct {
				n, left int
				known   bool
			}{{8, 2, false}, {3, 2, false}, {3, 2, true}, {2, 0, false}, {1, 0, false}, {1, 0, true}, {0, 0, false}} {
				known, before := c.known && !off, r.Commands()
				res, err := lim.AllowN(t.Context(), "k", c.n)
				asked := r.Commands() != before
				if err != nil || res.Remaining != c.left && !known || asked == known || (res.Source == limiter.SourceCache) == asked {
					t.Errorf("off %v, %d: %+v, %v, asked %v", off, i, res, err, asked)
				}
			}
			for range 2 { // what is left is as much as was taken
				if res, err := lim.AllowN(t.Context(), "half", 5); err != nil || !res.Allowed {
					t.Errorf("off %v: %+v, %v", off, res, err)
				}
			}
		}
	})
}
