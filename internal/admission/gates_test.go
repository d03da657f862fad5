package admission

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"
)

// TestFloodNeverForgetsACooldown: keys by the thousand do not open the gate of
// one that cools down, nor grow the table.
func TestFloodNeverForgetsACooldown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gs := newGates(10)
		gs.Close("hot", time.Hour)
		for i := range 1000 {
			gs.Close(fmt.Sprint("short", i), time.Second)
			time.Sleep(time.Second)
		}
		if left, _, _ := gs.Left("hot"); left <= 0 {
			t.Error("the cooldown was forgotten")
		}
		for i := range 1000 {
			gs.Close(fmt.Sprint("long", i), 10*time.Hour)
		}
		if left, _, _ := gs.Left("hot"); left <= 0 {
			t.Error("the cooldown was forgotten when all were in force")
		}
		if n := gs.t.Len(); n > 10 {
			t.Errorf("%d keys are remembered, want at most 10", n)
		}
		if wasOpen, longer := gs.Close("one more", time.Hour); wasOpen || longer != 0 {
			t.Error("a full table took another key")
		}
	})
}

// TestFullTableMakesRoom: cooldowns that are over give their places to others, one for one.
func TestFullTableMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gs := newGates(3)
		for i := range 3 {
			gs.Close(fmt.Sprint("short", i), time.Second)
		}
		time.Sleep(time.Second)
		for i := range 3 {
			key := fmt.Sprint("long", i)
			if wasOpen, longer := gs.Close(key, time.Hour); !wasOpen || longer != time.Hour {
				t.Errorf("%s found no room: %v, %v", key, wasOpen, longer)
			}
			if left, _, _ := gs.Left(key); left != time.Hour {
				t.Errorf("%s is closed for %v", key, left)
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
			gs.Close("k", asked)
			if l, s, _ := gs.Left("k"); l != left || s != spread {
				t.Errorf("after another %v: %v left, spread over %v, want %v and %v", asked, l, s, left, spread)
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
		if wasOpen, longer := gs.Close("k", 10*time.Second); !wasOpen || longer != 10*time.Second {
			t.Error(wasOpen, longer)
		}
		if wasOpen, longer := gs.Close("k", time.Second); wasOpen || longer != 0 {
			t.Error(wasOpen, longer)
		}
		if left, spread, _ := gs.Left("k"); left != 10*time.Second || spread != 5*time.Second {
			t.Error(left, spread)
		}
		if wasOpen, longer := gs.Close("k", 12*time.Second); wasOpen || longer != 2*time.Second {
			t.Error(wasOpen, longer)
		}
		time.Sleep(12 * time.Second)
		if wasOpen, longer := gs.Close("k", 2*time.Second); !wasOpen || longer != 2*time.Second {
			t.Error(wasOpen, longer)
		}
		if left, spread, _ := gs.Left("k"); left != 2*time.Second || spread != time.Second {
			t.Error(left, spread)
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
			if left, _, asked := gs.Left("k"); left != wantLeft || asked != wantAsked {
				t.Errorf("%v left of %v, want %v of %v", left, asked, wantLeft, wantAsked)
			}
		}
		if _, longer := gs.Close("k", 2*time.Hour); longer != time.Hour {
			t.Error(longer)
		}
		check(time.Hour, 2*time.Hour)
		gs.Close("k", time.Second)
		check(time.Hour, 2*time.Hour)
		gs.Close("k", 24*time.Hour)
		check(time.Hour, 24*time.Hour)
		gs.Close("k", math.MaxInt64)
		check(time.Hour, math.MaxInt64)
		time.Sleep(time.Hour)
		gs.Close("k", 3*time.Second)
		check(3*time.Second, 3*time.Second)
	})
}
