package mail_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/limiter/limitertest"
)

// Mailer is the code to test. It takes an interface, and not a *limiter.Limiter.
type Mailer struct {
	Limiter limiter.Allower
	Sent    int
}

// Send sends a mail, or returns how long to wait before the next attempt.
func (m *Mailer) Send(ctx context.Context, to string) (retryAfter time.Duration, err error) {
	res, err := m.Limiter.AllowN(ctx, to, 1)
	if err != nil || !res.Allowed {
		return res.RetryAfter, err
	}
	m.Sent++
	return 0, nil
}

// A fake answers as the test wants: here it denies the third call, as a limiter does that
// decides in process because Redis is away.
func TestDenied(t *testing.T) {
	mailer := &Mailer{Limiter: &limitertest.Fake{Answer: func(c limitertest.Call) (limiter.Result, error) {
		if c.Number == 3 {
			return limiter.Result{RetryAfter: 2 * time.Second, Source: limiter.SourceLocal}, nil
		}
		return limitertest.Admitted(), nil
	}}}
	for _, want := range []time.Duration{0, 0, 2 * time.Second} {
		if wait, err := mailer.Send(t.Context(), "ann@example.com"); wait != want || err != nil {
			t.Errorf("wait %v, %v, want %v", wait, err, want)
		}
	}
}

// The real rules, in virtual time: NewLocal needs no Redis, and an hour takes no time.
func TestOnePerHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim, err := limiter.NewLocal(limiter.TokenBucket(limiter.PerHour(1), 1))
		if err != nil {
			t.Fatal(err)
		}
		defer lim.Close()
		mailer := &Mailer{Limiter: lim}
		for range 24 * 60 {
			if _, err := mailer.Send(t.Context(), "ann@example.com"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		if mailer.Sent != 24 {
			t.Errorf("%d mails in a day, want 24", mailer.Sent)
		}
	})
}

// With Redis, which goes away: miniredis runs in the test's process. A limiter that has just
// started does not know how many processes share its limit in an outage, unless it is told.
func TestRedisGoesAway(t *testing.T) {
	server := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	lim, err := limiter.New(rdb, limiter.TokenBucket(limiter.PerHour(10), 10),
		limiter.WithBudget(time.Second), limiter.WithExpectedProcesses(1))
	if err != nil {
		t.Fatal(err)
	}
	defer lim.Close()
	for _, want := range []limiter.Source{limiter.SourceRedis, limiter.SourceLocal} {
		res, err := lim.Allow(t.Context(), "ann@example.com")
		if err != nil || !res.Allowed || res.Source != want {
			t.Errorf("%+v, %v, want one by %v", res, err, want)
		}
		server.Close()
	}
}

// An Allower of your own keeps the contract of limiter.Allower.
func TestConformance(t *testing.T) {
	limitertest.Run(t, func(t *testing.T, limit limiter.Limit) limiter.Allower {
		lim, err := limiter.NewLocal(limit)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { lim.Close() })
		return lim
	})
}
