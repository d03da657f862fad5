package admission

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/retry"
)

// script is a limiter that answers as it is told, and then admits.
type script struct {
	mu      sync.Mutex
	answers map[string][]limiter.Result // by key
	err     error
	asked   []string // key and cost of each question
	blocked []string // key and time of each Block
	back    []string // key of each request that was given back
}

func (s *script) AllowN(_ context.Context, key string, n int) (limiter.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, key+" "+strconv.Itoa(n))
	if s.err != nil {
		return limiter.Result{}, s.err
	}
	res := limiter.Result{Allowed: true, Source: limiter.SourceLocal}
	if a := s.answers[key]; len(a) > 0 {
		res, s.answers[key] = a[0], a[1:]
	}
	return res, nil
}

// blocking is one that can also stop a key for the fleet.
type blocking struct{ *script }

func (b blocking) Block(_ context.Context, key string, d time.Duration, _ ...limiter.Limit) error {
	b.blocked = append(b.blocked, key+" "+d.String())
	return nil
}

// Take is AllowN, of what is learnt.
func (b blocking) Take(ctx context.Context, key string) (limiter.Result, Taken) {
	res, err := b.AllowN(ctx, key, 1)
	if err != nil || !res.Allowed {
		return res, nil
	}
	return res, unitOf{b, key}
}

// unitOf is what a call has of a key.
type unitOf struct {
	b   blocking
	key string
}

func (u unitOf) Back(context.Context) { u.b.back = append(u.b.back, u.key) }

func newClient(t *testing.T, l limiter.Allower, change func(*Settings)) *Client {
	t.Helper()
	s := Defaults()
	s.Limiter, s.Logger = l, slog.New(slog.DiscardHandler)
	if change != nil {
		change(&s)
	}
	c, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// waitsOf begins a call that notes its waits.
func waitsOf(t *testing.T, c *Client) (*Call, *[]Wait) {
	x, waits := Begin(t.Context(), c, "h", "k"), new([]Wait)
	x.OnWait = func(w Wait) { *waits = append(*waits, w) }
	return &x, waits
}

// scoped is what belongs to scopes.
func scoped(scopes ...string) func(string, string, any) []string {
	return func(string, string, any) []string { return scopes }
}

func denied(after time.Duration, source limiter.Source) limiter.Result {
	return limiter.Result{RetryAfter: after, Source: source, Limit: limiter.GCRA(limiter.PerSecond(1), 1)}
}

// TestDenialIsWaitedFor: for as long as an own limiter says, and where processes share one, up
// to a quarter and 50 ms longer, so that the one nearest to Redis does not take each unit.
func TestDenialIsWaitedFor(t *testing.T) {
	for _, c := range []struct {
		after  time.Duration
		source limiter.Source
		most   time.Duration
	}{
		{time.Second, limiter.SourceLocal, time.Second},
		{time.Second, limiter.SourceRedis, 1050 * time.Millisecond},
		{40 * time.Millisecond, limiter.SourceRedis, 50 * time.Millisecond},
		{0, limiter.SourceLocal, time.Millisecond},
	} {
		longest := time.Duration(0)
		for range 100 {
			synctest.Test(t, func(t *testing.T) {
				lim := &script{answers: map[string][]limiter.Result{"k": {denied(c.after, c.source)}}}
				x, waits := waitsOf(t, newClient(t, lim, nil))
				start := time.Now()
				if s := x.Admit(); s != nil {
					t.Fatalf("%+v", s)
				}
				took := time.Since(start)
				if took < max(time.Millisecond, c.after) || took > c.most || len(lim.asked) != 2 {
					t.Fatalf("%v: waited %v, asked %v", c.after, took, lim.asked)
				}
				if len(*waits) != 1 || (*waits)[0].Why != retry.WaitLimiter || (*waits)[0].For != took {
					t.Fatalf("waited %v, and the hook got %+v", took, *waits)
				}
				longest = max(longest, took)
			})
		}
		if least := max(time.Millisecond, c.after); longest < least+(c.most-least)*3/4 {
			t.Errorf("%v from %v: the longest of 100 waits is %v, want near %v", c.after, c.source, longest, c.most)
		}
	}
}

// TestOneWaitInLine: the hook hears once that a call stands behind others, also when more are before it later.
func TestOneWaitInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, waits := waitsOf(t, newClient(t, &script{}, nil))
		x.turn = turn{of: lineOf{key: "k"}}
		w := &waiting{Call: *x}
		for ahead := range 3 {
			if err := w.Queue(1+ahead, time.Second); err != nil {
				t.Fatal(err)
			}
		}
		if want := []Wait{{For: time.Second, Why: retry.WaitLimiter}}; !slices.Equal(*waits, want) {
			t.Errorf("%+v", *waits)
		}
	})
}

