package operator_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/calendar"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/operator"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/sampled"
	"github.com/holdfast-go/holdfast/semaphore"
)

// keys are such that need encoding, and one that is known by its hash.
var keys = []string{"customer:42", "with {braces} % and spaces", strings.Repeat("long", 60)}

// TestInspectSaysWhatLimitersSay: for all seven algorithms, what is used, what remains and when, as a
// limiter says it.
func TestInspectSaysWhatLimitersSay(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t, redistest.Start(t))
	o := newOperator(t, rdb)
	for _, l := range all {
		lim := newLimiter(t, rdb, l)
		for _, key := range keys {
			use(t, lim, key, 3)
			want, err := lim.Peek(t.Context(), key)
			must(t, err)
			s := find(t, inspect(t, o, key, operator.Question{Limit: l}), l)
			if s.Used != 3 || s.Remaining == nil || *s.Remaining != int64(want.Remaining) || *s.RetryAfter != 0 || s.BlockedFor != 0 {
				t.Errorf("%v: %+v, want %+v", l, s, want)
			}
			if d := time.Duration(s.ResetAfter) - want.ResetAfter; d.Abs() > time.Minute {
				t.Errorf("%v: reset in %v, want %v", l, time.Duration(s.ResetAfter), want.ResetAfter)
			}
			if s.Expires <= 0 || s.Broken != "" || s.Part != nil || s.Since == nil && l.Algorithm() != "sliding window log" {
				t.Errorf("%v: %+v", l, s)
			}
			// Without the limit, what is used is known all the same.
			if s = find(t, inspect(t, o, key, operator.Question{}), l); s.Used != 3 || (s.Remaining != nil) != strings.Contains(l.String(), "burst") {
				t.Errorf("%v, without the limit: %+v", l, s)
			}
			use(t, lim, key, 7)
			denied, err := lim.Allow(t.Context(), key)
			must(t, err)
			s = find(t, inspect(t, o, key, operator.Question{Limit: l}), l)
			if d := time.Duration(*s.RetryAfter) - denied.RetryAfter; s.Used != 10 || *s.Remaining != 0 || d.Abs() > time.Minute {
				t.Errorf("%v, used up: %+v, want %+v", l, s, denied)
			}
		}
	}
}

// find returns the state of a limit's algorithm, which must be there once.
func find(t *testing.T, states []operator.State, l limiter.Limit) (out operator.State) {
	t.Helper()
	n := 0
	for _, s := range states {
		if s.Algorithm == l.Algorithm() {
			n++
			out = s
		}
	}
	if n != 1 {
		t.Fatalf("%v: %d states", l, n)
	}
	return out
}

// TestInspectParts: the parts of a split key are found, and add up.
func TestInspectParts(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t, redistest.Start(t))
	o := newOperator(t, rdb)
	l := limiter.GCRA(limiter.PerHour(2), 10)
	lim := newLimiter(t, rdb, l, limiter.WithKeyShards(4))
	for range 6 {
		use(t, lim, "hot", 1)
	}
	var used, left int64
	states := inspect(t, o, "hot", operator.Question{Limit: l, Shards: 4})
	for i, s := range states {
		if s.Part == nil || *s.Part != i || s.Remaining == nil {
			t.Fatalf("%+v", s)
		}
		used, left = used+s.Used, left+*s.Remaining
	}
	if len(states) != 4 || used != 6 || left != 4 {
		t.Errorf("%d parts, %d used and %d left", len(states), used, left)
	}
}

