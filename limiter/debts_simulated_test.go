package limiter_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/sim"
	"github.com/holdfast-go/holdfast/limiter"
)

// TestRefundsAfterAnOutageCountOnce: of what this process owes, a refund forgives what Redis has not given back. Where Redis
// may have given it back, nothing is forgiven.
func TestRefundsAfterAnOutageCountOnce(t *testing.T) {
	for name, c := range map[string]struct {
		others  int  // units, in Redis
		lost    bool // the reply
		want    int
		refused bool // Redis is away
	}{
		"Redis has as many":       {others: 20, want: 100 - 24},
		"Redis has some":          {others: 2, want: 100 - 6},
		"Redis has none":          {want: 100 - 4},
		"the reply is lost":       {others: 20, lost: true, want: 100 - 24},
		"Redis cannot be reached": {others: 20, refused: true, want: 100 - 24},
		"nothing there, and away": {refused: true, want: 100 - 4},
	} {
		t.Run(name, func(t *testing.T) {
			sim.Test(t, func(t *testing.T, r *sim.Redis) {
				make := clients(t, r)
				here := newLimiter(t, make(), daily(100), limiter.WithShare(1), hasty(time.Second))
				there := newLimiter(t, make(), daily(100), patient())
				_, err := here.Allow(t.Context(), "another")
				must(t, err)
				must(t, here.Refund(t.Context(), "another", 1)) // loads the script
				if c.others > 0 {
					_, err = there.AllowN(t.Context(), "k", c.others)
					must(t, err)
				}
				cut(t, r, "p1", here)
				if res, err := here.AllowN(t.Context(), "k", 10); err != nil || res.Source != limiter.SourceLocal {
					t.Errorf("%+v, %v", res, err)
				}
				if !c.refused {
					r.SetPath("p1", func(p *sim.Path) { p.Refused = false })
					time.Sleep(2 * time.Second)
					left(t, here, "another") // a probe, after which nothing is charged yet
					r.SetPath("p1", func(p *sim.Path) { p.RepliesLost = c.lost })
				}
				if err := here.Refund(t.Context(), "k", 6); (err != nil) != (c.refused || c.lost) || err != nil && !errors.Is(err, limiter.ErrUnavailable) {
					t.Error(err)
				}
				r.SetPath("p1", func(p *sim.Path) { p.Refused, p.RepliesLost = false, false })
				for range 20 {
					time.Sleep(time.Second)
					_, err := here.Allow(t.Context(), "another")
					must(t, err)
				}
				if n := left(t, there, "k"); n != c.want {
					t.Errorf("%d are left, want %d", n, c.want)
				}
			})
		})
	}
}

// TestRefundOfAPartThatIsOwed: what is forgiven of one part of a split key is not given back of the next one.
func TestRefundOfAPartThatIsOwed(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		make := clients(t, r)
		here := newLimiter(t, make(), daily(100), limiter.WithShare(1), hasty(time.Second), limiter.WithKeyShards(2))
		there := newLimiter(t, make(), daily(100), patient(), limiter.WithKeyShards(2))
		for range 2 { // a part each
			_, err := there.AllowN(t.Context(), "k", 20)
			must(t, err)
		}
		must(t, there.Refund(t.Context(), "k", 20)) // those of the first part
		cut(t, r, "p1", here)
		if res, err := here.AllowN(t.Context(), "k", 10); err != nil || res.Source != limiter.SourceLocal {
			t.Errorf("%+v, %v", res, err)
		}
		r.SetPath("p1", func(p *sim.Path) { p.Refused = false })
		time.Sleep(2 * time.Second)
		left(t, here, "another")
		must(t, here.Refund(t.Context(), "k", 6))
		for range 20 {
			time.Sleep(time.Second)
			_, err := here.Allow(t.Context(), "another")
			must(t, err)
		}
		n := 0
		for res, err := there.Allow(t.Context(), "k"); err == nil && res.Allowed; res, err = there.Allow(t.Context(), "k") {
			n++
		}
		if n != 76 {
			t.Errorf("%d were left", n)
		}
	})
}