// TestDelayIsWaitedFor: the limiter lets a call start later, which is for this call alone; one
// that does not fit ends it.
func TestDelayIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := limiter.Result{Allowed: true, Delay: time.Minute, Source: limiter.SourceLocal}
		lim := &script{answers: map[string][]limiter.Result{"k": {late, late}}}
		c := newClient(t, lim, nil)
		x, waits := waitsOf(t, c)
		start := time.Now()
		if s := x.Admit(); s != nil || time.Since(start) != time.Minute {
			t.Errorf("%+v after %v", s, time.Since(start))
		}
		if want := []Wait{{For: time.Minute, Why: retry.WaitLimiter}}; !slices.Equal(*waits, want) {
			t.Errorf("%+v", *waits)
		}
		x, waits = waitsOf(t, c)
		x.Allow.Each = time.Second
		if s := x.Admit(); s == nil || s.Reason != retry.Throttled || s.Key != "k" || s.Wait != time.Minute || len(*waits) != 0 {
			t.Errorf("%+v, waits %+v", s, *waits)
		}
	})
}

// TestScopesAreAskedWithoutACost: before the key, of a limiter that can stop them; a delay of
// theirs is not the call's.
func TestScopesAreAskedWithoutACost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := &script{answers: map[string][]limiter.Result{"k#a": {
			denied(2*time.Second, limiter.SourceLocal), {Allowed: true, Delay: time.Minute, Source: limiter.SourceLocal},
		}}}
		admit := func(l limiter.Allower) (took time.Duration) {
			start := time.Now()
			x := Begin(t.Context(), newClient(t, l, nil), "h", "k")
			x.Scopes, x.Cost = scoped("k#a"), 3
			if s := x.Admit(); s != nil {
				t.Errorf("%+v", s)
			}
			return time.Since(start)
		}
		if took := admit(lim); took != 0 || strings.Join(lim.asked, ", ") != "k 3" {
			t.Errorf("asked %v of one that can stop no key, %v", lim.asked, took)
		}
		lim.asked = nil
		// More than the time of a unit: those who are stopped together spread.
		if took := admit(blocking{lim}); took < 2*time.Second || took > 3*time.Second || strings.Join(lim.asked, ", ") != "k#a 0, k#a 0, k 3" {
			t.Errorf("asked %v, %v", lim.asked, took)
		}
		lim.err = errors.New("down")
		x := Begin(t.Context(), newClient(t, lim, nil), "h", "k")
		if s := x.Admit(); s == nil || s.Reason != retry.LimiterFailed || s.Key != "k" || !errors.Is(s.Err, lim.err) {
			t.Errorf("%+v", s)
		}
	})
}

