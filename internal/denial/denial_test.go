package denial

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/algo"
)

// TestDenialTimes: believed from when Redis was asked, told from when it had
// answered.
func TestDenialTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := New(), algo.Params{Kind: algo.FixedWindow, Cap: 1, Num: 1, Den: 1}
		a := c.Ask("k")
		put := func(retry time.Duration) {
			sent := time.Now()
			time.Sleep(10 * time.Millisecond) // the round trip
			c.Put(a, &p, 1, algo.Decision{RetryAfter: retry.Microseconds(), ResetAfter: 3_000_000}, sent, time.Now())
		}
		get := func() (algo.Decision, bool) { return c.Get(a, &p, 1) }

		put(100 * time.Millisecond)
		time.Sleep(50 * time.Millisecond)
		if d, ok := get(); !ok || d.Allowed || d.RetryAfter != 50_000 || d.ResetAfter != 2_950_000 {
			t.Errorf("after 50 ms: %+v, %v", d, ok)
		}
		time.Sleep(40*time.Millisecond - time.Nanosecond)
		if _, ok := get(); !ok {
			t.Error("forgotten before its time")
		}
		time.Sleep(time.Nanosecond)
		if _, ok := get(); ok {
			t.Error("believed for longer than since it was sent")
		}
		put(time.Hour)
		time.Sleep(Life - 10*time.Millisecond - time.Nanosecond)
		if _, ok := get(); !ok {
			t.Error("forgotten within a second")
		}
		time.Sleep(time.Nanosecond)
		if _, ok := get(); ok {
			t.Error("believed for longer than a second")
		}
		put(5 * time.Millisecond)
		if _, ok := get(); ok {
			t.Error("believed what was over when it came")
		}
	})
}

// TestForgottenWhileAsking: a denial that was on its way while the key was
// forgotten is not remembered.
func TestForgottenWhileAsking(t *testing.T) {
	c, p := New(), algo.Params{Kind: algo.GCRA, Cap: 1, Num: 1, Den: 1}
	a := c.Ask("k")
	now := time.Now()
	c.Forget("k")
	c.Put(a, &p, 1, algo.Decision{RetryAfter: 1e6}, now, now)
	if _, ok := c.Get(a, &p, 1); ok {
		t.Error("remembered")
	}
	a = c.Ask("k")
	c.Put(a, &p, 1, algo.Decision{RetryAfter: 1e6}, now, now)
	for name, other := range map[string]func() (algo.Decision, bool){
		"another cost":  func() (algo.Decision, bool) { return c.Get(a, &p, 2) },
		"another key":   func() (algo.Decision, bool) { return c.Get(c.Ask("l"), &p, 1) },
		"another limit": func() (algo.Decision, bool) { q := p; q.Cap++; return c.Get(a, &q, 1) },
	} {
		if _, ok := other(); ok {
			t.Errorf("%s was taken for it", name)
		}
	}
	if _, ok := c.Get(a, &p, 1); !ok {
		t.Error("not remembered")
	}
	c.Forget("k")
	if _, ok := c.Get(a, &p, 1); ok {
		t.Error("not forgotten")
	}
}

// TestAsManyAskAgainAsUnitsWereProduced: of those who were denied by a bucket, as many ask again as it
// can have produced units for, and a bucket that has just given its last unit is
// known to have none.
func TestAsManyAskAgainAsUnitsWereProduced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// 100 per second, a burst of 10.
		c, p := New(), algo.Params{Kind: algo.TokenBucket, Cap: 10, Num: 1, Den: 10_000}
		a := c.Ask("k")
		asking := func() (n int) {
			for range 50 {
				if _, denied := c.Get(a, &p, 2); !denied {
					n++
				}
			}
			return n
		}
		now := time.Now()
		c.Put(a, &p, 2, algo.Decision{RetryAfter: 15_000, ResetAfter: 95_000}, now, now)
		time.Sleep(15*time.Millisecond - time.Nanosecond)
		if n := asking(); n != 0 {
			t.Errorf("%d ask before there is room for them", n)
		}
		time.Sleep(time.Nanosecond)
		if n := asking(); n != 1 {
			t.Errorf("%d ask when there is room for one", n)
		}
		time.Sleep(20*time.Millisecond - 2*time.Microsecond)
		if d, denied := c.Get(a, &p, 2); !denied || d.RetryAfter != 2 {
			t.Errorf("just before there is room for the second: %+v, %v", d, denied)
		}
		time.Sleep(45 * time.Millisecond)
		if n := asking(); n != 3 {
			t.Errorf("%d ask when there is room for three more", n)
		}
		time.Sleep(Life)
		if n := asking(); n != 50 {
			t.Errorf("%d of 50 ask after a second", n)
		}

		// Admitted, and full again after 95 ms: two units are there after 15.
		now = time.Now()
		c.Put(a, &p, 2, algo.Decision{Allowed: true, Remaining: 0, ResetAfter: 95_000}, now, now)
		if d, denied := c.Get(a, &p, 2); !denied || d.RetryAfter != 15_000 {
			t.Errorf("after the last unit was given: %+v, %v", d, denied)
		}
		// An older answer that comes later is no news.
		c.Put(a, &p, 2, algo.Decision{RetryAfter: 1_000, ResetAfter: 81_000}, now, now)
		if d, denied := c.Get(a, &p, 2); !denied || d.RetryAfter != 15_000 {
			t.Errorf("after an answer that was overtaken: %+v, %v", d, denied)
		}
	})
}

