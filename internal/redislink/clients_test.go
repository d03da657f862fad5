package redislink

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/fallback"
)

// TestClientsThatFit: a client whose own timeouts would end calls before the budget is rejected, where
// they cannot be changed for the link alone.
func TestClientsThatFit(t *testing.T) {
	for _, c := range []struct {
		read, write, budget time.Duration
		says                string
	}{
		{time.Second, time.Second, time.Second, ""},
		{time.Second, time.Second, time.Second + 1, "the client's ReadTimeout of 1s"},
		{time.Second, time.Second / 2, time.Second, "the client's WriteTimeout of 500ms"},
		{time.Second, time.Second / 2, time.Second / 2, ""},
		{time.Second / 2, time.Second, time.Second, "the client's ReadTimeout of 500ms"},
		{-1, time.Second, 2 * time.Second, "the client's WriteTimeout of 1s"},
		{-1, -1, time.Hour, ""},
		{time.Second, -1, 2 * time.Second, "the client's ReadTimeout of 1s"},
		{time.Second, -1, time.Second, ""},
		{DefaultBudget - 1, time.Second, 0, "the client's ReadTimeout of 49.999999ms"},
		{DefaultBudget, time.Second, 0, ""},
	} {
		cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, ReadTimeout: c.read, WriteTimeout: c.write})
		ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}, ReadTimeout: c.read, WriteTimeout: c.write, HeartbeatFrequency: time.Hour})
		plain := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ReadTimeout: c.read, WriteTimeout: c.write})
		for _, rdb := range []redis.UniversalClient{cluster, ring, plain} {
			_, err := New(Config{Client: rdb, Budget: c.budget})
			says := c.says
			if rdb == redis.UniversalClient(plain) {
				says = "" // the link has timeouts of its own
			}
			if (err != nil) != (says != "") || err != nil && !strings.Contains(err.Error(), says) {
				t.Errorf("%T, read %v, write %v, budget %v: %v", rdb, c.read, c.write, c.budget, err)
			}
			_ = rdb.Close()
		}
	}
	for _, c := range []Config{{}, {Client: (*redis.Client)(nil)}} {
		if _, err := New(c); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Protocol: 2})
	defer rdb.Close()
	for _, share := range []float64{0.5, 1} {
		if _, err := New(Config{Client: rdb, Share: share, Policy: fallback.Open}); err == nil {
			t.Errorf("a share of %v without a meaning is taken", share)
		}
	}
}

// TestDefaults: what a configuration is completed with.
func TestDefaults(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Protocol: 2, PoolSize: 7})
	defer rdb.Close()
	c, err := (Config{Client: rdb}).withDefaults()
	if err != nil || c.Prefix != "holdfast" || c.Expected != 10 || c.Budget != 50*time.Millisecond || c.MaxInFlight != 128 || c.Logger != slog.Default() {
		t.Errorf("%+v, %v", c, err)
	}
	set := c.breakerSettings(nil)
	if set.Name != "holdfast" || set.ProbeTimeout != 62500*time.Microsecond || set.OpenMax != 5*time.Second || set.SlowCall != 25*time.Millisecond {
		t.Errorf("%+v", set)
	}
	c.Breaker = breaker.Settings{Name: "own", ProbeTimeout: time.Minute, OpenMin: 7 * time.Second, SlowCall: time.Hour}
	if set = c.breakerSettings(nil); set.Name != "own" || set.ProbeTimeout != time.Minute || set.OpenMax != 7*time.Second || set.SlowCall != time.Hour {
		t.Errorf("%+v", set)
	}
	c.Breaker.OpenMax = time.Hour
	if set = c.breakerSettings(nil); set.OpenMax != time.Hour {
		t.Errorf("%+v", set)
	}
	l, err := New(Config{Client: rdb, Breaker: breaker.Settings{SlowCall: 20 * time.Millisecond}})
	if err != nil || l.wire.fair != 20*time.Millisecond || l.wire.budget != 50*time.Millisecond || l.wire.connections != 7 || l.patience != 6*time.Second || !l.wire.plain {
		t.Errorf("%+v, %v", l.wire, err)
	}
	if l, _ = New(Config{Client: rdb, Breaker: breaker.Settings{SlowCall: time.Second}}); l.wire.fair != 43750*time.Microsecond {
		t.Errorf("an answer is slow after %v", l.wire.fair)
	}
}