// TestLearntIsAskedInTurn: for the scopes and for the key, each at the call's cost. Those who wait
// for the end of a window come back within a quarter of it; one that cannot wait ends.
func TestLearntIsAskedInTurn(t *testing.T) {
	longest := time.Duration(0)
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			learnt := &script{answers: map[string][]limiter.Result{"k#a": {denied(time.Minute, limiter.SourceLocal)}}}
			lim := &script{}
			x := Begin(t.Context(), newClient(t, lim, nil), "h", "k")
			x.Scopes, x.Learnt = scoped("k#a"), blocking{learnt}
			start := time.Now()
			s := x.Admit()
			took := time.Since(start)
			if s != nil || took < time.Minute || took > time.Minute+250*time.Millisecond {
				t.Fatalf("%+v after %v", s, took)
			}
			if got := strings.Join(learnt.asked, ", "); got != "k#a 1, k#a 1, k 1" || strings.Join(lim.asked, ", ") != "k 1" {
				t.Fatalf("asked %s and %v", got, lim.asked)
			}
			longest = max(longest, took)
		})
	}
	if longest < time.Minute+200*time.Millisecond {
		t.Errorf("the longest of 50 waits is %v: they are not spread", longest)
	}
	synctest.Test(t, func(t *testing.T) {
		learnt := &script{answers: map[string][]limiter.Result{"k#a": {denied(time.Hour, limiter.SourceLocal)}}}
		x := Begin(t.Context(), newClient(t, nil, nil), "h", "k")
		x.Scopes, x.Learnt = scoped("k#a"), blocking{learnt}
		if s := x.Admit(); s == nil || s.Reason != retry.Throttled || s.Key != "k#a" || s.Wait != time.Hour || len(learnt.asked) != 1 {
			t.Errorf("%+v, asked %v", s, learnt.asked)
		}
	})
}

// TestLearntUnitsOfAnUnsentCallAreGivenBack: of a call that ends or waits at a later gate, or begins again.
func TestLearntUnitsOfAnUnsentCallAreGivenBack(t *testing.T) {
	for name, c := range map[string]struct {
		answer limiter.Result // of the key, for which another wait is asked after its scope
		cool   bool
		cancel bool
		throws bool // by the throttle, while it waits
		back   string
	}{
		"denied":     {answer: denied(time.Hour, limiter.SourceLocal), back: "k#a"},
		"sent later": {answer: denied(2*time.Second, limiter.SourceLocal), back: "k#a"},
		"void":       {answer: denied(2*time.Second, limiter.SourceLocal), cool: true, back: "k#a"},
		"canceled":   {answer: denied(2*time.Second, limiter.SourceLocal), cancel: true, back: "k#a"},
		"throttled":  {answer: denied(2*time.Second, limiter.SourceLocal), throws: true, back: "k#a"},
	} {
		synctest.Test(t, func(t *testing.T) {
			learnt := &script{answers: map[string][]limiter.Result{"k": {c.answer}}}
			cl := newClient(t, nil, func(s *Settings) {
				s.Throttle = &retry.ThrottleSettings{MinRequests: 1, Rand: func() float64 { return 0 }}
			})
			canceled := make(chan struct{})
			x := Begin(t.Context(), cl, "h", "k")
			x.Scopes, x.Learnt, x.Canceled = scoped("k#a"), blocking{learnt}, canceled
			time.AfterFunc(time.Second, func() {
				other := Begin(t.Context(), cl, "h", "k")
				if c.cool {
					other.Cool(Cooldown{For: 10 * time.Second, Scope: "k#a"})
				}
				if c.cancel {
					close(canceled)
				}
				for range 20 {
					if c.throws {
						other.Report(Failed)
					}
				}
			})
			stops := c.cancel || c.throws || c.answer.RetryAfter == time.Hour
			if s := x.Admit(); (s != nil) != stops {
				t.Fatalf("%s: %+v", name, s)
			}
			if !stops {
				x.Send()
				x.GiveBack() // nothing is left of what was sent
			}
			if got := strings.Join(learnt.back, ", "); got != c.back {
				t.Errorf("%s: gave back %q of %v, want %q", name, got, learnt.asked, c.back)
			}
		})
	}
}