// TestBlockEndsForAllCallers: a key that was denied because it is blocked may have
// any number of units when the block ends: all may ask.
func TestBlockEndsForAllCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := New(), algo.Params{Kind: algo.TokenBucket, Cap: 10, Num: 1, Den: 10_000}
		a := c.Ask("k")
		for name, d := range map[string]algo.Decision{
			"full":  {Remaining: 10, RetryAfter: 300_000},
			"empty": {RetryAfter: 300_000, ResetAfter: 100_000},
		} {
			now := time.Now()
			c.Put(a, &p, 1, d, now, now)
			time.Sleep(300*time.Millisecond - time.Nanosecond)
			if _, denied := c.Get(a, &p, 1); !denied {
				t.Errorf("%s: forgotten while blocked", name)
			}
			time.Sleep(time.Nanosecond)
			for i := range 10 {
				if _, denied := c.Get(a, &p, 1); denied {
					t.Errorf("%s: caller %d is denied after the block", name, i)
				}
			}
		}
	})
}

// TestKeysThatMeet: of two keys that are kept in one place, one is not taken for the other.
func TestKeysThatMeet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := New(), algo.Params{Kind: algo.FixedWindow, Cap: 1, Num: 1, Den: 1}
		a := c.Ask("k")
		b := a
		for i := 0; b.id == "k" || b.hash%cells != a.hash%cells; i++ {
			b = c.Ask(fmt.Sprint("other ", i))
		}
		now := time.Now()
		c.Put(a, &p, 1, algo.Decision{RetryAfter: 1e6}, now, now)
		if _, ok := c.Get(b, &p, 1); ok {
			t.Errorf("%q was taken for %q", b.id, a.id)
		}
		if _, ok := c.Get(a, &p, 1); !ok {
			t.Error("not remembered")
		}
		c.Put(b, &p, 1, algo.Decision{RetryAfter: 1e3}, now, now)
		if _, ok := c.Get(b, &p, 1); !ok {
			t.Error("the later one is not remembered, since it ends earlier")
		}
	})
}

// TestTimesOfABucket: to the microsecond, with a rate of 3 units in 20 ms.
func TestTimesOfABucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := algo.Params{Kind: algo.TokenBucket, Cap: 12, Num: 3, Den: 20_000}
		one := New()
		a := one.Ask("k")
		put := func(c *Cache, d algo.Decision) {
			now := time.Now()
			c.Put(a, &p, 3, d, now, now)
		}
		asks := func(c *Cache) bool { _, denied := c.Get(a, &p, 3); return !denied }

		put(one, algo.Decision{RetryAfter: 10_000, ResetAfter: 70_000})
		time.Sleep(10*time.Millisecond - time.Nanosecond)
		if d, ok := one.Get(a, &p, 3); !ok || d.RetryAfter != 1 {
			t.Errorf("a nanosecond before: %+v, %v", d, ok)
		}
		time.Sleep(time.Nanosecond)
		if !asks(one) || asks(one) {
			t.Error("room for one")
		}
		soon := New()
		put(soon, algo.Decision{RetryAfter: 1, ResetAfter: 1})
		if d, ok := soon.Get(a, &p, 3); !ok || d.RetryAfter != 1 || d.ResetAfter != 1 {
			t.Errorf("a microsecond before it is fully reset: %+v, %v", d, ok)
		}
		// Admitted, and there is room for as many more in a microsecond: one caller may ask.
		next := New()
		put(next, algo.Decision{Allowed: true, ResetAfter: 60_001})
		if !asks(next) || asks(next) {
			t.Error("not one asks when there is room in a microsecond")
		}
		if d, _ := one.Get(a, &p, 3); d.RetryAfter != 20_000 {
			t.Errorf("the next one after %d µs", d.RetryAfter)
		}
		time.Sleep(20*time.Millisecond - time.Microsecond)
		if !asks(one) || asks(one) {
			t.Error("room for the second, by a clock that counts microseconds")
		}
		time.Sleep(time.Second)
		for range 200 {
			if !asks(one) {
				t.Fatal("remembered for longer than a second")
			}
		}

		// Admitted, and full after 50 ms: (48-9)/3 of them later there is room again, which may
		// be two microseconds too long.
		admitted := New()
		put(admitted, algo.Decision{Allowed: true, ResetAfter: 70_000})
		time.Sleep(10*time.Millisecond - 3*time.Microsecond)
		if asks(admitted) {
			t.Error("asks before there can be room")
		}
		time.Sleep(time.Microsecond)
		if !asks(admitted) {
			t.Error("does not ask when there can be room")
		}
		full := New()
		put(full, algo.Decision{Allowed: true, ResetAfter: 60_000})
		for range 5 {
			if !asks(full) {
				t.Fatal("there was room for another one")
			}
		}
	})
}
