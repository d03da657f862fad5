package limiter

import (
	"context"
	"errors"
	"fmt"
	"net"
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
	first, second := &decision{s: l.live.Load(), id: "a", n: 1}, &decision{s: l.live.Load(), id: "a", n: 1}
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

// TestItems: callers of a key are one item only if nothing stands between
// them that the second could tell from the first.
func TestItems(t *testing.T) {
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
			s, err := newSpec(limit, tuning{})
			if err != nil {
				t.Fatal(err)
			}
			b := new(batch)
			for _, f := range strings.Fields(asked) {
				b.add(&decision{s: &s, id: f[:1], n: int(f[1] - '0')}, names)
			}
			var got []string
			for _, it := range b.items {
				id := it.Keys.State()[strings.IndexByte(it.Keys.State(), '{')+1:]
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
	one, _ := newSpec(GCRA(PerHour(10), 10), tuning{})
	two, _ := newSpec(GCRA(PerHour(20), 10), tuning{})
	b := new(batch)
	b.add(&decision{s: &one, id: "a", n: 1}, names)
	b.add(&decision{s: &two, id: "a", n: 1}, names)
	if len(b.items) != 2 {
		t.Errorf("two limits became %d items", len(b.items))
	}
}

// splitDoer refuses keys of several slots, executes the first item alone, and
// can't be reached after that.
type splitDoer struct{ calls int }

type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

func (d *splitDoer) Process(_ context.Context, cmd redis.Cmder) error {
	d.calls++
	switch d.calls {
	case 1:
		return refusal("CROSSSLOT Keys in request don't hash to the same slot")
	case 2:
		cmd.(interface{ SetVal([]int64) }).SetVal([]int64{1_760_000_000_000_000, 1, 9, 0, 1000, 0})
		return nil
	default:
		return &net.OpError{Op: "dial", Err: errors.New("refused")}
	}
}

// TestWhatWasChargedApartIsAnswered: when the keys of a batch are sent one by
// one and the server is lost midway, those that were charged must not be owed.
func TestWhatWasChargedApartIsAnswered(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	l, err := New(rdb, GCRA(PerSecond(10), 10))
	if err != nil {
		t.Fatal(err)
	}
	l.lua = lua.NewClient(new(splitDoer))
	q := l.shards.only.batches
	first := &decision{s: l.live.Load(), id: "a", n: 1, ctx: t.Context(), done: make(chan struct{}, 1)}
	second := &decision{s: l.live.Load(), id: "b", n: 1, ctx: t.Context(), done: make(chan struct{}, 1)}
	q.mu.Lock()
	q.flying++
	q.queue.push(second)
	b := q.gather(first)
	q.mu.Unlock()
	q.run(b)
	if first.err != nil || first.class != breaker.ClassOK || first.out.Remaining != 9 {
		t.Errorf("the first, which was charged: %+v, %v", first.out, first.err)
	}
	if !neverExecuted(second.err) || second.class != breaker.ClassUnavailable {
		t.Errorf("the second, which was not: %v, %v", second.class, second.err)
	}
}

// TestHotKeyTakesOnePlace: however many ask for one key, the next call has room
// for the others who wait, and keeps their order.
func TestHotKeyTakesOnePlace(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	l, err := New(rdb, GCRA(PerSecond(10), 10))
	if err != nil {
		t.Fatal(err)
	}
	q := l.shards.only.batches
	ask := func(id string) *decision { return &decision{s: l.live.Load(), id: id, n: 1} }
	q.mu.Lock()
	defer q.mu.Unlock()
	const others = 100
	for i := range others {
		for range 5 {
			q.queue.push(ask("hot"))
		}
		q.queue.push(ask(fmt.Sprint(i)))
	}
	b := q.gather(ask("hot"))
	if len(b.items) != batchSize || b.items[0].Count != 1+5*others {
		t.Errorf("%d items, the first for %d callers", len(b.items), b.items[0].Count)
	}
	if n := q.queue.len(); n != others-(batchSize-1) {
		t.Errorf("%d wait for the next call", n)
	}
	if next := q.queue.pop(); next == nil || next.id != fmt.Sprint(batchSize-1) {
		t.Errorf("%+v is next", next)
	}
	for range 3 * batchCallers {
		q.queue.push(ask("hot"))
	}
	if b := q.gather(ask("hot")); len(b.all) != batchCallers {
		t.Errorf("%d callers in one call, want at most %d", len(b.all), batchCallers)
	}
}

// TestAllStuckIsAtOnce: where every call that may be under way has lost its
// callers, waiting for a turn is in vain; where one has not, it is not.
func TestAllStuckIsAtOnce(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	l, err := New(rdb, GCRA(PerSecond(10), 10), WithMaxInFlight(2))
	if err != nil {
		t.Fatal(err)
	}
	q := l.shards.only.batches
	q.flying, q.stuck = 2, 2
	if err := q.add(&decision{s: l.live.Load(), id: "a", n: 1}); err != errNoTurn {
		t.Errorf("with all stuck: %v", err)
	}
	q.stuck = 1
	if err := q.add(&decision{s: l.live.Load(), id: "a", n: 1}); err != nil || q.queue.len() != 1 {
		t.Errorf("with one that is not: %v, %d waiting", err, q.queue.len())
	}
}