// TestWhoWaitsForTheLimiterHoldsNothing of what is learnt, and takes it with the limiter's unit.
func TestWhoWaitsForTheLimiterHoldsNothing(t *testing.T) {
	allowed := limiter.Result{Allowed: true, Source: limiter.SourceLocal}
	for name, c := range map[string]struct {
		learnt      []limiter.Result // of the scope
		ahead       bool             // another call of the key has asked before
		asked, back string
	}{
		"denied":           {nil, false, "k#a, k, k#a, k", "k#a, k"},
		"behind another":   {nil, true, "k, k#a, k, k#a, k", "k, k#a"},
		"the scope is out": {[]limiter.Result{allowed, denied(time.Minute, limiter.SourceLocal), denied(time.Second, limiter.SourceLocal)}, false, "k#a, k, k#a, k#a, k#a, k", "k#a, k"},
	} {
		synctest.Test(t, func(t *testing.T) {
			lim := &script{answers: map[string][]limiter.Result{"k": {denied(10*time.Second, limiter.SourceLocal)}}}
			learnt := &script{answers: map[string][]limiter.Result{"k#a": c.learnt}}
			cl := newClient(t, lim, nil)
			var wg sync.WaitGroup
			for _, first := range []bool{true, false} {
				if first && !c.ahead {
					continue
				}
				wg.Go(func() {
					x := Begin(t.Context(), cl, "h", "k")
					x.Learnt = blocking{learnt}
					if !first {
						x.Scopes = scoped("k#a")
					}
					if s := x.Admit(); s != nil {
						t.Errorf("%s: %+v", name, s)
					}
					x.Send()
				})
				synctest.Wait()
			}
			wg.Wait()
			if got := strings.ReplaceAll(strings.Join(learnt.asked, ", "), " 1", ""); got != c.asked {
				t.Errorf("%s: asked %s", name, got)
			}
			if got := strings.Join(learnt.back, ", "); got != c.back {
				t.Errorf("%s: gave back %s", name, got)
			}
		})
	}
}

// TestWhoWaitsForAScopeHoldsNothing of another one, and takes that when it leaves.
func TestWhoWaitsForAScopeHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		learnt := &script{answers: map[string][]limiter.Result{"k#b": {denied(10*time.Second, limiter.SourceLocal)}}}
		x := Begin(t.Context(), newClient(t, new(script), nil), "h", "k")
		x.Learnt, x.Scopes = blocking{learnt}, scoped("k#a", "k#b")
		var wg sync.WaitGroup
		wg.Go(func() {
			if s := x.Admit(); s != nil {
				t.Errorf("%+v", s)
			}
			x.Send()
		})
		synctest.Wait()
		back := slices.Clone(learnt.back) // while it waits
		wg.Wait()
		asked := strings.ReplaceAll(strings.Join(learnt.asked, ", "), " 1", "")
		if asked != "k#a, k#b, k#b, k#a, k" || !slices.Equal(back, []string{"k#a"}) || len(learnt.back) != 1 {
			t.Errorf("asked %s, gave back %v, and %v in the end", asked, back, learnt.back)
		}
	})
}

// TestDeniedCallHasOneUnit: a call that asks again before it has slept has no more of what is learnt than it needs.
func TestDeniedCallHasOneUnit(t *testing.T) {
	again := denied(time.Millisecond, limiter.SourceLocal)
	learnt := new(script)
	x := Begin(t.Context(), newClient(t, &script{answers: map[string][]limiter.Result{"k": {again, again}}}, nil), "h", "k")
	x.Learnt, x.turn = blocking{learnt}, turn{of: lineOf{key: "k"}}
	for range 3 {
		if _, err := x.ask(); err != nil {
			t.Error(err)
		}
	}
	if asked, back := strings.Join(learnt.asked, ", "), strings.Join(learnt.back, ", "); asked != "k 1" || back != "" || len(x.taken) != 1 {
		t.Errorf("asked %s, gave back %s, has %d", asked, back, len(x.taken))
	}
}

