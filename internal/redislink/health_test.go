package redislink

import (
	"testing"

	"github.com/redis/go-redis/v9"
)

// TestHealthOfServersInUse: a server that no key is sent to any more is not shown, whatever
// its breaker is; what was decided on its keys is still counted.
func TestHealthOfServersInUse(t *testing.T) {
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	t.Cleanup(func() { _ = rdb.Close() })
	l, err := New(Config{Client: rdb, Prefix: "p"})
	if err != nil {
		t.Fatal(err)
	}
	names := func() (names []string, counted uint64) {
		servers, decisions := Health[uint8](l)
		for _, s := range servers {
			if names = append(names, s.Name); len(s.Decisions) != 1 || s.Decisions[1] != 1 {
				t.Errorf("%s: %v", s.Name, s.Decisions)
			}
		}
		return names, decisions[1]
	}
	for i, master := range []string{"", "a:1", "b:1"} {
		for slot := range l.slots.slots {
			l.slots.slots[slot] = master
		}
		l.Server("k").Counts[1].Add(1)
		want := "p"
		if master != "" {
			want += "@" + master
		}
		if got, n := names(); len(got) != 1 || got[0] != want || n != uint64(i+1) {
			t.Errorf("the master is %q: servers %q, %d decisions", master, got, n)
		}
	}
}
