package limits_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/limits"
)

// TestTableChangesTheFleet: two processes obey what a third one sets, and the program's limits
// again when it is removed.
func TestTableChangesTheFleet(t *testing.T) {
	t.Parallel()
	rdb, _ := inMemory(t)
	a, b := watch(t, rdb), watch(t, rdb)
	for _, w := range []*watched{a, b} {
		w.want(t, "gold", gold)
		w.want(t, "none", limiter.Limit{})
	}
	version, err := a.Put(t.Context(), "gold", more)
	must(t, err)
	_, err = b.Put(t.Context(), "new", free)
	must(t, err)
	for _, w := range []*watched{a, b} {
		w.reads(t).want(t, "gold", more)
		w.want(t, "new", free)
		w.want(t, "free", free)
		if h := w.Health(); version != 1 || h.Version != 2 || h.Err != nil || len(h.Limits) != 3 {
			t.Errorf("%+v", h)
		}
	}
	if _, err := a.Remove(t.Context(), "gold"); err != nil {
		t.Fatal(err)
	}
	a.reads(t).want(t, "gold", gold)
	if a.lines("limits changed") != 2 {
		t.Errorf("logged:\n%s", a.logged)
	}
}

// TestIntervals: a watcher sees a change by itself.
func TestIntervals(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t, redistest.Start(t))
	w := watch(t, rdb, limits.WithInterval(100*time.Millisecond))
	_, err := w.Put(t.Context(), "gold", more)
	must(t, err)
	redistest.Until(t, "the change is seen", func() bool { return w.For("gold") == more })
}

// TestBadValues: a value that cannot be read, or that the check rejects, changes nothing and is logged
// once. Others are obeyed.
func TestBadValues(t *testing.T) {
	t.Parallel()
	rdb, _ := inMemory(t)
	w := watch(t, rdb, limits.WithCheck(func(_ string, l limiter.Limit) error {
		if l.Burst() > 100 {
			return fmt.Errorf("more than a hundred")
		}
		return nil
	}))
	_, err := w.Put(t.Context(), "gold", more)
	must(t, err)
	w.reads(t).want(t, "gold", more)
	for _, bad := range []string{"lots/s", "", "5/s burst 0", "gcra 1/s burst 101", strings.Repeat("9", 1<<16) + "/s"} {
		before := w.lines("limit rejected")
		must(t, rdb.HSet(t.Context(), "holdfast:v1:limits:{plans}", "gold", bad, "free", "2/s", "bad name", "1/s").Err())
		for range 3 {
			w.reads(t).want(t, "gold", more)
		}
		w.want(t, "free", limiter.TokenBucket(limiter.PerSecond(2), 2))
		w.want(t, "bad name", limiter.Limit{})
		if n := w.lines("limit rejected") - before; n != 1 && n != 2 { // the bad name at first
			t.Errorf("%q: %d lines", bad, n)
		}
	}
	s, err := w.Table.Read(t.Context())
	if err != nil || s.Rejected["gold"] == nil || s.Limits["free"] == (limiter.Limit{}) {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestOutage: while Redis cannot be asked, the last limits stay and no caller waits; there is no line
// about an outage, and one about a table that cannot be read.
func TestOutage(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	proxy, rdb := redistest.Behind(t, srv, redis.Options{ReadTimeout: 3 * time.Second, ContextTimeoutEnabled: true, DialerRetries: 1})
	direct := redistest.Client(t, srv)
	w := watch(t, rdb)
	table, err := limits.New(direct, "plans")
	must(t, err)
	_, err = table.Put(t.Context(), "gold", more)
	must(t, err)
	redistest.Until(t, "it is read", func() bool { return w.reads(t).For("gold") == more })
	for _, mode := range []faultproxy.Mode{{Refuse: true}, {BlackHole: true}} {
		proxy.Set(mode)
		proxy.Reset()
		w.reads(t).want(t, "gold", more)
		if w.Health().Err == nil {
			t.Errorf("%+v: no error", mode)
		}
	}
	proxy.Pass()
	if n := w.lines("level=WARN") + w.lines("level=ERROR"); n != 0 {
		t.Errorf("an outage is logged:\n%s", w.logged)
	}
	redistest.Until(t, "the way is open again", func() bool { return w.reads(t).Health().Err == nil })
	must(t, direct.Del(t.Context(), "holdfast:v1:limits:{plans}").Err())
	must(t, direct.Set(t.Context(), "holdfast:v1:limits:{plans}", "text", 0).Err())
	for range 3 {
		w.reads(t).want(t, "gold", more)
	}
	if n := w.lines("cannot be read"); n != 1 {
		t.Errorf("%d lines about a key of the wrong type:\n%s", n, w.logged)
	}
}

// TestStartsWithoutRedis: the program's limits hold from the first call.
func TestStartsWithoutRedis(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1})
	defer rdb.Close()
	w := watch(t, rdb)
	w.want(t, "gold", gold)
	if h := w.Health(); h.Err == nil || h.Version != 0 || !h.ReadAt.IsZero() {
		t.Errorf("%+v", h)
	}
}

