package operator_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/operator"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// check returns what is found at a server, by id.
func check(t *testing.T, rdb redis.UniversalClient) map[string]operator.Finding {
	t.Helper()
	c, err := newOperator(t, rdb).Check(t.Context())
	must(t, err)
	out := map[string]operator.Finding{}
	order := []operator.Level{operator.Failing, operator.Risk, operator.Note}
	if !slices.IsSortedFunc(c.Findings, func(a, b operator.Finding) int { return slices.Index(order, a.Level) - slices.Index(order, b.Level) }) {
		t.Errorf("the worst is not the first: %+v", c.Findings)
	}
	for _, f := range c.Findings {
		if f.What == "" || f.Effect == "" || f.Do == "" || f.Server == "" {
			t.Errorf("not explained: %+v", f)
		}
		out[f.ID] = f
	}
	return out
}

func ids(found map[string]operator.Finding) (out []string) {
	for id, f := range found {
		out = append(out, fmt.Sprintf("%s:%s", f.Level, id))
	}
	slices.Sort(out)
	return out
}

// expect asserts what is found, and that nothing else but notes is.
func expect(t *testing.T, rdb redis.UniversalClient, want ...string) {
	t.Helper()
	found := check(t, rdb)
	for _, id := range want {
		if !slices.Contains(ids(found), id) {
			t.Errorf("%s was not found among %v", id, ids(found))
		}
	}
	for _, id := range ids(found) {
		if !slices.Contains(want, id) && !strings.HasPrefix(id, "note:") {
			t.Errorf("found %s too: %+v", id, found[strings.SplitN(id, ":", 2)[1]])
		}
	}
}

// TestNothingIsFound: a server as one starts it for limits alone.
func TestNothingIsFound(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := redistest.Client(t, srv)
	expect(t, rdb, "note:maxmemory", "note:persistence", "note:no-replica")
	if left, err := rdb.Keys(t.Context(), "*").Result(); err != nil || len(left) > 7 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	for _, key := range rdb.Keys(t.Context(), "*").Val() {
		if ttl := rdb.PTTL(t.Context(), key).Val(); ttl <= 0 || ttl > 4*time.Second {
			t.Errorf("%s lives for %v", key, ttl)
		}
	}
}

// TestBadSettings: what one server can have wrong at once.
func TestBadSettings(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t,
		[]string{"maxmemory", "4mb"}, []string{"maxmemory-policy", "allkeys-lru"}, []string{"timeout", "60"}, []string{"tcp-keepalive", "0"},
		[]string{"busy-reply-threshold", "0"}, []string{"notify-keyspace-events", "KEA"}, []string{"bind", "0.0.0.0"},
		[]string{"appendonly", "yes"}, []string{"appendfsync", "always"}, []string{"save", "900 1"}, []string{"maxclients", "6"})
	rdb := redistest.Client(t, srv)
	p := rdb.Pipeline()
	for i := range 6000 {
		p.Set(t.Context(), fmt.Sprint("other", i), strings.Repeat("x", 1000), 0)
	}
	p.Keys(t.Context(), "none*")
	p.FlushDB(t.Context())
	_, err := p.Exec(t.Context())
	must(t, err)
	for range 4 {
		other := redistest.Client(t, srv)
		must(t, other.Ping(t.Context()).Err())
	}
	expect(t, rdb, "risk:eviction-policy", "risk:evicted", "risk:timeout", "risk:keepalive", "risk:busy", "risk:notifications", "risk:open",
		"risk:fsync", "risk:stop-writes", "risk:maxclients", "risk:keys", "note:flushed")
}

