package lua_test

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/lua"
)

// TestLearnt: what is saved is read again, with the times that have passed since, expires, and
// is overwritten as a whole; a clock that steps back makes no time negative.
func TestLearnt(t *testing.T) {
	rdb := newClient(t)
	c, key := lua.NewClient(rdb), lua.NewNamer("p").Learnt("k")
	now := int64(1_760_000_000_000_000)
	ask := func(l *lua.Learnt) []lua.LearntQuota {
		t.Helper()
		l.Key = key
		errs := make([]error, 1)
		if c.Do(t.Context(), []lua.Command{l}, errs); errs[0] != nil {
			t.Fatal(errs[0])
		}
		return l.Out
	}
	if got := ask(&lua.Learnt{Now: now}); len(got) != 0 {
		t.Fatalf("nothing was saved: %v", got)
	}
	saved := []lua.LearntQuota{
		{Name: 1 << 47, Limit: 1_000_000, Window: 3600 * second, Stretch: 1150, Cut: 5 * second, Taken: 70, Left: 20 * second},
		{Name: 7, Limit: 1, Window: second},
	}
	if got := ask(&lua.Learnt{Now: now, Life: 60_000, Quotas: saved}); !slices.Equal(got, saved) {
		t.Errorf("saved %v", got)
	}
	later := slices.Clone(saved)
	later[0].Cut, later[0].Left, later[1].Cut = 15*second, 10*second, 10*second
	if got := ask(&lua.Learnt{Now: now + 10*second}); !slices.Equal(got, later) {
		t.Errorf("10 s later %v, want %v", got, later)
	}
	if got := ask(&lua.Learnt{Now: now - 3600*second}); got[0].Cut != 0 || got[1].Cut != 0 {
		t.Errorf("an hour before %v", got)
	}
	if d := rdb.PTTL(t.Context(), key).Val(); d <= 0 || d > time.Minute {
		t.Errorf("lives for %v", d)
	}
	if got := ask(&lua.Learnt{Now: now, Life: 1000, Quotas: saved[1:]}); !slices.Equal(got, saved[1:]) {
		t.Errorf("overwritten: %v", got)
	}
	rdb.Set(t.Context(), key, "1:2:3", 0)
	errs := make([]error, 1)
	if c.Do(t.Context(), []lua.Command{&lua.Learnt{Key: key}}, errs); errs[0] == nil {
		t.Error("a state that is not ours was read")
	}
}
