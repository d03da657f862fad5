package admission

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestFloodNeverForgetsACooldown: keys by the thousand do not open the gate of
// one that cools down, nor grow the table.
func TestFloodNeverForgetsACooldown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gs := newGates(10)
		gs.Close("hot", time.Hour, nil)
		for i := range 1000 {
			gs.Close(fmt.Sprint("short", i), time.Second, nil)
			time.Sleep(time.Second)
		}
		if gs.Left("hot").left <= 0 {
			t.Error("the cooldown was forgotten")
		}
		for i := range 1000 {
			gs.Close(fmt.Sprint("long", i), 10*time.Hour, nil)
		}
		if gs.Left("hot").left <= 0 {
			t.Error("the cooldown was forgotten when all were in force")
		}
		if n := gs.t.Len(); n > 10 {
			t.Errorf("%d keys are remembered, want at most 10", n)
		}
		if wasOpen, longer := gs.Close("one more", time.Hour, nil); wasOpen || longer != 0 {
			t.Error("a full table took another key")
		}
	})
}

// TestFullTableMakesRoom: cooldowns that are over give their places to others, one for one.
func TestFullTableMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gs := newGates(3)
		for i := range 3 {
			gs.Close(fmt.Sprint("short", i), time.Second, nil)
		}
		time.Sleep(time.Second)
		for i := range 3 {
			key := fmt.Sprint("long", i)
			if wasOpen, longer := gs.Close(key, time.Hour, nil); !wasOpen || longer != time.Hour {
				t.Errorf("%s found no room: %v, %v", key, wasOpen, longer)
			}
			if c := gs.Left(key); c.left != time.Hour {
				t.Errorf("%s is closed for %v", key, c.left)
			}
			if n, all := gs.t.Len(), len(gs.t.m); n != 3 || all != 3 {
				t.Errorf("%d keys, %d in the map", n, all)
			}
		}
	})
}

// TestSpreadOfAProlongedCooldown: it is that of the longest, as long as any lasts.
func TestSpreadOfAProlongedCooldown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gs := newGates(10)
		check := func(asked, left, spread time.Duration) {
			t.Helper()
			gs.Close("k", asked, nil)
			if c := gs.Left("k"); c.left != left || c.spread != spread {
				t.Errorf("after another %v: %v left, spread over %v, want %v and %v", asked, c.left, c.spread, left, spread)
			}
		}
		check(10*time.Second, 10*time.Second, 5*time.Second)
		check(20*time.Second, 20*time.Second, 10*time.Second)
		time.Sleep(19 * time.Second)
		check(2*time.Second, 2*time.Second, 10*time.Second)
		time.Sleep(3 * time.Second)
		check(2*time.Second, 2*time.Second, time.Second)
	})
}

func TestGateNeverShortens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gs := newGates(10)
		if wasOpen, longer := gs.Close("k", 10*time.Second, nil); !wasOpen || longer != 10*time.Second {
			t.Error(wasOpen, longer)
		}
		if wasOpen, longer := gs.Close("k", time.Second, nil); wasOpen || longer != 0 {
			t.Error(wasOpen, longer)
		}
		if c := gs.Left("k"); c.left != 10*time.Second || c.spread != 5*time.Second {
			t.Error(c)
		}
		if wasOpen, longer := gs.Close("k", 12*time.Second, nil); wasOpen || longer != 2*time.Second {
			t.Error(wasOpen, longer)
		}
		time.Sleep(12 * time.Second)
		if wasOpen, longer := gs.Close("k", 2*time.Second, nil); !wasOpen || longer != 2*time.Second {
			t.Error(wasOpen, longer)
		}
		if c := gs.Left("k"); c.left != 2*time.Second || c.spread != time.Second {
			t.Error(c)
		}
	})
}

