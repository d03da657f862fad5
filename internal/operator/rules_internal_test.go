package operator

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redislink"
)

// says are facts of a server that says so much of itself: "name=value" of INFO or CONFIG.
func says(text ...string) facts {
	f := facts{info: map[string]string{}, config: map[string]string{}}
	for _, of := range text {
		name, value, _ := strings.Cut(of, "=")
		f.info[name], f.config[name] = value, value
	}
	return f
}

// measured are facts of a server with such round trips, and a clock that is ahead.
func measured(p50, worst, ahead time.Duration) facts {
	return facts{Server: Server{P50: Duration(p50), P99: Duration(worst), Clock: Duration(ahead)}}
}

// replyError is an error that Redis replies with.
type replyError string

func (e replyError) Error() string { return string(e) }
func (replyError) RedisError()     {}

// rejecting are facts of a server where one trial has failed.
func rejecting(err error) facts {
	return facts{scripts: map[string]error{"peek": nil, "heartbeat": err, "gcra": err}}
}

// TestRules: what no server can be started with here, by what it would say, and each number on both sides of its border.
func TestRules(t *testing.T) {
	const half, tenth = redislink.DefaultBudget / 2, redislink.DefaultBudget / 10
	version := func(v string) facts { return facts{Server: Server{Version: v}} }
	role := func(r string, text ...string) facts {
		f := says(text...)
		f.Role = r
		return f
	}
	for _, c := range []struct {
		id    string
		level Level // "" where nothing is found
		f     facts
		words string // of what is found
	}{
		{"version", Failing, version("5.0.14"), ""}, {"version", Note, version("6.0.16"), ""}, {"version", "", version("7.0.0"), ""},
		{"version", "", version("unknown"), ""}, {"version", "", version(""), ""},
		{"clock", Risk, measured(0, 0, time.Second+1), "1s ahead of"}, {"clock", Risk, measured(0, 0, -2*time.Second), "2s behind"},
		{"clock", "", measured(0, 0, time.Second), ""}, {"clock", "", measured(0, 0, -time.Second), ""},
		{"far", Failing, measured(half+1, half+1, 0), "25ms"}, {"far", Risk, measured(half, half, 0), "25ms (median of 30"},
		{"far", Risk, measured(tenth+1, tenth+1, 0), "5ms"}, {"far", "", measured(tenth, tenth, 0), ""},
		{"spikes", Note, measured(time.Millisecond, half+1, 0), "one of 30 round trips took 25ms, the median is 1ms"},
		{"spikes", "", measured(time.Millisecond, half, 0), ""}, {"spikes", Note, measured(half, half+1, 0), ""}, {"spikes", "", measured(half+1, 2*half, 0), ""},
		{"replica", Failing, role("slave", "master_host=a", "master_port=1"), "a:1"}, {"replica", "", role("master"), ""},
		{"no-replica", Note, role("master", "connected_slaves=0"), ""}, {"no-replica", "", role("master", "connected_slaves=1"), ""},
		{"no-replica", "", role("slave", "connected_slaves=0"), ""},
		{"loading", Failing, says("loading=1"), ""}, {"loading", "", says("loading=0"), ""},
		{"cluster-down", Failing, says("cluster_state=fail"), "cluster_state fail"}, {"cluster-down", "", says("cluster_state=ok"), ""}, {"cluster-down", "", says(), ""},
		{"replicas-missing", Failing, says("min-replicas-to-write=2", "min_slaves_good_slaves=1"), "only 1 follow"},
		{"replicas-just-enough", Risk, says("min-replicas-to-write=2", "min_slaves_good_slaves=2"), "is 2"},
		{"replicas-just-enough", "", says("min-replicas-to-write=2", "min_slaves_good_slaves=3"), ""},
		{"replicas-just-enough", "", says("min-replicas-to-write=0", "min_slaves_good_slaves=0"), ""}, {"replicas-just-enough", "", says("min-replicas-to-write=1"), ""},
		{"replicas-missing", "", says("min-replicas-to-write=1"), ""}, {"replicas-missing", "", says("min-replicas-to-write=2", "min_slaves_good_slaves=2"), ""},
		{"save-failed", Failing, says("rdb_last_bgsave_status=err"), ""}, {"save-failed", Failing, says("aof_last_write_status=err"), ""},
		{"save-failed", "", says("rdb_last_bgsave_status=ok", "aof_last_write_status=ok"), ""},
		{"nearly-full", Risk, says("maxmemory_policy=noeviction", "used_memory=80", "maxmemory=100"), ""}, {"nearly-full", "", says("maxmemory_policy=noeviction", "used_memory=79", "maxmemory=100"), ""},
		{"nearly-full", "", says("maxmemory_policy=noeviction", "used_memory=79", "maxmemory=0"), ""}, {"nearly-full", "", says("maxmemory_policy=allkeys-lru", "used_memory=99", "maxmemory=100"), ""},
		{"nearly-full", Risk, says("maxmemory_policy=noeviction", "used_memory=1", "maxmemory=1"), ""},
		{"evicted", Risk, says("evicted_keys=1"), "1 keys"}, {"evicted", "", says("evicted_keys=0"), ""},
		{"maxmemory", Note, says("maxmemory=0"), ""}, {"maxmemory", "", says("maxmemory=1"), ""}, {"maxmemory", "", says(), ""},
		{"stop-writes", Risk, says("stop-writes-on-bgsave-error=yes", "save=900 1"), `"900 1"`}, {"stop-writes", "", says("stop-writes-on-bgsave-error=yes", "save="), ""},
		{"stop-writes", "", says("stop-writes-on-bgsave-error=no", "save=900 1"), ""},
		{"fsync", Risk, says("appendonly=yes", "appendfsync=always"), ""}, {"fsync", "", says("appendonly=no", "appendfsync=always"), ""}, {"fsync", "", says("appendonly=yes", "appendfsync=everysec"), ""},
		{"persistence", Note, says("appendonly=no", "save="), ""}, {"persistence", "", says("appendonly=yes", "save="), ""}, {"persistence", "", says("appendonly=no", "save=900 1"), ""}, {"persistence", "", says(), ""},
		{"timeout", Risk, says("timeout=1"), "1 s"}, {"timeout", Risk, says("timeout=299"), ""}, {"timeout", "", says("timeout=300"), ""}, {"timeout", "", says("timeout=0"), ""},
		{"maxclients", Risk, says("connected_clients=8", "maxclients=10"), "8 of 10"}, {"maxclients", "", says("connected_clients=7", "maxclients=10"), ""},
		{"open", Risk, says("protected-mode=no", "bind=0.0.0.0"), ""}, {"open", Risk, says("protected-mode=no", "bind="), ""}, {"open", Risk, says("protected-mode=no", "bind=127.0.0.1 10.0.0.1"), ""},
		{"open", "", says("protected-mode=no", "bind=127.0.0.1 -::1"), ""}, {"open", "", says("protected-mode=no", "bind=localhost ::1"), ""},
		{"open", "", says("protected-mode=yes", "bind=0.0.0.0"), ""}, {"open", "", says("protected-mode=no", "requirepass=x"), ""}, {"open", "", says("protected-mode=no", "aclfile=x"), ""},
		{"full-coverage", Risk, says("cluster_enabled=1", "cluster-require-full-coverage=yes"), ""}, {"full-coverage", "", says("cluster_enabled=1", "cluster-require-full-coverage=no"), ""},
		{"full-coverage", "", says("cluster_enabled=0", "cluster-require-full-coverage=yes"), ""},
		{"plain-client", Risk, says("cluster_enabled=1"), ""}, {"plain-client", "", says("cluster_enabled=0"), ""},
		{"plain-client", "", facts{clustered: true, info: map[string]string{"cluster_enabled": "1"}}, ""},
		{"keepalive", Risk, says("tcp-keepalive=0"), ""}, {"keepalive", "", says("tcp-keepalive=300"), ""}, {"keepalive", "", says(), ""},
		{"notifications", Risk, says("notify-keyspace-events=KEA"), `"KEA"`}, {"notifications", Risk, says("notify-keyspace-events=Kx"), ""},
		{"notifications", "", says("notify-keyspace-events=KE"), ""}, {"notifications", "", says("notify-keyspace-events=A"), ""}, {"notifications", "", says(), ""},
		{"plain-text", Note, facts{remote: true, config: map[string]string{"requirepass": "x"}}, ""}, {"plain-text", "", facts{config: map[string]string{"requirepass": "x"}}, ""},
		{"plain-text", "", facts{remote: true, tls: true, config: map[string]string{"requirepass": "x"}}, ""}, {"plain-text", "", facts{remote: true}, ""},
		{"keys", Risk, says("cmdstat_keys=calls=3,usec=9"), "3 times"}, {"keys", "", says(), ""},
		{"flushed", Note, says("cmdstat_flushall=calls=2,usec=9"), "FLUSHALL was called 2"}, {"flushed", Note, says("cmdstat_flushdb=calls=4,usec=9"), "FLUSHDB was called 4"}, {"flushed", "", says(), ""},
		{"config", Note, facts{configErr: errors.New("not you")}, "not you"}, {"config", "", says(), ""},
		{"replica-lag", Risk, says("slave0=ip=10.0.0.2,port=6379,state=online,offset=1,lag=6"), "10.0.0.2:6379 is online, and was heard 6 s ago"},
		{"replica-lag", Risk, says("slave0=ip=10.0.0.2,port=6379,state=wait_bgsave,offset=1,lag=0"), "wait_bgsave"},
		{"replica-lag", "", says("slave0=ip=10.0.0.2,port=6379,state=online,offset=1,lag=5"), ""}, {"replica-lag", "", says("slave_priority=100", "other=state=off"), ""},
		{"fork", Risk, says("latest_fork_usec=50001"), "50ms"}, {"fork", "", says("latest_fork_usec=50000"), ""},
		{"eviction-policy", Note, says("maxmemory_policy=volatile-ttl", "maxmemory=1"), "volatile-ttl"}, {"eviction-policy", Risk, says("maxmemory_policy=allkeys-lru", "maxmemory=1"), ""},
		{"eviction-policy", Note, says("maxmemory_policy=allkeys-lru", "maxmemory=0"), ""}, {"eviction-policy", "", says("maxmemory_policy=noeviction", "maxmemory=1"), ""}, {"eviction-policy", "", says(), ""},
		{"busy", Risk, says("lua-time-limit=0"), "lua-time-limit is 0"}, {"busy", "", says("lua-time-limit=1"), ""}, {"busy", "", says("lua-time-limit=10000"), ""},
		{"busy", Risk, says("lua-time-limit=10001"), ""}, {"busy", "", says(), ""}, {"busy", "", says("lua-time-limit=text"), ""},
		{"busy", "", says("busy-reply-threshold=5000", "lua-time-limit=0"), ""}, {"busy", Risk, says("busy-reply-threshold=0", "lua-time-limit=5000"), "busy-reply-threshold is 0"},
		{"scripts", "", rejecting(nil), ""}, {"scripts", Failing, rejecting(replyError("ERR other script: a, on line 7")), "(gcra, heartbeat): ERR other"},
		{"permissions", Failing, rejecting(replyError("NOPERM not you")), ""}, {"commands", Failing, rejecting(replyError("ERR unknown command 'evalsha'")), ""},
		{"out-of-memory", Failing, rejecting(replyError("OOM full")), ""}, {"replicas-missing", Failing, rejecting(replyError("NOREPLICAS none")), ""},
		{"replica", Failing, rejecting(replyError("READONLY a replica")), ""}, {"save-failed", Failing, rejecting(replyError("MISCONF disk")), ""},
	} {
		c.f.Addr = "here"
		found := c.f.findings()
		i := slices.IndexFunc(found, func(f Finding) bool { return f.ID == c.id })
		if (i >= 0) != (c.level != "") || i >= 0 && found[i].Level != c.level {
			t.Errorf("%s, want %q: %+v", c.id, c.level, found)
		}
		if i >= 0 && (found[i].Server != "here" || found[i].Effect == "" || found[i].Do == "" || !strings.Contains(found[i].What, c.words)) {
			t.Errorf("%s: %+v, want %q in it", c.id, found[i], c.words)
		}
	}
}

