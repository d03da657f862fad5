package limiter_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata" // for machines without the database

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/calendar"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/sim"
	"github.com/holdfast-go/holdfast/limiter"
)

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	must(t, err)
	return loc
}

// TestCalendarText: a calendar limit is read back from its text, by every way in which people write it,
// and is equal to one that was made by hand.
func TestCalendarText(t *testing.T) {
	berlin := zone(t, "Europe/Berlin")
	want := limiter.Calendar(10_000, calendar.Month, berlin)
	for _, text := range []string{"10000/month Europe/Berlin", "fixed window 10000/month Europe/Berlin", "Fixed-Window 10000/Month  Europe/Berlin ", want.String()} {
		if got, err := limiter.ParseLimit(text); err != nil || got != want {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
	if want.String() != "fixed window 10000/month Europe/Berlin" || want.Algorithm() != "fixed window" || want.Burst() != 10_000 || want.Rate().Per != 730*time.Hour+29*time.Minute+6*time.Second {
		t.Errorf("%v, %v, %v", want, want.Algorithm(), want.Rate())
	}
	for _, unit := range []calendar.Unit{calendar.Day, calendar.Week, calendar.Month, calendar.Year} {
		l := limiter.Calendar(3, unit, time.UTC)
		var back limiter.Limit
		text, err := json.Marshal(l)
		if err != nil || json.Unmarshal(text, &back) != nil || back != l || l.Validate() != nil {
			t.Errorf("%v is %s, %v, %v", l, text, back, err)
		}
	}
	for text, rule := range map[string]string{
		"10/month": "a time zone must follow", "10/week burst 5": "must be a time zone", "10/day Mars/Olympus": "must be a time zone",
		"10/day Local": "a name that is the same everywhere", "gcra 10/day UTC": "nothing more", "0/day UTC": "at least 1", "10/day ../etc": "must be a time zone",
		"token bucket 10/month UTC": "must be a period", "10/day localtime": "", "10/day Europe//Berlin": "", "10/day ./Europe/Berlin": "", "10/day Europe/./Berlin": "",
	} {
		if l, err := limiter.ParseLimit(text); !errors.Is(err, limiter.ErrInvalidConfig) || !strings.Contains(err.Error(), rule) {
			t.Errorf("%q: %v, %v", text, l, err)
		}
	}
	if l, err := limiter.ParseLimit("10/day burst 5"); err != nil || l.Algorithm() != "token bucket" {
		t.Errorf("%v, %v", l, err)
	}
	for field, l := range map[string]limiter.Limit{
		"time zone is Local":   limiter.Calendar(1, calendar.Day, time.Local),
		"time zone is nil":     limiter.Calendar(1, calendar.Day, nil),
		"time zone is nowhere": limiter.Calendar(1, calendar.Day, time.FixedZone("nowhere", 3600)),
		"calendar unit is 0":   limiter.Calendar(1, 0, time.UTC),
		"calendar unit is 9":   limiter.Calendar(1, 9, time.UTC),
		"rate is 0":            limiter.Calendar(0, calendar.Day, time.UTC),
		"time zone is , must":  limiter.Calendar(1, calendar.Day, time.FixedZone("", 3600)),
	} {
		if _, err := limiter.NewLocal(l); !errors.Is(err, limiter.ErrInvalidConfig) || !strings.Contains(fmt.Sprint(err), strings.TrimSuffix(field, ", must")) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// TestCalendarLocally: in virtual time, each window admits its units, and a caller that waits for
// RetryAfter is admitted, also where a day has 23 or 25 hours and a month 28 to 31 days.
func TestCalendarLocally(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		berlin := zone(t, "Europe/Berlin")
		for _, unit := range []calendar.Unit{calendar.Day, calendar.Week, calendar.Month, calendar.Year} {
			lim, err := limiter.NewLocal(limiter.Calendar(3, unit, berlin))
			must(t, err)
			for range map[calendar.Unit]int{calendar.Day: 370, calendar.Week: 60, calendar.Month: 26, calendar.Year: 5}[unit] {
				_, end := unit.Window(time.Now().In(berlin))
				left := time.Until(end)
				for i := range 4 {
					res, err := lim.Allow(t.Context(), "k")
					if err != nil || res.Allowed != (i < 3) || res.ResetAfter != left || i == 3 && res.RetryAfter != left {
						t.Fatalf("%v, %d at %v: %+v, %v; want %v", unit, i, time.Now().In(berlin), res, err, left)
					}
				}
				time.Sleep(left - time.Microsecond)
				if res, err := lim.Allow(t.Context(), "k"); err != nil || res.RetryAfter != time.Microsecond {
					t.Fatalf("%+v, %v", res, err)
				}
				time.Sleep(time.Microsecond)
			}
			must(t, lim.Close())
		}
	})
}

// TestCalendarInRedis: counts, costs, reservations, leases, split keys and a Multi work as for other
// windows, and RetryAfter and ResetAfter are the end of the window.
func TestCalendarInRedis(t *testing.T) {
	rdb := redistest.Client(t, redistest.Start(t))
	tokyo := zone(t, "Asia/Tokyo")
	limit := limiter.Calendar(10, calendar.Year, tokyo)
	for name, opts := range map[string][]limiter.Option{
		"plain": nil, "leased": {limiter.WithLease(3, time.Hour)}, "split": {limiter.WithKeyShards(2)}, "functions": {limiter.WithFunctions()},
	} {
		t.Run(name, func(t *testing.T) {
			lim := newLimiter(t, rdb, limit, append(opts, patient(), limiter.WithPrefix(name))...)
			admitted := 0
			for range 12 {
				res, err := lim.Allow(t.Context(), "k")
				must(t, err)
				if res.Allowed {
					admitted++
				}
				_, end := calendar.Year.Window(time.Now().In(tokyo))
				if d := res.ResetAfter - time.Until(end); d < -time.Second || d > time.Minute || !res.Allowed && (res.RetryAfter > res.ResetAfter || res.RetryAfter < res.ResetAfter-time.Second) {
					t.Fatalf("%+v", res)
				}
			}
			if admitted != 10 {
				t.Errorf("%d admitted", admitted)
			}
		})
	}
	lim := newLimiter(t, rdb, limit, patient(), limiter.WithPrefix("more"))
	day := newLimiter(t, rdb, limiter.Calendar(5, calendar.Day, time.UTC), patient(), limiter.WithPrefix("day"))
	m := newMulti(t, limiter.Part{Name: "year", Limiter: lim}, limiter.Part{Name: "day", Limiter: day})
	r, err := m.Reserve(t.Context(), "k", limiter.AtMost(100))
	if err != nil || r.Admitted != 5 {
		t.Fatalf("%+v, %v", r, err)
	}
	must(t, r.Settle(t.Context(), 2))
	if a, b := left(t, lim, "k"), left(t, day, "k"); a != 8 || b != 3 {
		t.Errorf("%d and %d left", a, b)
	}
	must(t, lim.Refund(t.Context(), "k", 1))
	must(t, lim.Block(t.Context(), "k", time.Hour))
	res, err := lim.Allow(t.Context(), "k")
	if err != nil || res.Allowed || res.RetryAfter > time.Hour {
		t.Errorf("%+v, %v", res, err)
	}
	must(t, lim.Reset(t.Context(), "k"))
	if n := left(t, lim, "k"); n != 10 {
		t.Errorf("%d left", n)
	}
	if _, err := lim.Allow(t.Context(), "k", limiter.Calendar(20, calendar.Month, tokyo)); err != nil {
		t.Error(err)
	}
}

// TestCalendarInAnOutage: local decisions follow the calendar, within the claim, and Redis is charged
// with them.
func TestCalendarInAnOutage(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		lim, _ := simulatedLimiter(t, r, "a", limiter.Calendar(100, calendar.Year, time.UTC), hasty(50*time.Millisecond), limiter.WithShare(0.1))
		reserve(t, lim, "k", 20)
		r.SetPath("a", func(p *sim.Path) { p.Refused = true })
		untilOpen(t, lim)
		takes(t, lim, "k", 100, 8)
		r.SetPath("a", func(p *sim.Path) { p.Refused = false })
		untilCharged(t, lim)
		if n := left(t, lim, "k"); n != 100-20-8 {
			t.Errorf("%d left", n)
		}
	})
}