// TestClientsThatEndCalls: only with those does a lone caller make its own call.
func TestClientsThatEndCalls(t *testing.T) {
	good := func() redis.Options { return redis.Options{ContextTimeoutEnabled: true} }
	for name, c := range map[string]struct {
		change func(*redis.Options)
		want   bool
	}{
		"good":        {func(*redis.Options) {}, true},
		"no deadline": {func(o *redis.Options) { o.ContextTimeoutEnabled = false }, false},
		"read":        {func(o *redis.Options) { o.ReadTimeout = -1 }, false},
		"write":       {func(o *redis.Options) { o.WriteTimeout = -1 }, false},
		"connects":    {func(o *redis.Options) { o.OnConnect = func(context.Context, *redis.Conn) error { return nil } }, false},
		"credentials": {func(o *redis.Options) { o.CredentialsProvider = func() (string, string) { return "", "" } }, false},
		"provider": {func(o *redis.Options) {
			o.CredentialsProviderContext = func(context.Context) (string, string, error) { return "", "", nil }
		}, false},
	} {
		opt := good()
		if c.change(&opt); keepsToDeadlines(&opt) != c.want {
			t.Errorf("%s: %v", name, !c.want)
		}
	}
}

// masters is a cluster client that says which master has which slots.
type masters struct {
	redis.UniversalClient
	ranges       []redis.ClusterSlot
	err          error
	asked        []time.Duration
	began        time.Time
	left         time.Duration
	reloads      int
	ctx          context.Context
	MasterForKey func()
}

func (m *masters) ClusterSlots(ctx context.Context) *redis.ClusterSlotsCmd {
	end, _ := ctx.Deadline()
	m.asked, m.left, m.ctx = append(m.asked, time.Since(m.began).Round(time.Millisecond)), time.Until(end), ctx
	cmd := redis.NewClusterSlotsCmd(ctx)
	cmd.SetVal(m.ranges)
	if m.err != nil {
		cmd.SetErr(m.err)
	}
	return cmd
}

func (m *masters) ReloadState(context.Context) { m.reloads++ }

// known adds the method by which a cluster client is recognized.
type known struct{ *masters }

func (known) MasterForKey(context.Context, string) (*redis.Client, error) { return nil, nil }

func slotsOf(from, to int, addrs ...string) redis.ClusterSlot {
	s := redis.ClusterSlot{Start: from, End: to}
	for _, a := range addrs {
		s.Nodes = append(s.Nodes, redis.ClusterNode{Addr: a})
	}
	return s
}

// broken is a cluster client with a hook of the user's that panics.
type broken struct{ *masters }

func (b broken) ClusterSlots(ctx context.Context) *redis.ClusterSlotsCmd {
	b.masters.ClusterSlots(ctx)
	panic("hook")
}

func (broken) MasterForKey(context.Context, string) (*redis.Client, error) { return nil, nil }

// TestMapOfABrokenCluster: a hook that panics does not end the program, and the map is asked for again.
func TestMapOfABrokenCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &masters{began: time.Now()}
		of, _, slots := topology(broken{m})
		background := NewBackground()
		defer background.Close()
		for _, now := range []time.Duration{0, slotRefresh} {
			slots.watch(false, now, background)
			synctest.Wait()
		}
		if got := of("k"); len(m.asked) != 2 || got != "" || m.reloads != 0 {
			t.Errorf("asked at %v, the master is %q", m.asked, got)
		}
	})
}