// TestRejectedWrites: each reason for which a server that answers makes all decisions local.
func TestRejectedWrites(t *testing.T) {
	t.Parallel()
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		rdb := redistest.Client(t, redistest.Start(t))
		for i := range 10 {
			must(t, rdb.Set(t.Context(), fmt.Sprint("other", i), strings.Repeat("x", 1<<20), 0).Err())
		}
		used, err := rdb.InfoMap(t.Context(), "memory").Result()
		must(t, err)
		n, err := strconv.Atoi(used["Memory"]["used_memory"])
		must(t, err)
		must(t, rdb.ConfigSet(t.Context(), "maxmemory", fmt.Sprint(n*115/100)).Err())
		expect(t, rdb, "risk:nearly-full")
		must(t, rdb.ConfigSet(t.Context(), "maxmemory", fmt.Sprint(n/2)).Err())
		expect(t, rdb, "risk:nearly-full", "failing:out-of-memory")
	})
	t.Run("replicas", func(t *testing.T) {
		t.Parallel()
		srv := redistest.Start(t, []string{"min-replicas-to-write", "1"})
		rdb := redistest.Client(t, srv)
		expect(t, rdb, "failing:replicas-missing")
		replica := redistest.Start(t, []string{"replicaof", "127.0.0.1 " + fmt.Sprint(srv.Port())})
		redistest.Until(t, "the replica follows", func() bool {
			return strings.Contains(rdb.Info(t.Context(), "replication").Val(), "min_slaves_good_slaves:1")
		})
		expect(t, rdb, "risk:replicas-just-enough")
		expect(t, redistest.Client(t, replica), "failing:replica")
	})
	t.Run("disk", func(t *testing.T) {
		t.Parallel()
		rdb := redistest.Client(t, redistest.Start(t, []string{"save", "900 1"}))
		dir, err := os.MkdirTemp("", "holdfast-gone-")
		must(t, err)
		must(t, rdb.ConfigSet(t.Context(), "dir", dir).Err())
		must(t, os.Remove(dir))
		must(t, rdb.Set(t.Context(), "other", "x", 0).Err())
		must(t, rdb.BgSave(t.Context()).Err())
		redistest.Until(t, "the save has failed", func() bool {
			return strings.Contains(rdb.Info(t.Context(), "persistence").Val(), "rdb_last_bgsave_status:err")
		})
		expect(t, rdb, "failing:save-failed", "risk:stop-writes")
	})
	t.Run("permissions", func(t *testing.T) {
		t.Parallel()
		srv := redistest.Start(t, strings.Fields("user app on >secret ~holdfast:* -@all +hello +ping +time +evalsha +eval +get"))
		rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), Username: "app", Password: "secret"})
		defer rdb.Close()
		expect(t, rdb, "failing:permissions", "note:info", "note:config")
	})
	t.Run("commands", func(t *testing.T) {
		t.Parallel()
		rdb := redistest.Client(t, redistest.Start(t, []string{"rename-command", "EVALSHA", ""}))
		expect(t, rdb, "failing:commands")
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		srv := redistest.Start(t, []string{"cluster-enabled", "yes"})
		rdb, err := operator.Address{URL: srv.Addr()}.Connect(t.Context())
		must(t, err)
		defer rdb.Close()
		expect(t, rdb, "failing:cluster-down", "failing:scripts", "risk:full-coverage", "risk:plain-client")
	})
}

// TestFarServer: a round trip that the budget does not bear.
func TestFarServer(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	proxy, rdb := redistest.Behind(t, srv, redis.Options{})
	proxy.Set(faultproxy.Mode{ReplyDelay: 30 * time.Millisecond})
	expect(t, rdb, "failing:far")
}

// TestUnavailableServer: what cannot be reached is an error, soon.
func TestUnavailableServer(t *testing.T) {
	t.Parallel()
	if _, err := (operator.Address{URL: "redis://:hidden@127.0.0.1:1"}).Connect(t.Context()); err == nil || strings.Contains(err.Error(), "hidden") {
		t.Errorf("%v", err)
	}
	srv := redistest.Start(t)
	must(t, srv.Freeze())
	defer func() { must(t, srv.Thaw()) }()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := (operator.Address{URL: srv.Addr()}).Connect(ctx); err == nil {
		t.Error("a frozen server answers")
	}
}
