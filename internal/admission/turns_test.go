package admission

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/retry"
)

// TestCallBehindAnotherAsksNothing until it is its turn.
func TestCallBehindAnotherAsksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := &script{answers: map[string][]limiter.Result{"k": {denied(10*time.Second, limiter.SourceLocal)}}}
		c := newClient(t, lim, nil)
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				x := Begin(t.Context(), c, "h", "k")
				if s := x.Admit(); s != nil {
					t.Errorf("%+v", s)
				}
			})
			time.Sleep(time.Second)
		}
		lim.mu.Lock()
		if len(lim.asked) != 1 {
			t.Errorf("asked %v while the first waits", lim.asked)
		}
		lim.mu.Unlock()
		wg.Wait()
	})
}

// TestLimiterThatFailsIsAskedOnce.
func TestLimiterThatFailsIsAskedOnce(t *testing.T) {
	lim := &script{err: errors.New("broken")}
	x, waits := waitsOf(t, newClient(t, lim, nil))
	if s := x.Admit(); s == nil || s.Reason != retry.LimiterFailed || len(lim.asked) != 1 || len(*waits) != 0 {
		t.Errorf("%+v, asked %v, waited %v", s, lim.asked, *waits)
	}
}

// TestTurnInACooldownIsVoid: a scope that cools down while a call waits for the limiter holds it up, too.
func TestTurnInACooldownIsVoid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := &script{answers: map[string][]limiter.Result{"k": {denied(2*time.Second, limiter.SourceLocal)}}}
		c := newClient(t, lim, nil)
		start := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			x := Begin(t.Context(), c, "h", "k")
			x.Scopes = scoped("k#a")
			if s := x.Admit(); s != nil || time.Since(start) < 11*time.Second {
				t.Errorf("%+v after %v", s, time.Since(start))
			}
		})
		time.Sleep(time.Second)
		x := Begin(t.Context(), c, "h", "k")
		x.Cool(Cooldown{For: 10 * time.Second, Scope: "k#a"})
		wg.Wait()
		if got := strings.Join(lim.asked, ", "); got != "k 1, k 1" { // not within the cooldown
			t.Errorf("asked %s", got)
		}
	})
}

// TestScopeThatBecomesKnownVoidsTurns: a call that waits for the limiter meanwhile stands in the scope's lines first.
func TestScopeThatBecomesKnownVoidsTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := &script{answers: map[string][]limiter.Result{"k": {denied(2*time.Second, limiter.SourceLocal)}}}
		learnt := &script{answers: map[string][]limiter.Result{"k#a": {denied(20*time.Second, limiter.SourceLocal)}}}
		start := time.Now()
		x := Begin(t.Context(), newClient(t, blocking{lim}, nil), "h", "k")
		x.Learnt = blocking{learnt}
		x.Scopes = func(string, string, any) []string {
			if time.Since(start) < time.Second {
				return nil
			}
			return []string{"k#a"}
		}
		if s := x.Admit(); s != nil || time.Since(start) < 22*time.Second {
			t.Errorf("%+v after %v", s, time.Since(start))
		}
		if got := strings.Join(lim.asked, ", "); got != "k 1, k#a 0, k 1" {
			t.Errorf("asked %s", got)
		}
	})
}

// TestVoidTurnGoesNoFurther: a call that got no turn because it cools down does not stand in
// the line of a quota that was learnt, after which it would be sent without one.
func TestVoidTurnGoesNoFurther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := &script{answers: map[string][]limiter.Result{"k": {{Allowed: true, Source: limiter.SourceLocal}, denied(2*time.Second, limiter.SourceLocal)}}}
		learnt := &script{answers: map[string][]limiter.Result{"k": {denied(20*time.Second, limiter.SourceLocal)}}}
		c := newClient(t, lim, nil)
		begin := func(scopes ...string) *Call {
			x := Begin(t.Context(), c, "h", "k")
			x.Scopes, x.Learnt = scoped(scopes...), blocking{learnt}
			return &x
		}
		var wg sync.WaitGroup
		for _, x := range []*Call{begin(), begin("k#a")} {
			wg.Go(func() {
				if s := x.Admit(); s != nil {
					t.Errorf("%+v", s)
				}
			})
			synctest.Wait()
		}
		time.Sleep(time.Second)
		begin("k#a").Cool(Cooldown{For: 10 * time.Second, Scope: "k#a"})
		wg.Wait()
		if got := strings.Join(lim.asked, ", "); got != "k 1, k 1, k 1" {
			t.Errorf("asked %s", got)
		}
	})
}