// TestRoomIsThatOfBoth the limiter and what is learnt.
func TestRoomIsThatOfBoth(t *testing.T) {
	for _, c := range []struct{ limiter, learnt, want int }{{3, 5, 3}, {5, 3, 3}, {5, 0, 0}} {
		answer := func(remaining int) *script {
			return &script{answers: map[string][]limiter.Result{"k": {{Allowed: true, Source: limiter.SourceLocal, Remaining: remaining}}}}
		}
		x := Begin(t.Context(), newClient(t, answer(c.limiter), nil), "h", "k")
		x.Learnt, x.turn = blocking{answer(c.learnt)}, turn{of: lineOf{key: "k"}}
		if a, err := x.ask(); err != nil || !a.Go || a.Room != c.want {
			t.Errorf("%+v: %+v, %v", c, a, err)
		}
	}
}

// TestRoomForOthers is what the limiter has left: half of it where processes share it, and none where it shapes, so
// that who asks first starts first. A scope is asked about without a cost, and what is learnt of the key does not count.
func TestRoomForOthers(t *testing.T) {
	for name, c := range map[string]struct {
		source limiter.Source
		shapes bool
		scope  bool
		want   int
	}{
		"of this process":    {limiter.SourceLocal, false, false, 7},
		"of several":         {limiter.SourceRedis, false, false, 3},
		"that shapes":        {limiter.SourceLocal, true, false, 0},
		"of a scope":         {limiter.SourceLocal, false, true, 7},
		"of a shaping scope": {limiter.SourceLocal, true, true, 7},
	} {
		res := limiter.Result{Allowed: true, Source: c.source, Remaining: 7, Limit: limiter.GCRA(limiter.PerSecond(1), 9)}
		if c.shapes {
			res.Limit = limiter.LeakyBucketShaping(limiter.PerSecond(1), 9)
		}
		cl := newClient(t, blocking{&script{answers: map[string][]limiter.Result{"k": {res}}}}, nil)
		x := Begin(t.Context(), cl, "h", "k")
		x.turn = turn{of: lineOf{key: "k", scope: c.scope}}
		if c.scope {
			x.Learnt = blocking{new(script)}
		}
		if a, err := x.ask(); err != nil || !a.Go || a.Room != c.want || cl.shapes.Load() != c.shapes {
			t.Errorf("%s: %+v, %v, shapes %v", name, a, err, cl.shapes.Load())
		}
	}
}

// TestNotSentAfterAll: what was admitted gives back what it has of learnt limits.
func TestNotSentAfterAll(t *testing.T) {
	learnt := new(script)
	x := Begin(t.Context(), newClient(t, nil, nil), "h", "k")
	x.Scopes, x.Learnt = scoped("k#a"), blocking{learnt}
	for range 2 {
		if s := x.Admit(); s != nil {
			t.Fatalf("%+v", s)
		}
		x.GiveBack()
		x.GiveBack()
	}
	if got := strings.Join(learnt.back, ", "); got != "k#a, k, k#a, k" {
		t.Errorf("gave back %s", got)
	}
}

// TestAdaptiveWaitIsNamed as such.
func TestAdaptiveWaitIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, nil, func(s *Settings) { s.Adaptive = true })
		x, waits := waitsOf(t, c)
		x.Admit()
		x.Send()
		x.Slow()
		for range 3 {
			if s := x.Admit(); s != nil {
				t.Fatalf("%+v", s)
			}
		}
		if len(*waits) != 2 || (*waits)[0].Why != retry.WaitAdaptive {
			t.Errorf("%+v", *waits)
		}
	})
}