// TestInspectWhatIsNoLimit: leased units count as used; permits, demand and foreign values are shown.
func TestInspectWhatIsNoLimit(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t, redistest.Start(t))
	o := newOperator(t, rdb)
	leased := newLimiter(t, rdb, all[0], limiter.WithLease(4, time.Minute))
	use(t, leased, "k", 1)
	if s := find(t, inspect(t, o, "k", operator.Question{Limit: all[0]}), all[0]); s.Used < 4 {
		t.Errorf("a lease: %+v", s)
	}
	sem, err := semaphore.New(rdb, 2, limiter.WithBudget(3*time.Second))
	must(t, err)
	defer sem.Close()
	for range 2 {
		permit, err := sem.Acquire(t.Context(), "k")
		must(t, err)
		defer permit.Release()
	}
	must(t, rdb.Set(t.Context(), "holdfast:v2:gcra:{k}", "foreign", 0).Err())
	must(t, rdb.Set(t.Context(), "holdfast:v2:swl:{k}", "foreign", 0).Err())
	k, err := o.Inspect(t.Context(), "k", operator.Question{})
	must(t, err)
	if k.Permits == nil || k.Permits.Held != 2 || k.Permits.Waiting != 0 || k.Permits.LastEnd <= 0 || k.Permits.LastEnd > operator.Duration(time.Hour) {
		t.Errorf("permits: %+v", k.Permits)
	}
	broken := 0
	for _, s := range k.Limits {
		if s.Broken != "" {
			broken++
		}
	}
	if broken != 2 || len(k.Limits) != 3 {
		t.Errorf("%d broken of %+v", broken, k.Limits)
	}
	smp, err := sampled.New(rdb, limiter.PerSecond(10), sampled.WithInterval(100*time.Millisecond))
	must(t, err)
	defer smp.Close()
	redistest.Until(t, "the demand is reported", func() bool {
		if _, err := smp.Allow(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		k, err := o.Inspect(t.Context(), "k", operator.Question{})
		must(t, err)
		return k.SampledRate > 0
	})
	must(t, rdb.Set(t.Context(), "holdfast:v1:learnt:{learnt}", "x", 0).Err())
	if k, err := o.Inspect(t.Context(), "learnt", operator.Question{}); err != nil || k.Empty() || !k.Learnt {
		t.Errorf("%+v, %v", k, err)
	}
	if k, err := o.Inspect(t.Context(), "never used", operator.Question{}); err != nil || !k.Empty() || k.Learnt {
		t.Errorf("%+v, %v", k, err)
	}
	if _, err := o.Inspect(t.Context(), "", operator.Question{}); err == nil {
		t.Error("no key, and no error")
	}
}

// TestBlockAndUnblock: limiters of all seven algorithms obey a block of the operator's, and when it
// ends, what was counted is still there.
func TestBlockAndUnblock(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t, redistest.Start(t))
	o := newOperator(t, rdb)
	lims := map[limiter.Limit]*limiter.Limiter{}
	for _, l := range all {
		lims[l] = newLimiter(t, rdb, l)
		use(t, lims[l], "used", 3)
	}
	before := map[limiter.Limit]operator.State{}
	for _, key := range []string{"used", "never used"} {
		for _, l := range all {
			if key == "used" {
				before[l] = find(t, inspect(t, o, key, operator.Question{Limit: l}), l)
			}
		}
		c, err := o.Block(t.Context(), key, time.Minute, operator.BlockIn{})
		must(t, err)
		if len(c.Redis) != len(all) || c.Until == nil {
			t.Errorf("%s: %+v", key, c)
		}
		// A shorter one does not shorten it.
		again, err := o.Block(t.Context(), key, time.Second, operator.BlockIn{})
		if err != nil || again.Until.Before(c.Until.Add(-time.Second)) {
			t.Errorf("%s: %+v, %v", key, again, err)
		}
		for _, l := range all {
			res, err := lims[l].Allow(t.Context(), key)
			if err != nil || res.Allowed || res.RetryAfter < 50*time.Second {
				t.Errorf("%v, %s is blocked: %+v, %v", l, key, res, err)
			}
			s := find(t, inspect(t, o, key, operator.Question{Limit: l}), l)
			if s.BlockedFor <= 0 || *s.Remaining != 0 || key == "used" && (s.Used != 3 || s.Expires < before[l].Expires-operator.Duration(time.Minute)) {
				t.Errorf("%v, %s is blocked: %+v, before %+v", l, key, s, before[l])
			}
		}
		c, err = o.Unblock(t.Context(), key)
		if err != nil || len(c.Redis) != len(all) {
			t.Errorf("%+v, %v", c, err)
		}
		for _, l := range all {
			want := 10
			if key == "used" {
				want = 7
			}
			if res, err := lims[l].Peek(t.Context(), key); err != nil || res.Remaining != want {
				t.Errorf("%v, %s is not blocked any more: %+v, %v", l, key, res, err)
			}
		}
		if c, err := o.Unblock(t.Context(), key); err != nil || len(c.Redis) != 0 {
			t.Errorf("twice: %+v, %v", c, err)
		}
	}
	must(t, rdb.Set(t.Context(), "holdfast:v2:gcra:{foreign}", "text", 0).Err())
	if _, err := o.Block(t.Context(), "foreign", time.Minute, operator.BlockIn{}); err == nil {
		t.Error("a foreign value is blocked")
	}
	if _, err := o.Unblock(t.Context(), "foreign"); err == nil {
		t.Error("a foreign value is unblocked")
	}
	for _, d := range []time.Duration{0, -time.Hour, 367 * 24 * time.Hour} {
		if _, err := o.Block(t.Context(), "k", d, operator.BlockIn{}); err == nil {
			t.Errorf("a block of %v", d)
		}
	}
	if _, err := o.Block(t.Context(), "k", time.Hour, operator.BlockIn{Algorithm: "bucket"}); err == nil {
		t.Error("an unknown algorithm")
	}
}

