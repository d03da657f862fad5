package discovery

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/admission"
	"github.com/holdfast-go/holdfast/internal/configerr"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/retry"
)

// Observe learns from a response to the request that was admitted last, and saves that.
func (d *Discovery) Observe(ctx context.Context, key string, said []retry.Quota, rejected bool, sent time.Time) (paced bool) {
	last, _ := lastOf.Load(of{d, key})
	has, _ := last.(admission.Taken)
	paced, save := d.Learn(key, said, rejected, sent, has)
	if save != nil {
		save(ctx)
	}
	return paced
}

// AllowN is Take for a request that is sent.
func (d *Discovery) AllowN(ctx context.Context, key string, _ int) (limiter.Result, error) {
	res, has := d.Take(ctx, key)
	if has != nil {
		lastOf.Store(of{d, key}, has)
	}
	return res, nil
}

// lastOf has what the last request of each key has taken.
var lastOf sync.Map

type of struct {
	d   *Discovery
	key string
}

// admitted counts what is admitted of n requests at once.
func admitted(t *testing.T, d *Discovery, key string, n int) (count int) {
	t.Helper()
	for range n {
		res, err := d.AllowN(t.Context(), key, 1)
		if err != nil {
			t.Fatal(err)
		}
		if res.Allowed {
			count++
		} else if res.RetryAfter <= 0 {
			t.Fatalf("denied without a time: %+v", res)
		}
	}
	return count
}

// TestFleetIsPacedBeforeTheFirstRejection: what one process learns holds for one that has sent
// nothing yet, and together they send what the server allows; when Redis is away, each its
// claim.
func TestFleetIsPacedBeforeTheFirstRejection(t *testing.T) {
	srv := redistest.Start(t)
	var fleet []*Discovery
	for _, process := range []string{"a", "b"} {
		d, err := New(redistest.Client(t, srv), limiter.WithProcess(process))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		fleet = append(fleet, d)
	}
	a, b := fleet[0], fleet[1]
	if n := admitted(t, a, "k", 5); n != 1 {
		t.Fatalf("%d were sent before anything was known", n)
	}
	ten := []retry.Quota{{Name: "q", Limit: 10, Remaining: 9, Reset: time.Minute, Window: time.Minute}}
	if !a.Observe(t.Context(), "k", ten, false, time.Now()) {
		t.Error("not paced")
	}
	if n, m := admitted(t, a, "k", 4), admitted(t, b, "k", 20); n != 4 || m != 5 {
		t.Errorf("%d and %d were sent after the first, of 10", n, m)
	}
	// A change reaches the others within a second, and the one that learns it at once.
	more := []retry.Quota{{Name: "q", Limit: 1000, Remaining: 900, Reset: time.Minute, Window: time.Minute}}
	b.Observe(t.Context(), "k", more, false, time.Now())
	if n := admitted(t, b, "k", 20); n != 20 {
		t.Errorf("%d of 20 after the limit went up", n)
	}
	e := a.keys.Get("k")
	e.mu.Lock()
	e.loaded = time.Time{} // a second has passed
	e.mu.Unlock()
	if n := admitted(t, a, "k", 20); n != 20 {
		t.Errorf("%d of 20 in the other process", n)
	}
	redistest.Until(t, "both processes are known", func() bool {
		time.Sleep(100 * time.Millisecond) // or a busy machine uses the quota up before they are
		admitted(t, a, "k", 1)
		admitted(t, b, "k", 1)
		return a.shelf.Processes() == 2 && b.shelf.Processes() == 2
	})
	if err := srv.Kill(); err != nil {
		t.Fatal(err)
	}
	n, m := admitted(t, a, "k", 1000), admitted(t, b, "k", 1000)
	// Of a key that was hardly used each of two has a quarter, by limiter.WithEqualShare.
	if n > 250 || m > 250 || n < 150 || m < 150 {
		t.Errorf("%d and %d of 1000 while Redis is away", n, m)
	}
}

// TestServerWithoutQuotaHeaders is not paced after its first response, and is after a rejection.
func TestServerWithoutQuotaHeaders(t *testing.T) {
	d, err := New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	admitted(t, d, "k", 1)
	if d.Observe(t.Context(), "k", nil, false, time.Now()) {
		t.Error("paced by nothing")
	}
	if n := admitted(t, d, "k", 99); n != 99 {
		t.Errorf("%d of 99", n)
	}
	d.Observe(t.Context(), "k", nil, true, time.Now())
	if n := admitted(t, d, "k", 200); n < 60 || n > 70 {
		t.Errorf("%d after a rejection of 100", n)
	}
	// It says something after all.
	d.Observe(t.Context(), "k", []retry.Quota{{Name: "q", Limit: 2, Remaining: 2, Reset: time.Minute, Window: time.Minute}}, false, time.Now())
	if n := admitted(t, d, "k", 10); n != 1 {
		t.Errorf("%d, of 2 one is the first", n)
	}
}

