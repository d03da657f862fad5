package operator

import (
	"slices"
	"testing"
	"time"
)

// TestRules: what no server can be started with here, by what it would say.
func TestRules(t *testing.T) {
	for _, c := range []struct {
		id    string
		level Level // "" where nothing is found
		f     facts
	}{
		{"version", Failing, facts{Server: Server{Version: "5.0.14"}}},
		{"version", Note, facts{Server: Server{Version: "6.0.16"}}},
		{"version", "", facts{Server: Server{Version: "7.0.0"}}},
		{"version", "", facts{Server: Server{Version: "unknown"}}},
		{"clock", Risk, facts{Server: Server{Clock: Duration(2 * time.Second)}}},
		{"clock", Risk, facts{Server: Server{Clock: Duration(-2 * time.Second)}}},
		{"clock", "", facts{Server: Server{Clock: Duration(900 * time.Millisecond)}}},
		{"far", Risk, facts{Server: Server{P50: Duration(6 * time.Millisecond)}}},
		{"spikes", Note, facts{Server: Server{P50: Duration(time.Millisecond), P99: Duration(30 * time.Millisecond)}}},
		{"loading", Failing, facts{info: map[string]string{"loading": "1"}}},
		{"replica-lag", Risk, facts{info: map[string]string{"slave0": "ip=10.0.0.2,port=6379,state=online,offset=1,lag=9"}}},
		{"replica-lag", Risk, facts{info: map[string]string{"slave0": "ip=10.0.0.2,port=6379,state=wait_bgsave,offset=1,lag=0"}}},
		{"replica-lag", "", facts{info: map[string]string{"slave0": "ip=10.0.0.2,port=6379,state=online,offset=1,lag=1"}}},
		{"fork", Risk, facts{info: map[string]string{"latest_fork_usec": "60000"}}},
		{"fork", "", facts{info: map[string]string{"latest_fork_usec": "6000"}}},
		{"plain-text", Note, facts{remote: true, config: map[string]string{"requirepass": "x"}}},
		{"plain-text", "", facts{remote: true, tls: true, config: map[string]string{"requirepass": "x"}}},
		{"eviction-policy", Note, facts{info: map[string]string{"maxmemory_policy": "volatile-ttl", "maxmemory": "1"}}},
		{"busy", Risk, facts{config: map[string]string{"lua-time-limit": "0"}}},
		{"busy", "", facts{config: map[string]string{"lua-time-limit": "5000"}}},
		{"open", "", facts{config: map[string]string{"protected-mode": "no", "bind": "127.0.0.1 -::1"}}},
	} {
		found := c.f.findings()
		i := slices.IndexFunc(found, func(f Finding) bool { return f.ID == c.id })
		if (i >= 0) != (c.level != "") || i >= 0 && found[i].Level != c.level {
			t.Errorf("%s, want %q: %+v", c.id, c.level, found)
		}
	}
}