// TestCooldown: what a server asks for is at most an hour and is told to the fleet once, and
// again when it lasts for more than a tenth longer.
func TestCooldown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		lim := &script{}
		c := newClient(t, blocking{lim}, func(s *Settings) { s.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		x, waits := waitsOf(t, c)
		cool := func(d time.Duration) time.Duration { return x.Cool(Cooldown{For: d, Source: "s"}) }
		if d := cool(0); d != 0 || c.gates.t.Len() != 0 {
			t.Errorf("no time: %v", d)
		}
		if d := cool(-1); d != 0 {
			t.Errorf("less than no time: %v", d)
		}
		other := Begin(t.Context(), c, "h", "")
		if d := other.Cool(Cooldown{For: time.Second}); d != 0 {
			t.Errorf("without a key: %v", d)
		}
		for _, step := range []struct{ sleep, ask, got time.Duration }{
			{0, 100 * time.Second, 100 * time.Second}, // told
			{0, 100 * time.Second, 0},
			{10 * time.Second, 100 * time.Second, 100 * time.Second}, // a tenth: not told
			{11 * time.Second, 100 * time.Second, 100 * time.Second}, // told
			{0, 2 * time.Hour, time.Hour},                            // told
		} {
			time.Sleep(step.sleep)
			if d := cool(step.ask); d != step.got {
				t.Errorf("after %v, %v: %v, want %v", step.sleep, step.ask, d, step.got)
			}
		}
		if got := strings.Join(lim.blocked, ", "); got != "k 1m40s, k 1m40s, k 1h0m0s" {
			t.Errorf("the fleet was told %s", got)
		}
		if n := strings.Count(log.String(), "cooling down"); n != 1 || !strings.Contains(log.String(), "level=INFO ") {
			t.Errorf("%d lines of log: %s", n, log.String())
		}
		if s := x.Admit(); s == nil || s.Reason != retry.CoolingDown || s.Wait != 2*time.Hour || s.Key != "k" || len(*waits) != 0 {
			t.Errorf("%+v, waits %+v", s, *waits)
		}
		x.Allow.Each, x.Allow.Total = 2*time.Hour, 2*time.Hour
		if s := x.Admit(); s != nil || len(*waits) == 0 || (*waits)[0].Why != retry.WaitCooldown || (*waits)[0].For != time.Hour {
			t.Errorf("%+v, waits %+v", s, *waits)
		}
	})
}

// TestFleetKnowsOfACooldownThatGrows: also where each answer prolongs it by less than a tenth, what the fleet knows
// ends at most that much too soon.
func TestFleetKnowsOfACooldownThatGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := &script{}
		x := Begin(t.Context(), newClient(t, blocking{lim}, nil), "h", "k")
		for range 21 {
			x.Cool(Cooldown{For: 100 * time.Second})
			time.Sleep(6 * time.Second)
		}
		if got := len(lim.blocked); got != 11 { // each second time
			t.Errorf("the fleet knows of %d of 21: %v", got, lim.blocked)
		}
		time.Sleep(time.Hour)
		for range 2 {
			x.Cool(Cooldown{For: time.Second})
		}
		if got := len(lim.blocked); got != 12 {
			t.Errorf("a new one is known %d times", got-11)
		}
	})
}

// TestCooldownOfAScope stops the calls that belong to it, and no others; who has its turn when
// it begins does not go.
func TestCooldownOfAScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := limiter.Result{Allowed: true, Delay: 5 * time.Second, Source: limiter.SourceLocal}
		lim := &script{answers: map[string][]limiter.Result{"k": {late}}}
		c := newClient(t, lim, nil)
		start := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			x := Begin(t.Context(), c, "h", "k")
			x.Scopes = scoped("k#a")
			if s := x.Admit(); s != nil || time.Since(start) < 11*time.Second || time.Since(start) > 16*time.Second {
				t.Errorf("%+v after %v", s, time.Since(start))
			}
		})
		time.Sleep(time.Second)
		x := Begin(t.Context(), c, "h", "k")
		x.Cool(Cooldown{For: 10 * time.Second, Scope: "k#a"})
		if s := x.Admit(); s != nil || time.Since(start) != time.Second {
			t.Errorf("without the scope: %+v after %v", s, time.Since(start))
		}
		wg.Wait()
		if got := strings.Join(lim.asked, ", "); got != "k 1, k 1, k 1" {
			t.Errorf("asked %s", got)
		}
	})
}

