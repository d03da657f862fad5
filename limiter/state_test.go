package limiter_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
)

// TestUnitsOfALostStateAreNotGivenBack: what was charged before a key was reset, or Redis lost
// everything, does not go back to what has begun since.
func TestUnitsOfALostStateAreNotGivenBack(t *testing.T) {
	srv := redistest.Start(t)
	admin := redistest.Admin(t, srv)
	for _, limit := range slow(10) {
		lim := newLimiter(t, redistest.Client(t, srv), limit, patient())
		for name, lose := range map[string]func() error{
			"reset":    func() error { return lim.Reset(t.Context(), "k") },
			"flushall": func() error { return admin.FlushAll(t.Context()).Err() },
		} {
			must(t, admin.FlushAll(t.Context()).Err())
			r, err := lim.Reserve(t.Context(), "k", limiter.Cost(8))
			must(t, err)
			must(t, lose())
			res, err := lim.AllowN(t.Context(), "k", 10)
			if err != nil || !res.Allowed {
				t.Fatalf("%v after a %s: %+v, %v", limit, name, res, err)
			}
			must(t, r.Cancel(t.Context()))
			if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Allowed {
				t.Errorf("%v: 11 of 10 after a %s: %+v, %v", limit, name, res, err)
			}
		}
	}
}

// TestBlockOfAnAlgorithm: a block is a part of the state of one algorithm, by default
// the limiter's own.
func TestBlockOfAnAlgorithm(t *testing.T) {
	own, other := limiter.GCRA(limiter.PerHour(10), 10), limiter.FixedWindow(limiter.PerHour(10))
	local, err := limiter.NewLocal(own)
	must(t, err)
	defer local.Close()
	for name, lim := range map[string]reserver{
		"redis":      newLimiter(t, redistest.Client(t, redistest.Start(t)), own, patient()),
		"in process": local,
	} {
		for _, c := range []struct {
			key  string
			opts []limiter.Limit
		}{{"own", nil}, {"other", []limiter.Limit{other}}} {
			must(t, lim.Block(t.Context(), c.key, time.Hour, c.opts...))
			for limit, blocked := range map[limiter.Limit]bool{own: c.key == "own", other: c.key == "other"} {
				res, err := lim.Peek(t.Context(), c.key, limit)
				must(t, err)
				if res.Allowed == blocked || blocked && (res.Remaining != 0 || res.ResetAfter < res.RetryAfter || res.RetryAfter < time.Minute) {
					t.Errorf("%s, a block of the %s algorithm, %v: %+v", name, c.key, limit, res)
				}
			}
		}
	}
}