// TestOneFindingOfAKind: of those with one ID the first is shown.
func TestOneFindingOfAKind(t *testing.T) {
	f := says("cmdstat_flushall=calls=2", "cmdstat_flushdb=calls=3", "rdb_last_bgsave_status=err")
	f.scripts = map[string]error{"gcra": replyError("MISCONF disk")}
	var ids []string
	for _, found := range f.findings() {
		ids = append(ids, found.ID)
	}
	if slices.Sort(ids); !slices.Equal(ids, []string{"flushed", "save-failed"}) {
		t.Error(ids)
	}
}

// TestEvictedTables: a policy that evicts keys without a time to live says what else is lost.
func TestEvictedTables(t *testing.T) {
	for policy, want := range map[string]bool{"allkeys-lru": true, "volatile-lru": false} {
		f := says("maxmemory_policy=" + policy)
		if got := evicts(&f); strings.Contains(got.Effect, "tables of limits") != want {
			t.Errorf("%s: %s", policy, got.Effect)
		}
	}
}

// TestWorst: the level of the first finding.
func TestWorst(t *testing.T) {
	if w := (&Checked{}).Worst(); w != "" {
		t.Error(w)
	}
	if w := (&Checked{Findings: []Finding{{Level: Risk}, {Level: Note}}}).Worst(); w != Risk {
		t.Error(w)
	}
}