// TestMapOfACluster: it is asked for once in 5 s of traffic, and a quarter of a second after a failure; the
// client reloads its own when one has changed.
func TestMapOfACluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &masters{began: time.Now(), ranges: []redis.ClusterSlot{slotsOf(0, 99, "a", "x"), slotsOf(100, 16383, "b"), slotsOf(5, 6)}}
		of, oneSlot, slots := topology(known{m})
		if of == nil || !oneSlot || slots == nil {
			t.Fatal("no cluster")
		}
		background := NewBackground()
		defer background.Close()
		calls := func(until time.Duration, failed bool) {
			for time.Since(m.began) < until {
				slots.watch(failed, time.Since(m.began), background)
				failed = false
				time.Sleep(10 * time.Millisecond)
				synctest.Wait()
			}
		}
		calls(12*time.Second, false)
		if want := []time.Duration{0, 5 * time.Second, 10 * time.Second}; !slices.Equal(m.asked, want) {
			t.Errorf("asked at %v", m.asked)
		}
		if m.left != time.Second || m.ctx.Err() == nil {
			t.Errorf("%v for an answer, then %v", m.left, m.ctx.Err())
		}
		calls(13*time.Second, true)
		calls(20*time.Second, false)
		if want := []time.Duration{0, 5 * time.Second, 10 * time.Second, 12250 * time.Millisecond, 17250 * time.Millisecond}; !slices.Equal(m.asked, want) {
			t.Errorf("asked at %v", m.asked)
		}
		at := func(slot int) string { return slots.slots[slot] }
		if m.reloads != 0 || at(0) != "a" || at(5) != "a" || at(99) != "a" || at(100) != "b" || at(16383) != "b" {
			t.Errorf("%d reloads; %q %q %q %q", m.reloads, at(0), at(99), at(100), at(16383))
		}
		if !slots.serves("a") || slots.serves("x") || !slots.serves(others) || of("123456789") != at(Slot("123456789")) {
			t.Error("whom keys are sent to")
		}
		m.ranges = []redis.ClusterSlot{slotsOf(-1, 0, "c"), slotsOf(16383, 99999, "c")}
		slots.refresh(t.Context())
		slots.refresh(t.Context())
		if m.reloads != 1 || at(0) != "c" || at(1) != "a" || at(16382) != "b" || at(16383) != "c" {
			t.Errorf("%d reloads; %q %q %q %q", m.reloads, at(0), at(1), at(16382), at(16383))
		}
		m.err = errors.New("no answer")
		m.ranges = []redis.ClusterSlot{slotsOf(0, 16383, "d")}
		slots.refresh(t.Context())
		m.err, m.ranges = nil, nil
		slots.refresh(t.Context())
		if m.reloads != 1 || at(7) != "a" {
			t.Errorf("what is no answer changes the map: %q", at(7))
		}
		m.ranges = []redis.ClusterSlot{slotsOf(0, 16383, "d")} // one master
		if slots.refresh(t.Context()); m.reloads != 2 || at(7) != "d" {
			t.Errorf("%d reloads; %q", m.reloads, at(7))
		}
	})
	for id, want := range map[string]int{"123456789": 0x31c3, "foo": 12182, "bar": 5061} { // as Redis says
		if n := Slot(id); n != want {
			t.Errorf("%s is in slot %d, want %d", id, n, want)
		}
	}
}

// TestConnectionsOfClients: as many as the client may have to a server.
func TestConnectionsOfClients(t *testing.T) {
	plain := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", PoolSize: 3, Protocol: 2})
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, PoolSize: 4})
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}, PoolSize: 5, HeartbeatFrequency: time.Hour})
	for want, rdb := range map[int]redis.UniversalClient{3: plain, 4: cluster, 5: ring, 0: struct{ redis.UniversalClient }{plain}} {
		if n := connections(rdb); n != want {
			t.Errorf("%T: %d, want %d", rdb, n, want)
		}
	}
	if of, oneSlot, slots := topology(struct{ redis.UniversalClient }{plain}); of != nil || !oneSlot || slots != nil {
		t.Error("a client that is not known may have a cluster behind it")
	}
	if of, oneSlot, slots := topology(plain); of != nil || oneSlot || slots != nil {
		t.Error("a plain client has one server")
	}
	of, oneSlot, slots := topology(ring)
	if of == nil || oneSlot || slots != nil || of("k") != "127.0.0.1:1" {
		t.Error("a ring has nodes")
	}
	_ = ring.Close()
	if of("k") != "" {
		t.Error("a ring that is closed has none")
	}
	_, _ = plain.Close(), cluster.Close()
}
