package analytics_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/analytics"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
)

// published waits until so many processes have published, and returns what they have.
func published(t *testing.T, rdb redis.UniversalClient, n int) *analytics.FleetReport {
	t.Helper()
	var f *analytics.FleetReport
	redistest.Until(t, "all have published", func() (ok bool) {
		var err error
		f, err = analytics.ReadFleet(t.Context(), rdb, "holdfast")
		must(t, err)
		return len(f.Processes) == n
	})
	return f
}

func publish(t *testing.T, rdb redis.UniversalClient, process string, of map[string]analytics.Source, opts ...analytics.PublishOption) *analytics.Publisher {
	t.Helper()
	p, err := analytics.Publish(rdb, of, append([]analytics.PublishOption{analytics.WithPublishProcess(process)}, opts...)...)
	must(t, err)
	t.Cleanup(func() { must(t, p.Close()) })
	return p
}

// TestFleet: what three processes have denied is added up, with a true bound of the error, and the state of
// their limiters is there; who has closed is not.
func TestFleet(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t, redistest.Start(t))
	limit := limiter.GCRA(limiter.PerHour(1), 1)
	lim, err := limiter.New(rdb, limit, patient, quiet)
	must(t, err)
	defer lim.Close()
	_, err = lim.Allow(t.Context(), "k")
	must(t, err)
	truth, all := map[string]int64{}, int64(0)
	for i := range 3 {
		top := newTop(t, 10)
		for k := range 6 {
			key := fmt.Sprint("key", (k+i)%6)
			for range 10 * (k + 1) {
				deny(top, key)
				truth[key]++
				all++
			}
		}
		publish(t, rdb, fmt.Sprint("p", i), map[string]analytics.Source{"api": {Top: top, Health: lim.Health, Limit: lim.Limit}}, analytics.WithPublishedKeys(3))
	}
	f := published(t, rdb, 3)
	r := f.Denials(100)["api"]
	if r.Denied != all || len(r.Keys) != 5 {
		t.Errorf("%d denied of %d keys", r.Denied, len(r.Keys))
	}
	for i, k := range r.Keys {
		if k.Denied-k.Error > truth[k.Key] || k.Denied < truth[k.Key] {
			t.Errorf("%+v, but it was %d", k, truth[k.Key])
		}
		if i > 0 && k.Denied-k.Error > r.Keys[i-1].Denied-r.Keys[i-1].Error {
			t.Errorf("%+v comes after %+v", k, r.Keys[i-1])
		}
	}
	if len(f.Denials(2)["api"].Keys) != 2 {
		t.Error("more keys than asked for")
	}
	of := f.Processes[1]
	if of.Process != "p1" || of.PID == 0 || of.Program == "" || len(of.Limiters) != 1 || of.Limiters[0].Limit != limit.String() || of.Limiters[0].State.Servers[0].State != "closed" {
		t.Errorf("%+v", of)
	}
	if d := f.At.Sub(of.At); d < 0 || d > time.Minute {
		t.Errorf("published %v ago", d)
	}
	must(t, publish(t, rdb, "p0", map[string]analytics.Source{"api": {}}).Close())
	published(t, rdb, 2)
}