// TestLostTable: without the table the program's limits hold again, as in a process that starts now,
// and that is logged. A version that is lower than before is obeyed like any other.
func TestLostTable(t *testing.T) {
	t.Parallel()
	rdb, _ := inMemory(t)
	w := watch(t, rdb)
	for range 3 {
		_, err := w.Put(t.Context(), "gold", more)
		must(t, err)
	}
	w.reads(t).want(t, "gold", more)
	must(t, rdb.FlushAll(t.Context()).Err())
	for range 3 {
		w.reads(t).want(t, "gold", gold)
	}
	if n := w.lines("gone from redis"); n != 1 {
		t.Errorf("%d lines:\n%s", n, w.logged)
	}
	_, err := w.Put(t.Context(), "gold", free)
	must(t, err)
	w.reads(t).want(t, "gold", free)
	if h := w.Health(); h.Version != 1 {
		t.Errorf("version %d", h.Version)
	}
}

// TestTwoWriters: each change is counted, and none of another name is lost.
func TestTwoWriters(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t, redistest.Start(t))
	w := watch(t, rdb)
	var wg sync.WaitGroup
	for name, l := range map[string]limiter.Limit{"a": free, "b": gold, "c": more} {
		wg.Go(func() {
			for range 20 {
				if _, err := w.Put(t.Context(), name, l); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	s, err := w.Table.Read(t.Context())
	if err != nil || s.Version != 60 || s.Limits["a"] != free || s.Limits["b"] != gold || s.Limits["c"] != more {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestFullRedisSaysWhy: the error of a change is why Redis does not take it, not that it takes none of it.
func TestFullRedisSaysWhy(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t, redistest.Start(t, []string{"maxmemory", "1"}))
	table, err := limits.New(rdb, "plans")
	must(t, err)
	if v, err := table.Put(t.Context(), "gold", more); v != 0 || !redis.HasErrorPrefix(err, "OOM") {
		t.Errorf("version %d, %v", v, err)
	}
}

// TestMostNames: a table stays small.
func TestMostNames(t *testing.T) {
	t.Parallel()
	rdb, _ := inMemory(t)
	w := watch(t, rdb)
	p := rdb.Pipeline()
	p.HSet(t.Context(), "holdfast:v1:limits:{plans}", "%version", "100")
	for i := range limits.MaxNames - 1 {
		p.HSet(t.Context(), "holdfast:v1:limits:{plans}", fmt.Sprint("n", i), "1/s")
	}
	_, err := p.Exec(t.Context())
	must(t, err)
	_, err = w.Put(t.Context(), "last", free)
	must(t, err)
	if v, err := w.Put(t.Context(), "more", free); v != 0 || !errors.Is(err, limiter.ErrInvalidConfig) || !strings.Contains(err.Error(), "which has 1000,") {
		t.Errorf("one name too many: version %d, %v", v, err)
	}
	_, err = w.Put(t.Context(), "last", gold)
	must(t, err)
	if h := w.reads(t).Health(); h.Version != 102 || len(h.Limits) != limits.MaxNames+len(own) {
		t.Errorf("version %d with %d limits", h.Version, len(h.Limits))
	}
}

// TestCluster: the table is one key, wherever it is.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	defer rdb.Close()
	w := watch(t, rdb)
	_, err := w.Put(t.Context(), "gold", more)
	must(t, err)
	w.reads(t).want(t, "gold", more)
}

// TestMistakes: they are found at the start.
func TestMistakes(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	table, err := limits.New(rdb, "plans", limits.WithPrefix("other"))
	must(t, err)
	bad := []error{}
	add := func(_ any, err error) { bad = append(bad, err) }
	add(limits.New(nil, "plans"))
	add(limits.New(rdb, ""))
	add(limits.New(rdb, "a b"))
	add(limits.New(rdb, "plans", limits.WithPrefix("{}")))
	add(limits.New(rdb, "plans", nil))
	add(table.Watch(map[string]limiter.Limit{"": free}))
	add(table.Watch(map[string]limiter.Limit{"free": {}}))
	add(table.Watch(nil, limits.WithInterval(time.Millisecond)))
	add(table.Watch(nil, limits.WithInterval(2*time.Hour)))
	add(table.Put(t.Context(), "%version", free))
	add(table.Put(t.Context(), "free", limiter.Limit{}))
	add(table.Remove(t.Context(), "%version"))
	for i, err := range bad {
		if !errors.Is(err, limiter.ErrInvalidConfig) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// TestForCostsNothing: it is asked for each decision.
func TestForCostsNothing(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1})
	defer rdb.Close()
	w := watch(t, rdb)
	if n := testing.AllocsPerRun(100, func() { w.For("gold") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestLeastPermissions: a reader and a writer with the permissions of docs/operations.md.
func TestLeastPermissions(t *testing.T) {
	t.Parallel()
	reads, changes := "+hgetall", "+hexists +hlen +hset +hdel +hincrby +multi +exec"
	page, err := os.ReadFile("../docs/operations.md")
	must(t, err)
	user := "user %s on >secret ~holdfast:* -@all +hello " + reads
	srv := redistest.Start(t, strings.Fields(fmt.Sprintf(user, "reader")), strings.Fields(fmt.Sprintf(user, "writer")+" "+changes))
	as := func(user string) *watched {
		rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), Username: user, Password: "secret", MaxRetries: -1})
		t.Cleanup(func() { _ = rdb.Close() })
		return watch(t, rdb)
	}
	reader, writer := as("reader"), as("writer")
	_, err = writer.Put(t.Context(), "gold", more)
	must(t, err)
	_, err = writer.Put(t.Context(), "gone", more)
	must(t, err)
	_, err = writer.Remove(t.Context(), "gone")
	must(t, err)
	reader.reads(t).want(t, "gold", more)
	if _, err := reader.Put(t.Context(), "gold", free); err == nil || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("a reader changes the table: %v", err)
	}
	for _, list := range []string{reads, changes} {
		if !strings.Contains(string(page), "`"+list+"`") {
			t.Errorf("docs/operations.md does not have %s", list)
		}
	}
}

// TestRemoveOfNothing changes no version, so that no process hears of a change.
func TestRemoveOfNothing(t *testing.T) {
	for name, client := range map[string]func(*testing.T) *redis.Client{
		"memory": func(t *testing.T) *redis.Client { rdb, _ := inMemory(t); return rdb },
		"server": func(t *testing.T) *redis.Client { return redistest.Client(t, redistest.Start(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			table, err := limits.New(client(t), "plans")
			must(t, err)
			remove := func(name string, want int64) {
				t.Helper()
				if v, err := table.Remove(t.Context(), name); err != nil || v != want {
					t.Errorf("removing %s: version %d, %v, want %d", name, v, err, want)
				}
			}
			remove("gold", 0)
			_, err = table.Put(t.Context(), "gold", limiter.GCRA(limiter.PerSecond(1), 1))
			must(t, err)
			remove("silver", 0)
			remove("gold", 2)
			remove("gold", 0)
			read, err := table.Read(t.Context())
			if must(t, err); read.Version != 2 {
				t.Errorf("%+v", read)
			}
		})
	}
}
