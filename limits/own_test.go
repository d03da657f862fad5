package limits_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/limits"
)

// TestWithoutOwnLimits: a program without limits of its own knows those of the table.
func TestWithoutOwnLimits(t *testing.T) {
	t.Parallel()
	rdb, _ := inMemory(t)
	table, err := limits.New(rdb, "plans")
	must(t, err)
	_, err = table.Put(t.Context(), "gold", gold)
	must(t, err)
	for _, own := range []map[string]limiter.Limit{nil, {}} {
		w, err := table.Watch(own, limits.WithInterval(time.Hour))
		must(t, err)
		redistest.Until(t, "the first read", func() bool { return !w.Health().ReadAt.IsZero() })
		if w.For("gold") != gold || w.For("free") != (limiter.Limit{}) {
			t.Errorf("%v", w.Health().Limits)
		}
		must(t, w.Close())
	}
}

// TestOwnLimitsAreCopied: what the caller does with its map, and with that of Health, changes nothing.
func TestOwnLimitsAreCopied(t *testing.T) {
	t.Parallel()
	rdb, _ := inMemory(t)
	table, err := limits.New(rdb, "plans")
	must(t, err)
	mine := map[string]limiter.Limit{"gold": gold}
	w, err := table.Watch(mine, limits.WithInterval(time.Hour))
	must(t, err)
	defer w.Close()
	mine["gold"] = more
	redistest.Until(t, "the first read", func() bool { return !w.Health().ReadAt.IsZero() })
	if w.For("gold") != gold {
		t.Errorf("the caller's map was used: %v", w.For("gold"))
	}
	w.Health().Limits["gold"] = more
	if w.For("gold") != gold {
		t.Errorf("the map of Health was used: %v", w.For("gold"))
	}
}

// TestRejectedNewName: a limit that the check rejects is not used where there is no last good one
// either, and leaves that of the program.
func TestRejectedNewName(t *testing.T) {
	t.Parallel()
	rdb, _ := inMemory(t)
	w := watch(t, rdb, limits.WithCheck(func(name string, _ limiter.Limit) error { return fmt.Errorf("%s: no", name) }))
	for _, name := range []string{"gold", "new"} {
		_, err := w.Put(t.Context(), name, more)
		must(t, err)
	}
	w.reads(t).want(t, "gold", gold)
	w.want(t, "new", limiter.Limit{})
}

// TestCloseEndsTheReads: nothing is read after Close.
func TestCloseEndsTheReads(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := redistest.Client(t, srv)
	table, err := limits.New(rdb, "plans")
	must(t, err)
	var all []*limits.Watcher
	for range 20 {
		w, err := table.Watch(own, limits.WithInterval(100*time.Millisecond))
		must(t, err)
		all = append(all, w)
	}
	redistest.Until(t, "reads", func() bool { return redistest.Calls(t, srv, "hgetall") >= 40 })
	for _, w := range all {
		must(t, w.Close())
		must(t, w.Close())
	}
	before := redistest.Calls(t, srv, "hgetall")
	other, err := table.Watch(own, limits.WithInterval(100*time.Millisecond))
	must(t, err)
	defer other.Close()
	redistest.Until(t, "ten reads of another watcher", func() bool { return redistest.Calls(t, srv, "hgetall") >= before+10 })
	if !other.Health().ReadAt.After(all[0].Health().ReadAt) {
		t.Error("the closed one has read")
	}
	for _, w := range all {
		if w.Health().ReadAt.After(other.Health().ReadAt.Add(-200 * time.Millisecond)) {
			t.Error("a closed one has read")
		}
	}
}

// TestErrorsHaveNoVersion: where a change failed there is no version.
func TestErrorsHaveNoVersion(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1, MaxRetries: -1})
	defer rdb.Close()
	table, err := limits.New(rdb, "plans")
	must(t, err)
	type result struct {
		version int64
		err     error
	}
	put := func(name string, l limiter.Limit) result {
		v, err := table.Put(t.Context(), name, l)
		return result{v, err}
	}
	remove := func(name string) result {
		v, err := table.Remove(t.Context(), name)
		return result{v, err}
	}
	for i, r := range []result{put("", gold), put("gold", limiter.Limit{}), put("gold", gold), remove("gold"), remove("%version")} {
		if r.version != 0 || r.err == nil || errors.Is(r.err, limiter.ErrInvalidConfig) != (i < 2 || i == 4) {
			t.Errorf("%d: version %d, %v", i, r.version, r.err)
		}
	}
	// The zero Limit has no text of which an error could say where the mistake is.
	_, err = table.Watch(map[string]limiter.Limit{"gold": {}})
	for _, err := range []error{err, put("gold", limiter.Limit{}).err} {
		if want := "limits: limit is gold: must not be the zero Limit"; err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