// TestNextWait: a server's wait is never shortened and up to half longer, backoff has a least.
func TestNextWait(t *testing.T) {
	c := newClient(t, nil, func(s *Settings) {
		s.Backoff = retry.Backoff{Initial: 100 * time.Millisecond, Jitter: retry.JitterNone}
	})
	for _, k := range []struct {
		a           Answer
		least, most time.Duration
		why         retry.WaitReason
	}{
		{Answer{Asked: true, Wait: 2 * time.Second, Source: "s"}, 2 * time.Second, 3 * time.Second, retry.WaitServer},
		{Answer{Asked: true, Least: time.Second}, time.Second, 1500 * time.Millisecond, retry.WaitServer},
		{Answer{Least: time.Second}, time.Second, 1500 * time.Millisecond, retry.WaitBackoff},
		{Answer{Least: 100 * time.Millisecond}, 100 * time.Millisecond, 100 * time.Millisecond, retry.WaitBackoff},
		{Answer{}, 100 * time.Millisecond, 100 * time.Millisecond, retry.WaitBackoff},
	} {
		longest := time.Duration(0)
		for range 200 {
			x := Begin(t.Context(), c, "h"+strconv.Itoa(int(k.least)), "k")
			x.Host = &Host{} // without a budget
			w, s := x.Next(k.a)
			if s != nil || w.For < k.least || w.For > k.most || w.Why != k.why || w.Source != k.a.Source {
				t.Fatalf("%+v: %+v %+v", k.a, w, s)
			}
			longest = max(longest, w.For)
		}
		if longest < k.least+(k.most-k.least)*3/4 {
			t.Errorf("%+v: the longest of 200 is %v", k.a, longest)
		}
	}
	x := Begin(t.Context(), c, "h", "k")
	var got []time.Duration
	for i := range 5 {
		if i == 3 {
			x.RestartBackoff()
		}
		w, _ := x.Next(Answer{})
		got = append(got, w.For/(100*time.Millisecond))
	}
	if !slices.Equal(got, []time.Duration{1, 2, 4, 1, 2}) {
		t.Errorf("backoff, begun again after three: %v", got)
	}
}

// TestEndedCallAsksNothing: neither is anything asked for it, nor waited.
func TestEndedCallAsksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := &script{answers: map[string][]limiter.Result{"k": {denied(time.Minute, limiter.SourceLocal)}}}
		c := newClient(t, lim, nil)
		canceled := make(chan struct{})
		x := Begin(t.Context(), c, "h", "k")
		x.Canceled = canceled
		start := time.Now()
		time.AfterFunc(time.Second, func() { close(canceled) })
		if s := x.Admit(); s == nil || s.Reason != CallerGone || time.Since(start) != time.Second {
			t.Errorf("%+v after %v", s, time.Since(start))
		}
		if s := x.Admit(); s == nil || s.Reason != CallerGone || len(lim.asked) != 1 {
			t.Errorf("%+v, asked %v", s, lim.asked)
		}
		if s := x.Wait(Wait{For: time.Hour}); s == nil || s.Reason != CallerGone || time.Since(start) != time.Second {
			t.Errorf("%+v after %v", s, time.Since(start))
		}
	})
}

// TestDrawHoldsForOneAttempt: a call that has waited is not rejected by a second draw, and another
// attempt draws again.
func TestDrawHoldsForOneAttempt(t *testing.T) {
	draws := 0
	lim := &script{}
	c := newClient(t, lim, func(s *Settings) {
		s.Throttle = &retry.ThrottleSettings{MinRequests: 1, Rand: func() float64 { draws++; return 0.999 }}
	})
	x := Begin(t.Context(), c, "h", "k")
	x.Host.Throttle.Report(t.Context(), false)
	for attempt := 1; attempt <= 3; attempt++ {
		if s := x.Admit(); s != nil || draws != attempt {
			t.Errorf("attempt %d: %+v after %d draws", attempt, s, draws)
		}
	}
}