// TestBlockParts: all parts of a split key are blocked, also those that have no state.
func TestBlockParts(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t, redistest.Start(t))
	o := newOperator(t, rdb)
	lim := newLimiter(t, rdb, all[3], limiter.WithKeyShards(4))
	use(t, lim, "used", 1) // one of four parts
	for key, in := range map[string]operator.BlockIn{"used": {}, "never used": {Algorithm: "token bucket", Shards: 4}} {
		blocked, err := o.Block(t.Context(), key, time.Minute, in)
		must(t, err)
		if n := map[string]int{"used": lua.MaxParts, "never used": 4}[key]; len(blocked.Redis) != n {
			t.Errorf("%s: %d parts are blocked, want %d", key, len(blocked.Redis), n)
		}
		for range 8 {
			if res, err := lim.Allow(t.Context(), key); err != nil || res.Allowed {
				t.Fatalf("%s: %+v, %v", key, res, err)
			}
		}
		_, err = o.Unblock(t.Context(), key)
		must(t, err)
		use(t, lim, key, 1)
	}
}

// TestReset: what was counted is forgotten, and permits only if that is asked for.
func TestReset(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t, redistest.Start(t))
	o := newOperator(t, rdb)
	for _, l := range all {
		use(t, newLimiter(t, rdb, l), "k", 10)
	}
	use(t, newLimiter(t, rdb, all[6], limiter.WithKeyShards(1)), "other", 10)
	sem, err := semaphore.New(rdb, 1, limiter.WithBudget(3*time.Second))
	must(t, err)
	defer sem.Close()
	permit, err := sem.Acquire(t.Context(), "k")
	must(t, err)
	defer permit.Release()
	c, err := o.Reset(t.Context(), "k", false)
	if err != nil || len(c.Redis) != len(all) {
		t.Errorf("%+v, %v", c, err)
	}
	k, err := o.Inspect(t.Context(), "k", operator.Question{})
	must(t, err)
	if len(k.Limits) != 0 || k.Permits == nil || k.Permits.Held != 1 {
		t.Errorf("%+v", k)
	}
	if len(inspect(t, o, "other", operator.Question{})) != 1 {
		t.Error("another key is gone")
	}
	for _, want := range []int{1, 0} {
		if c, err := o.Reset(t.Context(), "k", true); err != nil || len(c.Redis) != want {
			t.Errorf("with permits: %+v, %v", c, err)
		}
	}
}

