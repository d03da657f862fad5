package operator_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/operator"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// TestBlockAtItsBorders: the longest and the shortest block, the number of parts, and where an operator is told that they
// are not known.
func TestBlockAtItsBorders(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t, redistest.Start(t))
	o := newOperator(t, rdb)
	use(t, newLimiter(t, rdb, all[6]), "used", 1)
	for i, c := range []struct {
		key    string
		d      time.Duration
		in     operator.BlockIn
		ok     bool
		number int // of keys that are blocked
		note   bool
	}{
		{"a", time.Microsecond, operator.BlockIn{}, true, 7, true}, {"a", time.Microsecond - 1, operator.BlockIn{}, false, 0, false},
		{"b", 366 * 24 * time.Hour, operator.BlockIn{Algorithm: "gcra"}, true, 1, true}, {"b", 366*24*time.Hour + time.Microsecond, operator.BlockIn{}, false, 0, false},
		{"c", time.Hour, operator.BlockIn{Algorithm: "gcra", Shards: lua.MaxParts}, true, lua.MaxParts, false}, {"c", time.Hour, operator.BlockIn{Shards: lua.MaxParts + 1}, false, 0, false},
		{"c", time.Hour, operator.BlockIn{Shards: -1}, false, 0, false}, {"d", time.Hour, operator.BlockIn{Algorithm: "gcra", Shards: 1}, true, 1, true}, {"e", time.Hour, operator.BlockIn{Algorithm: "gcra", Shards: 2}, true, 2, false},
		{"used", time.Hour, operator.BlockIn{}, true, 1, false}, {"used", time.Hour, operator.BlockIn{Algorithm: "token bucket"}, true, 1, false},
	} {
		got, err := o.Block(t.Context(), c.key, c.d, c.in)
		if (err == nil) != c.ok || err != nil && !errors.Is(err, operator.ErrBadRequest) {
			t.Errorf("%d: %v", i, err)
		}
		if err == nil && got.Until != nil && time.Until(*got.Until)-c.d < -time.Minute {
			t.Errorf("%d: until %v", i, got.Until)
		}
		if c.key == "d" && got.Redis[0] != "holdfast:v2:gcra:{d}" {
			t.Errorf("one shard is the whole key: %v", got.Redis)
		}
		if c.in.Shards > lua.MaxParts && !strings.Contains(err.Error(), "must be 0 to 64") {
			t.Error(err)
		}
		if err == nil && (len(got.Redis) != c.number || (got.Note != "") != c.note || got.Until == nil || time.Until(*got.Until)-c.d > time.Minute) {
			t.Errorf("%d: %+v", i, got)
		}
	}
	for _, err := range []error{
		func() error { _, err := o.Block(t.Context(), "", time.Hour, operator.BlockIn{}); return err }(),
		func() error { _, err := o.Unblock(t.Context(), ""); return err }(),
		func() error { _, err := o.Reset(t.Context(), "", true); return err }(),
	} {
		if !errors.Is(err, operator.ErrBadRequest) {
			t.Errorf("no key: %v", err)
		}
	}
}

// TestFleetAndItsReturns: who has sent a heartbeat within a minute, and who of them is back from an outage.
func TestFleetAndItsReturns(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	client, err := operator.Address{URL: srv.Addr()}.Connect(t.Context())
	must(t, err)
	defer client.Close()
	rdb, ok := client.(*redis.Client)
	if !ok {
		t.Fatalf("a server by itself is taken for %T", client)
	}
	now, err := rdb.Time(t.Context()).Result()
	must(t, err)
	names := lua.NewNamer("holdfast")
	at := func(ago time.Duration) float64 { return float64(now.Add(-ago).UnixMicro()) }
	must(t, rdb.ZAdd(t.Context(), names.Peers(0), redis.Z{Member: "b", Score: at(20 * time.Second)}, redis.Z{Member: "a", Score: at(-time.Hour)}, redis.Z{Member: "old", Score: at(90 * time.Second)}).Err())
	must(t, rdb.ZAdd(t.Context(), names.Peers(1), redis.Z{Member: "of a cluster", Score: at(0)}).Err())
	must(t, rdb.ZAdd(t.Context(), names.Back(names.Peers(0), "gcra"), redis.Z{Member: "a", Score: at(time.Second)}, redis.Z{Member: "b", Score: 0}, redis.Z{Member: "c", Score: 0}).Err())
	must(t, rdb.ZAdd(t.Context(), names.SampledProcesses(), redis.Z{Member: "1", Score: 1}).Err())
	f, err := newOperator(t, rdb).Fleet(t.Context())
	must(t, err)
	if len(f.Processes) != 2 || f.Processes[0].Name != "a" || f.Processes[0].Seen != 0 || f.Processes[1].Name != "b" || !f.Processes[1].Beats || f.Share != 0.5 || f.Sampled != 1 || f.Unreadable != 0 || f.Prefix != "holdfast" {
		t.Errorf("%+v", f)
	}
	if d := time.Duration(f.Processes[1].Seen); d < 20*time.Second || d > 39*time.Second {
		t.Errorf("seen %v ago", d)
	}
	if len(f.Returns) != 1 || f.Returns[0] != (operator.Return{Limiter: "gcra", Back: 1, Away: 2}) {
		t.Errorf("%+v", f.Returns)
	}
	if n := redistest.Calls(t, srv, "cluster|slots") + redistest.Calls(t, srv, "cluster"); n != 0 {
		t.Errorf("a server by itself was asked %d times for its slots", n)
	}
}

// TestFleetOfNobody: it has no share, and nothing is on its lists.
func TestFleetOfNobody(t *testing.T) {
	t.Parallel()
	f, err := newOperator(t, redistest.Client(t, redistest.Start(t))).Fleet(t.Context())
	must(t, err)
	if len(f.Processes) != 0 || f.Share != 0 || len(f.Returns) != 0 || f.Sampled != 0 {
		t.Errorf("%+v", f)
	}
}

// TestFleetOfSeveralServers: each has a list of its own, of which the last may be any, and a process that is on two is one, seen
// when it was last.
func TestFleetOfSeveralServers(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": srv.Addr()}, HeartbeatFrequency: time.Hour})
	defer ring.Close()
	now, err := redistest.Client(t, srv).Time(t.Context()).Result()
	must(t, err)
	names := lua.NewNamer("holdfast")
	beat := func(list int, process string, ago time.Duration) {
		must(t, ring.ZAdd(t.Context(), names.Peers(list), redis.Z{Member: process, Score: float64(now.Add(-ago).UnixMicro())}).Err())
	}
	beat(0, "a", 50*time.Second)
	beat(1, "a", 10*time.Second)
	beat(1, "b", 0)
	beat(999, "c", 0)
	must(t, ring.ZAdd(t.Context(), names.Back(names.Peers(999), "sampled"), redis.Z{Member: "c", Score: 1}).Err())
	f, err := newOperator(t, ring).Fleet(t.Context())
	must(t, err)
	if len(f.Processes) != 3 || f.Processes[0].Name != "a" || time.Duration(f.Processes[0].Seen) > 40*time.Second || f.Share != 1.0/3 {
		t.Errorf("%+v", f)
	}
	if len(f.Returns) != 1 || f.Returns[0] != (operator.Return{Limiter: "sampled", Back: 1}) {
		t.Errorf("%+v", f.Returns)
	}
}
