package limiter_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
)

// TestReplicasServePeeks: with a cluster client that reads from replicas, peeks go to the
// replica and cost the master nothing; decisions go to the master.
func TestReplicasServePeeks(t *testing.T) {
	t.Parallel()
	redistest.Since(t, 7, 0, "EVALSHA_RO")
	c := redistest.StartCluster(t, 1, 1)
	master, replica := c.Masters[0], c.Replicas[0][0]
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), ReadOnly: true, ReadTimeout: patience, WriteTimeout: patience})
	t.Cleanup(func() { _ = rdb.Close() })
	lim := newLimiter(t, rdb, limiter.TokenBucket(limiter.PerHour(10), 10), unhurried())
	peeks := func() [2]int64 {
		return [2]int64{
			redistest.Calls(t, master, "evalsha_ro") + redistest.Calls(t, master, "eval_ro"),
			redistest.Calls(t, replica, "evalsha_ro") + redistest.Calls(t, replica, "eval_ro"),
		}
	}
	for i := range 20 {
		res, err := lim.AllowN(t.Context(), fmt.Sprint("k", i), 3)
		if err != nil || res.Source != limiter.SourceRedis {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	until(t, "the replica has what the master has", func() bool {
		return redistest.Admin(t, replica).DBSize(t.Context()).Val() == redistest.Admin(t, master).DBSize(t.Context()).Val()
	})
	before := peeks()
	for i := range 20 {
		res, err := lim.Peek(t.Context(), fmt.Sprint("k", i))
		if err != nil || res.Source != limiter.SourceRedis || res.Remaining != 7 {
			t.Errorf("%+v, %v", res, err)
		}
	}
	after := peeks()
	t.Logf("master %d, replica %d", after[0]-before[0], after[1]-before[1])
	if after[0] != before[0] || after[1]-before[1] < 20 {
		t.Errorf("20 peeks were %d calls of the master and %d of the replica", after[0]-before[0], after[1]-before[1])
	}
}