// TestAdvice: by the lone caller alone, at half and at a tenth of the budget.
func TestAdvice(t *testing.T) {
	row := func(callers int, p99 time.Duration, late float64) BenchRow {
		return BenchRow{Callers: callers, P99: Duration(p99), Late: late}
	}
	const half, tenth = redislink.DefaultBudget / 2, redislink.DefaultBudget / 10
	for i, c := range []struct {
		rows []BenchRow
		want string
	}{
		{[]BenchRow{row(1, time.Millisecond, 0), row(64, time.Second, 1)}, "50ms is more than enough"},
		{[]BenchRow{row(1, tenth, 0)}, "50ms is more than enough"}, {[]BenchRow{row(1, tenth+1, 0)}, "50ms is enough; WithLease"},
		{[]BenchRow{row(1, half, 0.01)}, "50ms is enough; WithLease"}, {[]BenchRow{row(1, half+1, 0), row(1, 0, 0)}, "is 25ms: set WithBudget to at least 100ms"},
		{[]BenchRow{row(1, time.Millisecond, 0.011), row(1, 2*time.Millisecond, 0)}, "is 2ms: set WithBudget to at least 10ms"},
	} {
		if got := adviceOf(&Bench{Rows: c.rows}); !strings.Contains(got, c.want) {
			t.Errorf("%d: %s, want %q", i, got, c.want)
		}
	}
	for _, level := range []Level{Failing, Risk, Note} {
		why := because(&Checked{Findings: []Finding{{Level: level, What: "it is off"}}})
		if want := map[Level]string{Failing: ": it is off"}[level]; why != want {
			t.Errorf("%s: %q", level, why)
		}
	}
}

// TestInfo: what INFO says, by name.
func TestInfo(t *testing.T) {
	want := map[string]string{"redis_version": "8.0.2", "executable": "/a:b", "empty": ""}
	if got := infoOf("# Server\r\nredis_version:8.0.2\r\nexecutable:/a:b\r\n\r\nempty:\r\n"); !maps.Equal(got, want) {
		t.Error(fmt.Sprint(got))
	}
}