// TestPublishedIsBounded: a process with many limiters and long keys publishes little, and Redis forgets what is not
// renewed.
func TestPublishedIsBounded(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t, redistest.Start(t))
	sources := map[string]analytics.Source{}
	for i := range 100 {
		top := newTop(t, 100)
		for k := range 100 {
			deny(top, strings.Repeat("\x01", 120)+fmt.Sprint(k))
		}
		sources[fmt.Sprint("l", i)] = analytics.Source{Top: top, Health: func() limiter.Health { return limiter.Health{} }}
	}
	publish(t, rdb, "p", sources)
	published(t, rdb, 1)
	texts := "holdfast:v1:published:{all}"
	if n := len(rdb.HGet(t.Context(), texts, "p").Val()); n < 1000 || n > 200_000 {
		t.Errorf("%d bytes", n)
	}
	for _, key := range []string{texts, texts + ":t"} {
		if ttl := rdb.PTTL(t.Context(), key).Val(); ttl <= 0 || ttl > 31*time.Second {
			t.Errorf("%s lives for %v", key, ttl)
		}
	}
	// One that died an hour ago is removed by the next one that publishes.
	must(t, rdb.ZAdd(t.Context(), texts+":t", redis.Z{Score: float64(time.Now().Add(-time.Hour).UnixMicro()), Member: "dead"}).Err())
	must(t, rdb.HSet(t.Context(), texts, "dead", "{}").Err())
	publish(t, rdb, "q", map[string]analytics.Source{"l": {}})
	published(t, rdb, 2)
	if rdb.HExists(t.Context(), texts, "dead").Val() {
		t.Error("a dead process is still there")
	}
	must(t, rdb.HSet(t.Context(), texts, "q", "not JSON").Err())
	if f := published(t, rdb, 1); f.Unreadable != 1 {
		t.Errorf("%+v", f)
	}
}

// TestPublishWithoutRedis: nothing happens but that Err says why, and Close ends.
func TestPublishWithoutRedis(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1})
	defer rdb.Close()
	p := publish(t, rdb, "p", map[string]analytics.Source{"l": {Top: newTop(t, 1)}})
	redistest.Until(t, "the call has failed", func() bool { return p.Err() != nil })
	if _, err := analytics.ReadFleet(t.Context(), rdb, "holdfast"); err == nil {
		t.Error("no error")
	}
}

// TestShownKey: what an operator types is shown as a report of the process shows it.
func TestShownKey(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"customer:42", strings.Repeat("long", 32), strings.Repeat("long", 32) + "e", strings.Repeat("long", 60)} {
		for _, secret := range [][]byte{nil, []byte("secret")} {
			var opts []analytics.Option
			if secret != nil {
				opts = append(opts, analytics.WithHashedKeys(secret))
			}
			top := newTop(t, 1, opts...)
			deny(top, key)
			if secret == nil && (analytics.ShownKey(key, nil) == key) != (len(key) <= 128) {
				t.Errorf("of %d bytes: %q", len(key), analytics.ShownKey(key, nil))
			}
			if want := top.Report(1).Keys[0].Key; analytics.ShownKey(key, secret) != want {
				t.Errorf("%q, want %q", analytics.ShownKey(key, secret), want)
			}
		}
	}
}

// TestPublishMistakes: they are found at the start.
func TestPublishMistakes(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	one := map[string]analytics.Source{"l": {}}
	many := map[string]analytics.Source{}
	for i := range 101 {
		many[fmt.Sprint(i)] = analytics.Source{}
	}
	for i, c := range []struct {
		rdb  redis.UniversalClient
		of   map[string]analytics.Source
		opts []analytics.PublishOption
	}{
		{nil, one, nil}, {rdb, nil, nil}, {rdb, many, nil}, {rdb, map[string]analytics.Source{"": {}}, nil},
		{rdb, map[string]analytics.Source{"l": {Top: new(analytics.Top)}}, nil},
		{rdb, one, []analytics.PublishOption{nil}},
		{rdb, one, []analytics.PublishOption{analytics.WithPublishPrefix("{}")}},
		{rdb, one, []analytics.PublishOption{analytics.WithPublishProcess("")}},
		{rdb, one, []analytics.PublishOption{analytics.WithPublishInterval(time.Millisecond)}},
		{rdb, one, []analytics.PublishOption{analytics.WithPublishedKeys(0)}},
	} {
		if _, err := analytics.Publish(c.rdb, c.of, c.opts...); !errors.Is(err, limiter.ErrInvalidConfig) {
			t.Errorf("%d: %v", i, err)
		}
	}
	if _, err := analytics.ReadFleet(context.Background(), rdb, "{}"); !errors.Is(err, limiter.ErrInvalidConfig) {
		t.Error(err)
	}
}