// TestVoidTurnEndsAtTheFirstAnswer: a call that has no turn by one of its scopes does not ask for it again in the
// line of the key.
func TestVoidTurnEndsAtTheFirstAnswer(t *testing.T) {
	learnt := &script{answers: map[string][]limiter.Result{"k#a": {denied(time.Minute, limiter.SourceLocal)}}}
	x := Begin(t.Context(), newClient(t, nil, nil), "h", "k")
	x.Learnt, x.scopes = blocking{learnt}, []string{"k#a"}
	if got, ok := x.stand(lineOf{key: "k"}); ok || got.stop != nil || strings.Join(learnt.asked, ", ") != "k#a 1" {
		t.Errorf("%+v %v, asked %v", got, ok, learnt.asked)
	}
}

// TestVoidTurnHoldsNothing of what is learnt while the call waits for the cooldown.
func TestVoidTurnHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := limiter.Result{Allowed: true, Delay: 2 * time.Second, Source: limiter.SourceLocal}
		lim, learnt := &script{answers: map[string][]limiter.Result{"k": {late}}}, new(script)
		x := Begin(t.Context(), newClient(t, lim, nil), "h", "k")
		x.Scopes, x.Learnt = scoped("k#a"), blocking{learnt}
		other := x
		time.AfterFunc(time.Second, func() { other.Cool(Cooldown{For: 10 * time.Second, Scope: "k#a"}) })
		var wg sync.WaitGroup
		wg.Go(func() {
			if s := x.Admit(); s != nil {
				t.Errorf("%+v", s)
			}
		})
		time.Sleep(3 * time.Second)
		synctest.Wait()
		learnt.mu.Lock()
		if asked, back := strings.Join(learnt.asked, ", "), strings.Join(learnt.back, ", "); asked != "k#a 1, k 1" || back != "k#a, k" {
			t.Errorf("asked %s, gave back %s", asked, back)
		}
		learnt.mu.Unlock()
		wg.Wait()
	})
}

// TestVoidTurnForAScope: a call that waits for the quota of one scope while another one cools down waits for that, and
// then for its turn again.
func TestVoidTurnForAScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		learnt := &script{answers: map[string][]limiter.Result{"k#a": {denied(2*time.Second, limiter.SourceLocal)}}}
		x := Begin(t.Context(), newClient(t, nil, nil), "h", "k")
		x.Scopes, x.Learnt = scoped("k#a", "k#b"), blocking{learnt}
		other, start := x, time.Now()
		time.AfterFunc(time.Second, func() { other.Cool(Cooldown{For: 10 * time.Second, Scope: "k#b"}) })
		if s := x.Admit(); s != nil || time.Since(start) < 11*time.Second {
			t.Errorf("%+v after %v", s, time.Since(start))
		}
		if got := strings.Join(learnt.asked, ", "); got != "k#a 1, k#a 1, k#b 1, k 1" {
			t.Errorf("asked %s", got)
		}
	})
}

// impatient is done when it was asked too often whether it is.
type impatient struct {
	context.Context
	left int
}

func (i *impatient) Err() error {
	if i.left--; i.left < 0 {
		return context.Canceled
	}
	return i.Context.Err()
}

