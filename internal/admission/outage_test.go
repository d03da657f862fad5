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

// outage denies in the place of Redis what is more than most, until Redis is back.
type outage struct {
	back  time.Time
	most  int
	after time.Duration
}

func (o outage) AllowN(_ context.Context, _ string, n int) (limiter.Result, error) {
	res := limiter.Result{Allowed: true, Limit: limiter.GCRA(limiter.PerMinute(6), 20), Remaining: 1, Source: limiter.SourceLocal, Claim: 0.1}
	if time.Now().Before(o.back) && n > o.most {
		res.Allowed, res.RetryAfter, res.BeyondClaim = false, o.after, o.most > 0
	}
	return res, nil
}

// TestLineOfCallsNoticesThatRedisIsBack: within a second, however long this process says that it takes.
func TestLineOfCallsNoticesThatRedisIsBack(t *testing.T) {
	for _, after := range []time.Duration{100 * time.Second, 999 * time.Millisecond} {
		for range 20 { // jitter
			synctest.Test(t, func(t *testing.T) {
				const away = 3 * time.Second
				c := newClient(t, outage{time.Now().Add(away), 0, after}, nil)
				start := time.Now()
				x := Begin(t.Context(), c, "h", "k")
				if s := x.Admit(); s != nil || time.Since(start) > away+time.Second {
					t.Errorf("%v: %+v after %v", after, s, time.Since(start))
				}
				// Nobody waits beyond a deadline in the hope of it.
				c = newClient(t, outage{time.Now().Add(away), 0, after}, nil)
				ctx, cancel := context.WithTimeout(t.Context(), after-1)
				defer cancel()
				start = time.Now()
				x = Begin(ctx, c, "h", "k")
				if s := x.Admit(); s == nil || s.Reason != retry.Throttled || s.Wait != after || time.Since(start) > 0 {
					t.Errorf("%v: %+v after %v", after, s, time.Since(start))
				}
			})
		}
	}
}

// TestLargeCallsStepAside: a call that only Redis can admit does not hold up those behind it,
// and comes first when Redis is back.
func TestLargeCallsStepAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const away = time.Minute
		c := newClient(t, outage{time.Now().Add(away), 1, 50 * time.Millisecond}, nil)
		start := time.Now()
		var wg sync.WaitGroup
		admit := func(cost int, most time.Duration) {
			wg.Go(func() {
				x := Begin(t.Context(), c, "h", "k")
				x.Cost = cost
				if s := x.Admit(); s != nil || time.Since(start) > most {
					t.Errorf("cost %d: %+v after %v", cost, s, time.Since(start))
				}
			})
			synctest.Wait()
		}
		admit(15, away+time.Second)
		for range 3 {
			admit(1, 0)
		}
		wg.Wait()
	})
}

// TestCallBehindOthersDoesNotKnowItsWait: it waits as long as it can, and its error names no time.
func TestCallBehindOthersDoesNotKnowItsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim, err := limiter.NewLocal(limiter.GCRA(limiter.PerSecond(1), 1))
		if err != nil {
			t.Fatal(err)
		}
		defer lim.Close()
		c := newClient(t, lim, nil)
		begin := func(d time.Duration) *Stop {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			x := Begin(ctx, c, "h", "k")
			return x.Admit()
		}
		if s := begin(time.Minute); s != nil {
			t.Fatal(s)
		}
		for range 10 {
			go begin(time.Minute)
		}
		synctest.Wait()
		start := time.Now()
		s := begin(5500 * time.Millisecond)
		if s == nil || s.Reason != retry.Throttled || s.Wait != 0 || !errors.Is(s.Err, context.DeadlineExceeded) || time.Since(start) > 5500*time.Millisecond {
			t.Errorf("%+v after %v", s, time.Since(start))
		} else if text := Then(s.Reason, s.Wait, s.Err); strings.Contains(text, "retry in") {
			t.Error(text)
		}
	})
}
