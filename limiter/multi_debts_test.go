package limiter_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/sim"
	"github.com/holdfast-go/holdfast/limiter"
)

// TestLaterPartsSendWhatWaits: a process that asks for nothing but several limits at once charges the debts of all of them
// after an outage, and gives back what it kept of all, also where it never asks for a later one alone.
func TestLaterPartsSendWhatWaits(t *testing.T) {
	for name, use := range map[string]func(t *testing.T, m *limiter.Multi, r *limiter.Reservation){
		"debts": func(t *testing.T, m *limiter.Multi, _ *limiter.Reservation) {
			for range 5 {
				_, err := m.Allow(t.Context(), "k")
				must(t, err)
			}
		},
		"give-backs": func(t *testing.T, _ *limiter.Multi, r *limiter.Reservation) { must(t, r.Cancel(t.Context())) },
	} {
		t.Run(name, func(t *testing.T) {
			sim.Test(t, func(t *testing.T, r *sim.Redis) {
				make := clients(t, r)
				rdb := make()
				with := func(prefix string) *limiter.Limiter {
					return newLimiter(t, rdb, daily(100), limiter.WithShare(1), hasty(time.Second), limiter.WithPrefix(prefix))
				}
				first, second := with("first"), with("second")
				m := newMulti(t, limiter.Part{Name: "first", Limiter: first}, limiter.Part{Name: "second", Limiter: second})
				other := newLimiter(t, make(), daily(100), patient(), limiter.WithPrefix("second"))
				res, err := m.Reserve(t.Context(), "k", limiter.Cost(5))
				must(t, err)
				cut(t, r, "p1", first, second)
				_ = second.Reset(t.Context(), "one of an outage") // which drops its debt
				use(t, m, res)
				r.SetPath("p1", func(p *sim.Path) { p.Refused = false })
				for range 20 {
					time.Sleep(time.Second)
					_, err := m.Allow(t.Context(), "another")
					must(t, err)
				}
				want := map[string]int{"debts": 90, "give-backs": 100}[name]
				if n := left(t, other, "k"); n != want || first.Health().Owed+second.Health().Owed != 0 {
					t.Errorf("%d are left, want %d; %+v", n, want, second.Health())
				}
			})
		})
	}
}
