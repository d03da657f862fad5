package limiter

import (
	"testing"

	"github.com/redis/go-redis/v9"
)

// TestNamesAreReleased: when its limiters are closed nothing holds a client, also after
// constructors that failed and limits that changed.
func TestNamesAreReleased(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer func() { _ = rdb.Close() }()
	limit := GCRA(PerSecond(1), 1)
	l, err := New(rdb, limit)
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewConcurrency(rdb, 1)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSampled(rdb, PerSecond(1))
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []func() error{
		func() error { _, err := New(rdb, GCRA(PerSecond(2), 2)); return err },
		func() error { _, err := New(rdb, limit, WithMaxLocalKeys(0)); return err },
		func() error { _, err := NewConcurrency(rdb, 2); return err },
		func() error { _, err := NewSampled(rdb, PerSecond(2)); return err },
	} {
		if bad() == nil {
			t.Error("no error")
		}
	}
	if err := l.SetLimit(FixedWindow(PerSecond(1))); err != nil {
		t.Fatal(err)
	}
	for _, close := range []func() error{l.Close, c.Close, s.Close} {
		if err := close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.SetLimit(limit); err != nil {
		t.Fatal(err)
	}
	names.Lock()
	defer names.Unlock()
	for n := range names.inUse {
		if n.client == redis.UniversalClient(rdb) {
			t.Errorf("in use: %s %s", n.prefix, n.what)
		}
	}
	if l.claimed.name.client != nil || c.claimed.name.client != nil || s.claimed.name.client != nil {
		t.Error("a closed limiter holds the client by its name")
	}
}
