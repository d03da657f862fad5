package limiter

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/algo"
)

// TestDenialTimes: believed from when Redis was asked, told from when it had
// answered.
func TestDenialTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := newDenials(), algo.Params{Kind: algo.GCRA, Cap: 1, Num: 1, Den: 1}
		h := c.hash("k")
		put := func(retry time.Duration) {
			sent := time.Now()
			time.Sleep(10 * time.Millisecond) // the round trip
			c.put(h, "k", &p, 1, c.age(h).Load(), algo.Decision{RetryAfter: retry.Microseconds(), ResetAfter: 3_000_000}, sent, time.Now())
		}
		get := func() (algo.Decision, bool) { return c.get(h, "k", &p, 1) }

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
		time.Sleep(denialLife - 10*time.Millisecond - time.Nanosecond)
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
	c, p := newDenials(), algo.Params{Kind: algo.GCRA, Cap: 1, Num: 1, Den: 1}
	h := c.hash("k")
	age, now := c.age(h).Load(), time.Now()
	c.forget("k")
	c.put(h, "k", &p, 1, age, algo.Decision{RetryAfter: 1e6}, now, now)
	if _, ok := c.get(h, "k", &p, 1); ok {
		t.Error("remembered")
	}
	c.put(h, "k", &p, 1, c.age(h).Load(), algo.Decision{RetryAfter: 1e6}, now, now)
	for name, other := range map[string]func() (algo.Decision, bool){
		"another cost":  func() (algo.Decision, bool) { return c.get(h, "k", &p, 2) },
		"another key":   func() (algo.Decision, bool) { return c.get(h, "l", &p, 1) },
		"another limit": func() (algo.Decision, bool) { q := p; q.Cap++; return c.get(h, "k", &q, 1) },
	} {
		if _, ok := other(); ok {
			t.Errorf("%s was taken for it", name)
		}
	}
	if _, ok := c.get(h, "k", &p, 1); !ok {
		t.Error("not remembered")
	}
	c.forget("k")
	if _, ok := c.get(h, "k", &p, 1); ok {
		t.Error("not forgotten")
	}
}