// TestKeyThatCoolsDownWithAQuotaOfAScope is waited for, and not asked about again and again. A call that cannot wait
// for it ends.
func TestKeyThatCoolsDownWithAQuotaOfAScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		learnt := new(script)
		c := newClient(t, nil, nil)
		start := time.Now()
		begin := func() *Call {
			x := Begin(&impatient{t.Context(), 100}, c, "h", "k")
			x.Scopes, x.Learnt = scoped("k#a"), blocking{learnt}
			return &x
		}
		x := begin()
		x.Cool(Cooldown{For: 10 * time.Second})
		x.Allow.Each = 5 * time.Second
		if s := x.Admit(); s == nil || s.Reason != retry.CoolingDown || s.Key != "k" || time.Since(start) != 0 {
			t.Errorf("%+v after %v", s, time.Since(start))
		}
		x = begin()
		if s := x.Admit(); s != nil || time.Since(start) < 10*time.Second || time.Since(start) > 15*time.Second {
			t.Errorf("%+v after %v", s, time.Since(start))
		}
		if got := strings.Join(learnt.asked, ", "); got != "k#a 1, k 1" {
			t.Errorf("asked %s", got)
		}
	})
}

// TestPaceKnowsTwoSeconds: what was sent in this one, and in the one before it.
func TestPaceKnowsTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pace{epoch: time.Now()}
		for i, n := range []float64{5, 3, 1} {
			for range int(n) {
				p.start()
			}
			if want := []float64{0, 5, 3}[i]; p.was != want || p.sent != n {
				t.Errorf("second %d: %v and %v, want %v and %v", i, p.was, p.sent, want, n)
			}
			time.Sleep(time.Second)
		}
	})
}

// TestPaceThatHasEndedMakesRoom for that of another key.
func TestPaceThatHasEndedMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		paces := newPaces(1)
		made := func() *pace { return &pace{epoch: time.Now()} }
		p := paces.GetOrAdd("a", made)
		p.throttled(p.start())
		if paces.GetOrAdd("b", made) != nil {
			t.Error("one that matters was dropped")
		}
		time.Sleep(time.Hour)
		if paces.GetOrAdd("b", made) == nil {
			t.Error("one that has ended stays")
		}
	})
}

// TestWaitBehindOthersThatEnds says of a cooldown what the server said, and how long it still lasts.
func TestWaitBehindOthersThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, nil, func(s *Settings) { s.MaxWait, s.MaxTotal = 10*time.Second, time.Minute })
		first := Begin(t.Context(), c, "h", "k")
		first.Cool(Cooldown{For: 8 * time.Second, Said: "8 s"})
		var wg sync.WaitGroup
		wg.Go(func() {
			if s := first.Admit(); s != nil {
				t.Errorf("the first stopped: %+v", s)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			x := Begin(t.Context(), c, "h", "k")
			s := x.Admit()
			if s == nil || s.Reason != retry.CoolingDown || s.Key != "k" || s.Said != "9 s" || s.Wait <= 5*time.Second || s.Wait > 7*time.Second {
				t.Errorf("%+v", s)
			}
		})
		time.Sleep(7900 * time.Millisecond)
		other := Begin(t.Context(), c, "h", "k")
		other.Cool(Cooldown{For: 9 * time.Second, Said: "9 s"})
		wg.Wait()
	})
}

// TestAllWhoCanWaitComeBack: what a server asks for is just below the longest wait, so that those who have met it
// together come back sooner than half of it later, all of them.
func TestAllWhoCanWaitComeBack(t *testing.T) {
	for _, asked := range []time.Duration{60 * time.Second, 110 * time.Second, 119 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			c := newClient(t, nil, nil)
			first := Begin(t.Context(), c, "h", "k")
			first.Cool(Cooldown{For: asked})
			start := time.Now()
			var mu sync.Mutex
			var last time.Duration
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() {
					x := Begin(t.Context(), c, "h", "k")
					if s := x.Admit(); s != nil {
						t.Errorf("%v: %+v after %v", asked, s, time.Since(start))
					}
					mu.Lock()
					defer mu.Unlock()
					last = max(last, time.Since(start))
				})
			}
			wg.Wait()
			if least := asked + min(asked/2, 2*time.Minute-asked)/3; last < least {
				t.Errorf("%v: the last of 50 comes back after %v: they are not spread", asked, last)
			}
		})
	}
}
