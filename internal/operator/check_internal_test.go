package operator

import (
	"context"
	"crypto/tls"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/redislink"
	"github.com/holdfast-go/holdfast/internal/sim"
)

// TestExaminedServers: what a server says of itself, whether it is on this machine, and whether the connection is encrypted.
func TestExaminedServers(t *testing.T) {
	says := hook(func(cmd redis.Cmder) (bool, error) {
		switch cmd := cmd.(type) {
		case *redis.StringCmd:
			cmd.SetVal(map[string]string{"info": "redis_version:8.0.1\r\nrole:master\r\ncluster_enabled:1\r\n", "cluster": "cluster_state:fail\r\n"}[cmd.Name()])
		case *redis.MapStringStringCmd:
			cmd.SetVal(map[string]string{"save": "900 1"})
		case *redis.TimeCmd:
			cmd.SetVal(time.Now())
		case *redis.StatusCmd:
			cmd.SetVal("PONG")
		default:
			return true, replyError("ERR no scripts")
		}
		return true, nil
	})
	one := func(addr string, config *tls.Config) *redis.Client {
		return redis.NewClient(&redis.Options{Addr: addr, TLSConfig: config})
	}
	for _, c := range []struct {
		rdb         *redis.Client
		addr        string
		remote, tls bool
	}{
		{one("127.0.0.1:6379", nil), "127.0.0.1:6379", false, false}, {one("127.9.9.9:6379", nil), "127.9.9.9:6379", false, false}, {one("localhost:6379", nil), "localhost:6379", false, false},
		{one("[::1]:6379", nil), "[::1]:6379", false, false}, {one("/tmp/redis.sock", nil), "/tmp/redis.sock", false, false}, {one("10.0.0.1:6379", nil), "10.0.0.1:6379", true, false},
		{one("localhost.example:6379", &tls.Config{MinVersion: tls.VersionTLS12}), "localhost.example:6379", true, true},
		{redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}}), "the master of the sentinels", true, false},
	} {
		defer c.rdb.Close()
		c.rdb.AddHook(says)
		o, err := New(c.rdb, "holdfast")
		if err != nil {
			t.Fatal(err)
		}
		f, err := o.examine(t.Context(), c.rdb)
		if err != nil || f.Addr != c.addr || f.remote != c.remote || f.tls != c.tls || f.clustered || f.Version != "8.0.1" || f.Role != "master" || f.info["cluster_state"] != "fail" || f.config["save"] != "900 1" || f.configErr != nil {
			t.Errorf("%s: %+v, %v", c.addr, f, err)
		}
	}
}

// TestTrials: each script that a limiter needs is tried, and which fails is known by its name.
func TestTrials(t *testing.T) {
	for fails, want := range map[string][]string{"": nil, "fw": {"fixed window"}, "swl": {"sliding window log"}, "beat": {"heartbeat"}, "evalsha_ro": {"peek"}} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			rdb := r.Client("a", redis.Options{MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true})
			defer rdb.Close()
			var peers []string
			rdb.AddHook(hook(func(cmd redis.Cmder) (bool, error) {
				if len(cmd.Args()) < 4 {
					return false, nil
				}
				sha, _ := cmd.Args()[1].(string)
				name := lua.Known(sha)
				if key, ok := cmd.Args()[3].(*string); ok && name == "beat" {
					peers = append(peers, *key)
				}
				if cmd.Name() == "evalsha_ro" {
					name = "evalsha_ro"
				}
				return name == fails && fails != "", replyError("NOPERM no")
			}))
			o, err := New(rdb, "holdfast")
			if err != nil {
				t.Fatal(err)
			}
			f := &facts{scripts: map[string]error{}}
			o.try(t.Context(), rdb, f)
			if got, err := f.denied(); !slices.Equal(got, want) || (err != nil) != (fails != "") {
				t.Errorf("%s fails: %v, %v", fails, got, err)
			}
			if !slices.Contains(peers, "holdfast:v1:peers") {
				t.Errorf("heartbeats were tried of %v", peers)
			}
		})
	}
}

// TestTrialsOfACluster: they are made with keys of slots of the server that is examined, and none of heartbeats, which are of
// another slot.
func TestTrialsOfACluster(t *testing.T) {
	addrs := []string{"10.0.0.1:1", "10.0.0.1:2"}
	all := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{{Start: 0, End: 8191, Nodes: []redis.ClusterNode{{Addr: addrs[0]}}}, {Start: 8192, End: 16383, Nodes: []redis.ClusterNode{{Addr: addrs[1]}}}}, nil
	}})
	defer all.Close()
	o, err := New(all, "holdfast")
	if err != nil {
		t.Fatal(err)
	}
	for i, addr := range append(addrs, "10.0.0.1:3") {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		defer rdb.Close()
		for range 20 {
			if id := o.idOn(t.Context(), rdb); (id == "") != (i == 2) || id != "" && redislink.Slot(id)/8192 != i {
				t.Errorf("server %d: %q", i, id)
			}
		}
	}
}

// TestClockOfTheShortestRoundTrip: an answer that is an error says nothing of the clock, and the shortest round trip most.
func TestClockOfTheShortestRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		defer rdb.Close()
		n := 0
		trips := []time.Duration{5 * time.Millisecond, 3 * time.Millisecond, 4 * time.Millisecond}
		rdb.AddHook(hook(func(cmd redis.Cmder) (bool, error) {
			if n++; n > len(trips) {
				time.Sleep(10 * time.Millisecond)
				return true, replyError("ERR no time")
			}
			cmd.(*redis.TimeCmd).SetVal(time.Now()) // and all of the trip is the way back
			time.Sleep(trips[n-1])
			return true, nil
		}))
		var f facts
		if err := f.measure(t.Context(), rdb); err != nil || f.Clock != Duration(-1500*time.Microsecond) || f.P50 != Duration(10*time.Millisecond) {
			t.Errorf("%+v, %v", f.Server, err)
		}
	})
}

// TestClientsThatCannotBeChecked: those of which the servers are not known one by one.
func TestClientsThatCannotBeChecked(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}, HeartbeatFrequency: time.Hour})
	defer ring.Close()
	o, err := New(ring, "holdfast")
	if err != nil {
		t.Fatal(err)
	}
	if c, err := o.Check(t.Context()); err == nil || len(c.Servers) != 0 {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestNumbersInFindings: as they are rounded, and what they are compared with.
func TestNumbersInFindings(t *testing.T) {
	const half, tenth = redislink.DefaultBudget / 2, redislink.DefaultBudget / 10
	for _, c := range []struct {
		f            facts
		id           string
		what, effect string
	}{
		{measured(half+14_999, half+14_999, 0), "far", "a round trip takes 25.01ms (median of 30, from here)", "answers that take more than half of the budget of 50ms open the breaker, so that decisions are made locally"},
		{measured(tenth+14_999, tenth+14_999, 0), "far", "a round trip takes 5.01ms (median of 30, from here)", ""},
		{measured(1_014_999, half+14_999, 0), "spikes", "one of 30 round trips took 25.01ms, the median is 1.01ms", ""},
		{measured(0, 0, 2001*time.Millisecond), "clock", "the clock of Redis is 2.001s ahead of this machine's", ""},
		{says("latest_fork_usec=51000"), "fork", "the last fork, for a save or a replica, took 51ms", ""},
	} {
		found := c.f.findings()
		i := slices.IndexFunc(found, func(f Finding) bool { return f.ID == c.id })
		if i < 0 || found[i].What != c.what || c.effect != "" && found[i].Effect != c.effect {
			t.Errorf("%+v, want %q, %q", found, c.what, c.effect)
		}
	}
}
