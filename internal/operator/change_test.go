package operator_test

import (
	"errors"
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
	client, err := operator.Address{URL: redistest.Start(t).Addr()}.Connect(t.Context())
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
	must(t, rdb.ZAdd(t.Context(), names.Peers(0), redis.Z{Member: "b", Score: at(20 * time.Second)}, redis.Z{Member: "a", Score: at(-time.Hour)}, redis.Z{Member: "old", Score: at(2 * time.Minute)}).Err())
	must(t, rdb.ZAdd(t.Context(), names.Back(names.Peers(0), "gcra"), redis.Z{Member: "a", Score: at(time.Second)}, redis.Z{Member: "b", Score: 0}, redis.Z{Member: "c", Score: 0}).Err())
	must(t, rdb.ZAdd(t.Context(), names.SampledProcesses(), redis.Z{Member: "1", Score: 1}).Err())
	f, err := newOperator(t, rdb).Fleet(t.Context())
	must(t, err)
	if len(f.Processes) != 2 || f.Processes[0].Name != "a" || f.Processes[0].Seen != 0 || f.Processes[1].Name != "b" || !f.Processes[1].Beats || f.Share != 0.5 || f.Sampled != 1 || f.Unreadable != 0 || f.Prefix != "holdfast" {
		t.Errorf("%+v", f)
	}
	if d := time.Duration(f.Processes[1].Seen); d < 20*time.Second || d > 50*time.Second {
		t.Errorf("seen %v ago", d)
	}
	if len(f.Returns) != 1 || f.Returns[0] != (operator.Return{Limiter: "gcra", Back: 1, Away: 2}) {
		t.Errorf("%+v", f.Returns)
	}
}