// TestCluster: keys in hash slots of several servers, parts of a key, heartbeats on each server, and
// tables of limits.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	rdb, err := operator.Address{URL: "redis://" + c.Masters[1].Addr()}.Connect(t.Context())
	must(t, err)
	defer rdb.Close()
	of, ok := rdb.(*redis.ClusterClient)
	if !ok || !of.Options().ContextTimeoutEnabled {
		t.Fatalf("a node of a cluster is taken for %T", rdb)
	}
	said, err := operator.Address{URL: "redis+cluster://" + c.Masters[0].Addr()}.Connect(t.Context())
	must(t, err)
	must(t, said.Close())
	o := newOperator(t, rdb)
	lim := newLimiter(t, rdb, all[6], limiter.WithKeyShards(8))
	for range 10 {
		use(t, lim, "hot", 1)
	}
	var used int64
	for _, s := range inspect(t, o, "hot", operator.Question{}) {
		used += s.Used
	}
	if used != 10 {
		t.Errorf("%d used", used)
	}
	if changed, err := o.Block(t.Context(), "hot", time.Minute, operator.BlockIn{Shards: 8}); err != nil || len(changed.Redis) != 8 {
		t.Errorf("%+v, %v", changed, err)
	}
	if changed, err := o.Reset(t.Context(), "hot", false); err != nil || len(changed.Redis) != 8 {
		t.Errorf("%+v, %v", changed, err)
	}
	redistest.Until(t, "the process is on the list", func() bool {
		f, err := o.Fleet(t.Context())
		return err == nil && len(f.Processes) == 1
	})
	for _, table := range []string{"a", "b", "c", "d"} {
		_, err := o.SetLimit(t.Context(), table, "gold", all[6])
		must(t, err)
	}
	if tables, err := o.Tables(t.Context(), ""); err != nil || len(tables) != 4 || tables[3].Limits["gold"] != all[6] {
		t.Errorf("%+v, %v", tables, err)
	}
	checked, err := o.Check(t.Context())
	must(t, err)
	if len(checked.Servers) != 3 || checked.Worst() == operator.Failing || !slices.IsSortedFunc(checked.Servers, func(a, b operator.Server) int { return strings.Compare(a.Addr, b.Addr) }) {
		t.Errorf("%+v", checked)
	}
}

// TestInspectBrokenStates: what others have written under a key is shown as broken, and what else there
// is of the key as it is.
func TestInspectBrokenStates(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t, redistest.Start(t))
	o := newOperator(t, rdb)
	good := limiter.TokenBucket(limiter.PerMinute(1), 10)
	use(t, newLimiter(t, rdb, good), "k", 3)
	must(t, rdb.Set(t.Context(), "holdfast:v2:gcra:{k}", "1796391338345056:1795391338345055:0:1000000:0:0", 0).Err())
	must(t, rdb.Set(t.Context(), "holdfast:v2:lb:{k}", "1796391338345056:1795391338345055:0:0:0:0", 0).Err())
	states := inspect(t, o, "k", operator.Question{Limit: limiter.LeakyBucket(limiter.PerMinute(1), 10)})
	for _, s := range states {
		if broken := s.Algorithm != good.Algorithm(); (s.Broken != "") != broken || !broken && s.Used != 3 {
			t.Errorf("%+v", s)
		}
	}
	if len(states) != 3 {
		t.Errorf("%d states", len(states))
	}
}