// TestSeveralQuotas: the tightest counts, and one that denies takes nothing from the others.
func TestSeveralQuotas(t *testing.T) {
	d, err := New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	day := retry.Quota{Name: "day", Limit: 8, Remaining: 8, Reset: 24 * time.Hour, Window: 24 * time.Hour}
	minute := retry.Quota{Name: "minute", Limit: 3, Remaining: 3, Reset: time.Minute, Window: time.Minute}
	d.Observe(t.Context(), "k", []retry.Quota{day, minute}, false, time.Now())
	if n := admitted(t, d, "k", 50); n != 2 {
		t.Errorf("%d, of 3 one is the first", n)
	}
	minute.Limit, minute.Remaining = 1000, 1000
	d.Observe(t.Context(), "k", []retry.Quota{minute}, false, time.Now())
	if n := admitted(t, d, "k", 50); n != 5 {
		t.Errorf("%d, want the 5 that are left of the day", n)
	}
}

// TestBlock stops all quotas of a key.
func TestBlock(t *testing.T) {
	d, err := New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	d.Observe(t.Context(), "k", []retry.Quota{{Name: "q", Limit: 5, Remaining: 5, Reset: time.Minute, Window: time.Minute}}, false, time.Now())
	if err := d.Block(t.Context(), "k", time.Hour); err != nil {
		t.Fatal(err)
	}
	if res, _ := d.AllowN(t.Context(), "k", 1); res.Allowed || res.RetryAfter < 59*time.Minute {
		t.Errorf("%+v", res)
	}
}

func TestBadOptions(t *testing.T) {
	if _, err := New(nil, limiter.WithPrefix("p")); !errors.As(err, new(*configerr.Error)) {
		t.Errorf("options without Redis: %v", err)
	}
	srv := redistest.Start(t)
	for _, o := range []limiter.RedisOption{nil, limiter.WithPrefix("")} {
		if _, err := New(redistest.Client(t, srv), o); err == nil {
			t.Errorf("%v: no error", o)
		}
	}
}

// TestQuotaWithoutABoundKeepsTheOthers: a quota without a bound does not keep the fleet from what is
// learnt of the others of its key.
func TestQuotaWithoutABoundKeepsTheOthers(t *testing.T) {
	srv := redistest.Start(t)
	for name, huge := range map[string]retry.Quota{
		"limit":     {Name: "x", Limit: 1<<63 - 1, Remaining: -1, Reset: time.Second, Window: time.Minute},
		"remaining": {Name: "x", Remaining: 1 << 53, Reset: time.Second, Window: time.Minute},
		"window":    {Name: "x", Limit: 5, Remaining: -1, Reset: time.Second, Window: 1<<63 - 1},
	} {
		t.Run(name, func(t *testing.T) {
			var ds [2]*Discovery
			for i := range ds {
				d, err := New(redistest.Client(t, srv), limiter.WithPrefix(name), limiter.WithProcess(string(rune('a'+i))), limiter.WithBudget(time.Second))
				if err != nil {
					t.Fatal(err)
				}
				defer d.Close()
				ds[i] = d
			}
			ds[0].Observe(t.Context(), "k", []retry.Quota{{Name: "hourly", Limit: 3, Remaining: 2, Reset: time.Hour, Window: time.Hour}, huge}, false, time.Now())
			if n := admitted(t, ds[1], "k", 10); n != 2 {
				t.Errorf("another process sends %d requests, of 3 that a window admits and 1 that was sent", n)
			}
		})
	}
}

// TestUnknownKeyIsAskedAboutOften: while nothing is known of a key, callers wait for what others
// learn, and Redis is asked each tenth of a second; afterwards each second.
func TestUnknownKeyIsAskedAboutOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim, err := limiter.NewLocal(Scouting)
		if err != nil {
			t.Fatal(err)
		}
		shelf := &countingShelf{}
		d := Of(lim, shelf)
		defer d.Close()
		for range 100 { // two seconds
			admitted(t, d, "k", 1)
			time.Sleep(20 * time.Millisecond)
		}
		if shelf.loads < 18 || shelf.loads > 20 {
			t.Errorf("asked %d times in two seconds", shelf.loads)
		}
		d.Observe(t.Context(), "k", []retry.Quota{{Name: "q", Limit: 1000, Remaining: 999, Reset: time.Minute, Window: time.Minute}}, false, time.Now())
		shelf.loads = 0
		for range 150 { // three seconds: in the first one no other can know more
			admitted(t, d, "k", 1)
			time.Sleep(20 * time.Millisecond)
		}
		if shelf.loads != 2 {
			t.Errorf("asked %d times in three seconds when it is known", shelf.loads)
		}
	})
}

// countingShelf has nothing.
type countingShelf struct{ loads int }

func (s *countingShelf) Load(context.Context, string) ([]lua.LearntQuota, error) {
	s.loads++
	return nil, nil
}

func (s *countingShelf) Save(context.Context, string, []lua.LearntQuota, time.Duration) error {
	return nil
}
func (s *countingShelf) Processes() int { return 1 }
func (s *countingShelf) Close()         {}
