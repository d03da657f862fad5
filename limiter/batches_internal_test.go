package limiter

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/lua"
)

// TestLeavingIsNoVerdict: a caller who leaves a batch early must not speak for
// Redis; that it is late is reported all the same, by whoever finds out.
func TestLeavingIsNoVerdict(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	l, err := New(rdb, GCRA(PerSecond(1), 1))
	if err != nil {
		t.Fatal(err)
	}
	sh := l.shards.only
	q := sh.batches
	q.mu.Lock()
	q.flying++
	first, second := &decision{s: &l.spec, id: "a", n: 1}, &decision{s: &l.spec, id: "a", n: 1}
	q.queue.push(second)
	b := q.gather(first)
	b.permit, _ = sh.breaker.Acquire()
	b.sent = time.Now().Add(-time.Second)
	q.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if class, _ := q.leave(ctx, first, context.Canceled); class != breaker.ClassCaller {
		t.Errorf("who cancels is %v", class)
	}
	if class, err := q.leave(t.Context(), second, errBudget); class != breaker.ClassSlow || err != errUnsent {
		t.Errorf("the last to leave is %v with %v", class, err)
	}
	if got := sh.breaker.Snapshot().LastFailure; got != breaker.ClassSlow {
		t.Errorf("the breaker has heard of %v", got)
	}
}

// TestArrange: callers of a key are one item only if nothing stands between
// them that the second could tell from the first.
func TestArrange(t *testing.T) {
	names := lua.NewNamer("p")
	for asked, want := range map[string]string{
		"a1":                "a1x1",
		"a1 a1 a1":          "a1x3",
		"a1 b1 a1 b1":       "a1x2 b1x2",
		"a1 a2 a1":          "a1x1 a2x1 a1x1",
		"a1 a2 b1 a2 a1 a1": "a1x1 a2x2 b1x1 a1x2",
		"a0 a0":             "a0x1 a0x1",
	} {
		for limit, merges := range map[Limit]bool{GCRA(PerHour(10), 10): true, LeakyBucketShaping(PerHour(10), 10): false} {
			s, err := newSpec(limit)
			if err != nil {
				t.Fatal(err)
			}
			b := new(batch)
			for _, f := range strings.Fields(asked) {
				b.add(&decision{s: &s, id: f[:1], n: int(f[1] - '0')})
			}
			b.arrange(names)
			var got []string
			for _, it := range b.items {
				id := it.Keys.Block[strings.IndexByte(it.Keys.Block, '{')+1:]
				got = append(got, fmt.Sprintf("%c%dx%d", id[0], it.Cost, it.Count))
			}
			if merges && strings.Join(got, " ") != want {
				t.Errorf("%s became %v, want %s", asked, got, want)
			}
			if !merges && len(b.items) != len(b.all) {
				t.Errorf("%s, each with a delay of its own, became %v", asked, got)
			}
			if len(b.of) != len(b.all) {
				t.Errorf("%s: %d places", asked, len(b.of))
			}
		}
	}
	// Another limit is another question.
	one, _ := newSpec(GCRA(PerHour(10), 10))
	two, _ := newSpec(GCRA(PerHour(20), 10))
	b := new(batch)
	b.add(&decision{s: &one, id: "a", n: 1})
	b.add(&decision{s: &two, id: "a", n: 1})
	b.arrange(names)
	if len(b.items) != 2 {
		t.Errorf("two limits became %d items", len(b.items))
	}
}