func TestDefaults(t *testing.T) {
	if s := Defaults(); s.Attempts != 3 || s.MaxWait != 2*time.Minute || s.MaxTotal != 5*time.Minute {
		t.Errorf("%+v", s)
	}
	for _, k := range []struct {
		change func(*Settings)
		field  string
	}{
		{func(s *Settings) { s.MaxTotal = 0 }, ""},
		{func(s *Settings) { s.MaxTotal = 24 * time.Hour }, ""},
		{func(s *Settings) { s.MaxTotal = 24*time.Hour + 1 }, "max total wait"},
		{func(s *Settings) { s.MaxTotal = -1 }, "max total wait"},
		{func(s *Settings) { s.MaxWait = 0 }, ""},
		{func(s *Settings) { s.MaxWait = time.Hour }, ""},
		{func(s *Settings) { s.MaxWait = time.Hour + 1 }, "max wait"},
		{func(s *Settings) { s.Attempts = 1 }, ""},
		{func(s *Settings) { s.Attempts = 100 }, ""},
		{func(s *Settings) { s.Attempts = 101 }, "attempts"},
	} {
		s := Defaults()
		k.change(&s)
		if _, err := New(s); (err == nil) != (k.field == "") || err != nil && !strings.Contains(err.Error(), k.field) {
			t.Errorf("%v, want one of %q", err, k.field)
		}
	}
}

// TestPaceCounts: the rate that is cut is that of the present second or the one before it, and
// never more than what was allowed.
func TestPaceCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			sleep time.Duration
			rate  float64
		}{
			"at once":      {0, 7},
			"a second ago": {time.Second, 7},
			"two ago":      {2 * time.Second, adaptiveMin},
		} {
			p := &pace{epoch: time.Now()}
			var at time.Duration
			for range 10 {
				at = p.start()
			}
			time.Sleep(c.sleep)
			if p.throttled(at); p.rate < c.rate-1e-9 || p.rate > c.rate+1e-9 {
				t.Errorf("ten %s: %v, want %v", name, p.rate, c.rate)
			}
		}
		p := &pace{epoch: time.Now()}
		for range 100 {
			p.start()
		}
		p.throttled(p.start())
		was := p.rate
		time.Sleep(adaptiveSettle)
		if p.throttled(p.start()); p.rate < was {
			t.Error("what was sent within the settling time cut again")
		}
		time.Sleep(1)
		if p.throttled(p.start()); p.rate >= was {
			t.Error("what was sent after it did not cut")
		}
		for range 1000 { // more than allowed
			p.start()
		}
		time.Sleep(2 * adaptiveSettle)
		before := p.rate
		for range 1000 {
			p.start()
		}
		if p.throttled(p.start()); p.rate > before {
			t.Errorf("cut from %v to %v", before, p.rate)
		}
		if d, ok := p.delay(0); d != 0 || !ok {
			t.Errorf("the first turn: %v %v", d, ok)
		}
		next, _ := p.delay(time.Hour)
		if d, ok := p.delay(2 * next); !ok || d != 2*next {
			t.Errorf("a turn that just fits: %v %v, want %v", d, ok, 2*next)
		}
	})
}

// TestHasIsOfTheLastAttempt: what an earlier attempt has taken says nothing of a later one.
func TestHasIsOfTheLastAttempt(t *testing.T) {
	x := Begin(t.Context(), newClient(t, nil, nil), "h", "k")
	for i := range 3 {
		has := unitOf{key: strconv.Itoa(i)}
		if i < 2 {
			x.taken = append(x.taken, unit{"k", has})
		}
		if x.Send(); i < 2 && x.Has("k") != Taken(has) || i == 2 && x.Has("k") != nil || x.Has("other") != nil {
			t.Errorf("attempt %d has %v", i, x.Has("k"))
		}
	}
}