// TestGateKnowsWhatWasAsked: a gate opens after Max, and those who ask before that
// learn what the server said, of several answers the longest.
func TestGateKnowsWhatWasAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gs := newGates(10)
		check := func(wantLeft, wantAsked time.Duration) {
			t.Helper()
			if c := gs.Left("k"); c.left != wantLeft || c.asked != wantAsked {
				t.Errorf("%v left of %v, want %v of %v", c.left, c.asked, wantLeft, wantAsked)
			}
		}
		if _, longer := gs.Close("k", 2*time.Hour, nil); longer != time.Hour {
			t.Error(longer)
		}
		check(time.Hour, 2*time.Hour)
		gs.Close("k", time.Second, nil)
		check(time.Hour, 2*time.Hour)
		gs.Close("k", 24*time.Hour, nil)
		check(time.Hour, 24*time.Hour)
		gs.Close("k", math.MaxInt64, nil)
		check(time.Hour, math.MaxInt64)
		time.Sleep(time.Hour)
		gs.Close("k", 3*time.Second, nil)
		check(3*time.Second, 3*time.Second)
	})
}

// TestHeldGate is closed for a while, counts as open for what closes it, and never ends a cooldown.
func TestHeldGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gs := newGates(1)
		release := gs.Hold("k", time.Minute, time.Second, "headers")
		if c := gs.Left("k"); c.left != time.Second || c.asked != time.Minute || c.said != "headers" || c.spread != time.Second/2 {
			t.Errorf("held: %+v", c)
		}
		gs.Hold("other", time.Minute, time.Second, nil)() // without room
		if wasOpen, longer := gs.Close("k", 10*time.Second, "body"); !wasOpen || longer != 10*time.Second {
			t.Errorf("closed: %v %v", wasOpen, longer)
		}
		release()
		gs.Hold("k", time.Minute, time.Second, nil)()
		if c := gs.Left("k"); c.left != 10*time.Second || c.asked != 10*time.Second || c.said != "body" {
			t.Errorf("released after it was closed: %+v", c)
		}
		time.Sleep(10 * time.Second)
		release = gs.Hold("k", 500*time.Millisecond, time.Second, nil)
		if c := gs.Left("k"); c.left != 500*time.Millisecond {
			t.Errorf("held for longer than was asked for: %+v", c)
		}
		release()
		if c := gs.Left("k"); c.left > 0 || c.asked > 0 {
			t.Errorf("released: %+v", c)
		}
	})
}

// TestCooldownThatBeginsIsNotLost when its gate makes room for another key before it is closed.
func TestCooldownThatBeginsIsNotLost(t *testing.T) {
	gs := newGates(2)
	g := gs.t.GetOrAdd("k", func() *gate { return new(gate) })
	g.mu.Lock()
	var wg sync.WaitGroup
	wg.Go(func() { gs.Close("k", time.Minute, nil) })
	time.Sleep(10 * time.Millisecond) // it has found the gate
	gs.t.mu.Lock()
	delete(gs.t.m, "k")
	gs.t.mu.Unlock()
	g.mu.Unlock()
	wg.Wait()
	if gs.Left("k").left <= 0 {
		t.Error("the cooldown is lost")
	}
}

// TestHoldOfNothing: what has no key, or asks for no time, closes no gate.
func TestHoldOfNothing(t *testing.T) {
	c := newClient(t, nil, nil)
	for key, d := range map[string]time.Duration{"": time.Second, "k": 0} {
		x := Begin(t.Context(), c, "h", key)
		x.Hold(Cooldown{For: d}, time.Minute)()
		if n := c.gates.t.Len(); n != 0 {
			t.Errorf("%q, for %v: %d gates", key, d, n)
		}
	}
}

// TestNewsOfAKeyWithoutAPlace: the fleet is to know of each cooldown of a key of which this process remembers nothing.
func TestNewsOfAKeyWithoutAPlace(t *testing.T) {
	gs := newGates(10)
	for range 2 {
		if !gs.News("k", time.Minute) {
			t.Error("it is no news")
		}
	}
}
