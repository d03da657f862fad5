package limiter_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
)

// TestClaimsFollowTheTraffic: of four processes one has had all the traffic of a key, and
// may use most of its limit when Redis is lost; all together never have more than the limit.
// Units that were given back were not granted, those of a lease were.
func TestClaimsFollowTheTraffic(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]limiter.Option{
		"plain": nil, "leases": {limiter.WithLease(100, time.Minute)}, "critical": {limiter.WithCriticalHeadroom(0.1)},
	} {
		t.Run(name, func(t *testing.T) {
			srv := redistest.Start(t)
			var lims []*limiter.Limiter
			for i := range 4 {
				lims = append(lims, newLimiter(t, redistest.Admin(t, srv), limiter.GCRA(limiter.PerHour(1000), 1000),
					append(opts, limiter.WithProcess(fmt.Sprint("p", i)), hasty(time.Hour), unhurried())...))
			}
			until(t, "four processes count each other", func() bool {
				agree := true
				for _, lim := range lims {
					if _, err := lim.Peek(t.Context(), "other"); err != nil {
						t.Fatal(err)
					}
					agree = agree && lim.Health().Processes == 4
				}
				return agree
			})
			const key = "a key with {braces} and %"
			for range 200 {
				_, err := lims[0].AllowN(t.Context(), key, 2)
				must(t, err)
			}
			r, err := lims[1].Reserve(t.Context(), key, limiter.Cost(300))
			must(t, err)
			must(t, r.Cancel(t.Context()))
			must(t, srv.Kill())
			var claims [4]float64
			sum := 0.0
			for i, lim := range lims {
				// What is held of a lease is spent first.
				until(t, "a local decision", func() bool {
					res, err := lim.AllowN(t.Context(), key, 1)
					must(t, err)
					claims[i] = res.Claim
					return res.Source == limiter.SourceLocal
				})
				sum += claims[i]
			}
			// Of two bursts, which is the most that is remembered, one had 400, or 100 more.
			if sum > 1 || claims[0] < 0.125+0.5*0.19 || claims[0] > 0.125+0.5*0.3 || claims[1] != 0.125 && name != "leases" || claims[2] != 0.125 || claims[3] != 0.125 {
				t.Errorf("claims of %v", claims)
			}
			fresh, err := lims[0].Allow(t.Context(), "fresh")
			if err != nil || fresh.Claim != 0.125 || fresh.Source != limiter.SourceLocal || !fresh.Allowed {
				t.Errorf("a key that nothing is known of: %+v, %v", fresh, err)
			}
		})
	}
}

// TestEqualShares: with WithEqualShare(1) the traffic does not matter, and WithShare fixes a
// claim.
func TestEqualShares(t *testing.T) {
	t.Parallel()
	for want, opts := range map[float64][]limiter.Option{
		0.25:  {limiter.WithEqualShare(1), limiter.WithExpectedProcesses(4)},
		0.4:   {limiter.WithShare(0.4)},
		0.125: {limiter.WithExpectedProcesses(4)},
		0.05:  {limiter.WithExpectedProcesses(10)},
	} {
		for _, parts := range []int{1, 4} {
			lim := newLimiter(t, nowhere(t), limiter.GCRA(limiter.PerHour(1000), 1000), append(opts, limiter.WithKeyShards(parts))...)
			if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Claim != want {
				t.Errorf("%+v, %v, want a claim of %v", res, err, want)
			}
			must(t, lim.Close())
		}
	}
}