func ExampleCalendar() {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		fmt.Println(err)
		return
	}
	limit := limiter.Calendar(2, calendar.Month, berlin)
	lim, err := limiter.NewLocal(limit)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lim.Close()
	for range 3 {
		res, err := lim.Allow(context.Background(), "account")
		fmt.Println(res.Allowed, res.Remaining, err)
	}
	fmt.Println(limit)
	// Output:
	// true 1 <nil>
	// true 0 <nil>
	// false 0 <nil>
	// fixed window 2/month Europe/Berlin
}

// ahead is a hook of a client whose server has a clock that is days ahead.
type ahead struct{ by time.Duration }

func (ahead) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a ahead) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		args := cmd.Args()
		if strings.HasPrefix(cmd.Name(), "eval") {
			if keys, ok := args[2].(int); ok && args[3+keys] == any(int64(0)) {
				args[3+keys] = time.Now().Add(a.by).UnixMicro()
			}
		}
		return next(ctx, cmd)
	}
}

func (a ahead) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			_ = a.ProcessHook(func(context.Context, redis.Cmder) error { return nil })(ctx, cmd)
		}
		return next(ctx, cmds)
	}
}

// TestCalendarByAnotherClock: the windows are those of the clock of Redis. A process whose clock is in
// another one decides one request in its claim, which costs no error and opens no breaker, and Redis is charged with it.
func TestCalendarByAnotherClock(t *testing.T) {
	srv := redistest.Start(t)
	for _, by := range []time.Duration{10 * 24 * time.Hour, -10 * 24 * time.Hour, 20 * time.Hour} {
		rdb := redistest.Client(t, srv)
		rdb.AddHook(ahead{by})
		lim := newLimiter(t, rdb, limiter.Calendar(10, calendar.Day, time.UTC), unhurried(), limiter.WithShare(0.5), limiter.WithPrefix(fmt.Sprint("by", int(by.Hours()))))
		first, err := lim.Allow(t.Context(), "k")
		want := limiter.SourceLocal
		if by == 20*time.Hour {
			want = limiter.SourceRedis // the next window, which the process knows too
		}
		if err != nil || !first.Allowed || first.Source != want {
			t.Errorf("%v: %+v, %v", by, first, err)
		}
		res, err := lim.Allow(t.Context(), "k")
		_, end := calendar.Day.Window(time.Now().Add(by).UTC())
		if left := time.Until(end.Add(-by)); err != nil || !res.Allowed || res.Source != limiter.SourceRedis || res.ResetAfter > left+time.Minute || res.ResetAfter < left-time.Minute {
			t.Errorf("%v: %+v, %v, want a reset after %v", by, res, err, left)
		}
		untilCharged(t, lim)
		if n := left(t, lim, "k"); n != 8 {
			t.Errorf("%v: %d left", by, n)
		}
		if servers := lim.Health().Servers; len(servers) != 1 || servers[0].LastFailure != 0 {
			t.Errorf("%v: %+v", by, servers)
		}
		day, err := limiter.New(rdb, limiter.Calendar(5, calendar.Day, time.UTC), unhurried(), limiter.WithPrefix(fmt.Sprint("multi", int(by.Hours()))), quiet())
		must(t, err)
		m := newMulti(t, limiter.Part{Name: "a", Limiter: day}, limiter.Part{Name: "b", Limiter: lim})
		for range 2 {
			if res, err := m.Allow(t.Context(), "m"); err != nil || !res.Allowed {
				t.Errorf("%v: %+v, %v", by, res, err)
			}
		}
		must(t, day.Close())
	}
}
