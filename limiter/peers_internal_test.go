package limiter

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

// TestShareOutlivesLostState: a Redis that is empty after a restart counts the
// first process that beats as the only one. Should it be lost again at that
// moment, that process must not take the whole limit.
func TestShareOutlivesLostState(t *testing.T) {
	srv := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer rdb.Close()
	var fleet []*Limiter
	for _, name := range []string{"a", "b", "c", "d"} {
		l, err := New(rdb, GCRA(PerSecond(10), 10), WithProcess(name))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		fleet = append(fleet, l)
	}
	for range 2 { // the first to beat has not heard of the others yet
		for _, l := range fleet {
			l.beat(t.Context())
		}
	}
	if err := rdb.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	for _, l := range fleet {
		l.beat(t.Context())
		if share := l.currentShare(); share != 0.25 {
			t.Errorf("process %s has a share of %v of a fleet of 4 after Redis lost its state", l.process, share)
		}
	}
}

// TestFewerProcesses: those who stay away are believed gone after a while, and
// more are believed at once.
func TestFewerProcesses(t *testing.T) {
	p := newPeers("holdfast", "a")
	start := time.Now()
	for _, step := range []struct {
		after time.Duration
		count int64
		want  int64
	}{
		{0, 4, 4},
		{time.Second, 1, 4},
		{2 * time.Second, 3, 4},
		{3 * time.Second, 2, 4},
		{time.Second + fewerAfter, 2, 3}, // the most of those counted meanwhile
		{5 * time.Second, 2, 3},
		{6 * time.Second, 4, 4},
		{7 * time.Second, 2, 4}, // starts anew
		{5*time.Second + fewerAfter, 2, 4},
		{7*time.Second + fewerAfter, 2, 2},
	} {
		p.count(step.count, start.Add(step.after))
		if got := p.alive.Load(); got != step.want {
			t.Errorf("after %v and a count of %d: %d alive, want %d", step.after, step.count, got, step.want)
		}
	}
}