// TestTablesAreFound: all tables of a server, or of a ring of servers, are found beside hashes of other
// programs whose names no table can have.
func TestTablesAreFound(t *testing.T) {
	t.Parallel()
	a, b := redistest.Start(t), redistest.Start(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": a.Addr(), "b": b.Addr()}, HeartbeatFrequency: time.Hour})
	defer ring.Close()
	for name, rdb := range map[string]redis.UniversalClient{"ring": ring, "server": redistest.Client(t, redistest.Start(t))} {
		o := newOperator(t, rdb)
		for _, table := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
			_, err := o.SetLimit(t.Context(), table, "gold", all[6])
			must(t, err)
		}
		for _, key := range []string{"holdfast:v1:limits:{a b}", "holdfast:v1:limits:{\x1b[2J}", "holdfast:v1:limits:{}"} {
			must(t, rdb.HSet(t.Context(), key, "gold", "1/s").Err())
		}
		tables, err := o.Tables(t.Context(), "")
		if err != nil || len(tables) != 8 || !slices.IsSortedFunc(tables, func(a, b operator.Table) int { return strings.Compare(a.Name, b.Name) }) {
			t.Errorf("%s: %+v, %v", name, tables, err)
		}
		must(t, rdb.HSet(t.Context(), "holdfast:v1:limits:{a}", "silver", "no limit").Err())
		if tables, err := o.Tables(t.Context(), "a"); err != nil || len(tables) != 1 || len(tables[0].Limits) != 1 || tables[0].Rejected["silver"] == "" {
			t.Errorf("%s: %+v, %v", name, tables, err)
		}
		if version, err := o.SetLimit(t.Context(), "a b", "gold", all[6]); err == nil || version != 0 {
			t.Errorf("%s: version %d, %v", name, version, err)
		}
	}
}

// TestInspectCalendars: of a limit that follows a calendar, the window ends when the limiter says, by the limit
// that is asked about and by what the state says alone.
func TestInspectCalendars(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t, redistest.Start(t))
	o := newOperator(t, rdb)
	for _, unit := range []calendar.Unit{calendar.Day, calendar.Week, calendar.Month, calendar.Year} {
		l := limiter.Calendar(10, unit, time.UTC)
		lim := newLimiter(t, rdb, l, limiter.WithPrefix("holdfast"))
		use(t, lim, "k", 10)
		denied, err := lim.Allow(t.Context(), "k")
		must(t, err)
		asked, alone := find(t, inspect(t, o, "k", operator.Question{Limit: l}), l), find(t, inspect(t, o, "k", operator.Question{}), l)
		for _, s := range []operator.State{asked, alone} {
			if d := time.Duration(s.ResetAfter) - denied.ResetAfter; d.Abs() > time.Minute || s.Used != 10 {
				t.Errorf("%v: %+v, want reset in %v", l, s, denied.ResetAfter)
			}
		}
		if d := time.Duration(*asked.RetryAfter) - denied.RetryAfter; d.Abs() > time.Minute || *asked.Remaining != 0 || !strings.Contains(alone.Rate, "calendar "+unit.String()) {
			t.Errorf("%v: %+v, %+v, want %+v", l, asked, alone, denied)
		}
		must(t, rdb.Set(t.Context(), asked.Redis, "0000000000000001:0000000000000001:1:"+strconv.FormatInt(algo.Shortest[unit-1], 10)+":0:7", 0).Err())
		if s := find(t, inspect(t, o, "k", operator.Question{Limit: l}), l); s.Used != 0 || *s.Remaining != 10 || s.ResetAfter != 0 {
			t.Errorf("%v, when the window is over: %+v", l, s)
		}
		must(t, lim.Close())
		must(t, rdb.FlushAll(t.Context()).Err())
	}
}

// TestErrorsOfOneCommandOfSeveral: what Redis answers to one of the commands that are sent together is the answer to all.
func TestErrorsOfOneCommandOfSeveral(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t, redistest.Start(t))
	o := newOperator(t, rdb)
	must(t, rdb.Set(t.Context(), "holdfast:v1:sampled:{all}", "foreign", 0).Err())
	if k, err := o.Inspect(t.Context(), "k", operator.Question{}); !redis.HasErrorPrefix(err, "WRONGTYPE") {
		t.Errorf("%+v, %v", k, err)
	}
	must(t, rdb.Set(t.Context(), "holdfast:v1:sampled:{all}:p", "foreign", 0).Err())
	if f, err := o.Fleet(t.Context()); !redis.HasErrorPrefix(err, "WRONGTYPE") {
		t.Errorf("%+v, %v", f, err)
	}
}
