package redislink

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

// TestShareOutlivesLostState: a Redis that is empty after a restart counts the
// first process that sends a heartbeat as the only one. Should it be lost again at that
// moment, that process must not take the whole limit.
func TestShareOutlivesLostState(t *testing.T) {
	rdb := redistest.Client(t, redistest.Start(t))
	var fleet []*Link
	for i := range 4 {
		l, err := New(Config{Client: rdb, Process: fmt.Sprint(i), Budget: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close(func() {})
		fleet = append(fleet, l)
	}
	for range 2 { // the first to register has not heard of the others yet
		for _, l := range fleet {
			l.beat(t.Context())
		}
	}
	if err := rdb.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	for i, l := range fleet {
		l.beat(t.Context())
		l.beat(t.Context()) // it asks again soon when fewer are counted
		if share := l.Share(); share != 0.25 || l.Processes() != 4 {
			t.Errorf("process %d has a share of %v of a fleet of 4 after Redis lost its state", i, share)
		}
	}
}

// TestLowerNumberOfProcessesIsAcceptedLater: those who stay away are believed gone after a while, and
// more are believed at once.
func TestLowerNumberOfProcessesIsAcceptedLater(t *testing.T) {
	f := newFleet(&Config{Prefix: "holdfast", Process: "a"})
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
		{4 * time.Second, 2, 3}, // the most of those counted meanwhile
		{5 * time.Second, 2, 3},
		{6 * time.Second, 4, 4},
		{7 * time.Second, 2, 4}, // starts anew
		{8 * time.Second, 2, 4},
		{10 * time.Second, 2, 2},
	} {
		f.count(&f.beats, step.count, start.Add(step.after))
		if got := f.alive.Load(); got != step.want {
			t.Errorf("after %v and a count of %d: %d alive, want %d", step.after, step.count, got, step.want)
		}
	}
}

// TestHeartbeatsOfLargeFleets: nothing changes for fleets of up to 4,000 processes; in larger ones the
// heartbeats are rarer, three of them fit into a life, and a lower number is taken over after each process
// has sent one.
func TestHeartbeatsOfLargeFleets(t *testing.T) {
	for _, c := range []struct {
		n                       int64
		every, life, returning  time.Duration
		fewerAfter, againWithin time.Duration
	}{
		{1, 2 * time.Second, time.Minute, 100 * time.Millisecond, 3 * time.Second, 250 * time.Millisecond},
		{500, 2 * time.Second, time.Minute, 100 * time.Millisecond, 3 * time.Second, 250 * time.Millisecond},
		{1000, 2 * time.Second, time.Minute, 100 * time.Millisecond, 3 * time.Second, 625 * time.Millisecond},
		{4000, 2 * time.Second, time.Minute, 400 * time.Millisecond, 3 * time.Second, 2500 * time.Millisecond},
		{10_000, 5 * time.Second, time.Minute, time.Second, 7500 * time.Millisecond, 6250 * time.Millisecond},
		{100_000, 50 * time.Second, 150 * time.Second, 10 * time.Second, 75 * time.Second, 62500 * time.Millisecond},
		{MaxProcesses, 200 * time.Second, 10 * time.Minute, 100 * time.Second, 300 * time.Second, 250 * time.Second},
		{1 << 60, 200 * time.Second, 10 * time.Minute, 100 * time.Second, 300 * time.Second, 250 * time.Second},
	} {
		f := newFleet(&Config{Prefix: "p", Process: "a"})
		start := time.Now()
		f.count(&f.beats, c.n, start)
		if every, life, returning := f.every(), BeatLife+f.longer(), f.pace(returnEvery, returnsPerSecond); every != c.every || life != c.life || returning != c.returning {
			t.Errorf("%d processes: every %v, life %v, returning %v", c.n, every, life, returning)
		}
		for range 100 {
			// The first heartbeat did not know how many there are.
			var turn Every
			if f.schedule(&turn, 0, 0, BeatLife, false); turn.next.Load() > int64(BeatLife*3/4) {
				t.Errorf("%d processes: the second after %v", c.n, time.Duration(turn.next.Load()))
			}
			if again := f.wait(beatAgain); again < c.againWithin*4/5 || again > c.againWithin && again > beatAgain {
				t.Errorf("%d processes: again after %v", c.n, again)
			}
			if wait := f.wait(beatEvery); wait < c.every || wait > c.every*5/4 || c.every == beatEvery && wait != beatEvery {
				t.Errorf("%d processes: the next after %v", c.n, wait)
			}
		}
		if c.n == 1 {
			continue
		}
		f.count(&f.beats, c.n/2, start)
		for _, at := range []time.Duration{c.fewerAfter - 1, c.fewerAfter} {
			f.count(&f.beats, c.n/2, start.Add(at))
			if got := f.alive.Load(); (got < c.n) != (at == c.fewerAfter) {
				t.Errorf("%d processes: %d after %v", c.n, got, at)
			}
		}
	}
}

// TestProcessesAreDeregistered: the last link of a process that closes takes it off the
// list, and no earlier one does.
func TestProcessesAreDeregistered(t *testing.T) {
	rdb := redistest.Client(t, redistest.Start(t))
	var links []*Link
	for _, process := range []string{"a", "a", "b"} {
		l, err := New(Config{Client: rdb, Process: process, Budget: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		l.beat(t.Context())
		links = append(links, l)
	}
	for i, want := range []int64{2, 1, 0} {
		links[i].Close(func() {})
		if n := rdb.ZCard(t.Context(), links[i].Names.Peers(0)).Val(); n != want {
			t.Errorf("%d processes after %d links were closed, want %d", n, i+1, want)
		}
	}
}

// TestProcessWithoutAnAnswerIsDeregistered: a process whose heartbeat arrived and whose reply was lost
// takes itself off the list, too.
func TestProcessWithoutAnAnswerIsDeregistered(t *testing.T) {
	rdb := redistest.Client(t, redistest.Start(t))
	l, err := New(Config{Client: rdb, Process: "a", Budget: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	l.fleet.join()
	if err := rdb.ZAdd(t.Context(), l.Names.Peers(0), redis.Z{Score: 1, Member: "a"}).Err(); err != nil {
		t.Fatal(err)
	}
	l.Close(func() {})
	if n := rdb.ZCard(t.Context(), l.Names.Peers(0)).Val(); n != 0 {
		t.Errorf("%d processes are on the list", n)
	}
}

// TestNamesAreReleased: when its limiters are closed nothing holds a client, also after
// claims that failed and limits that changed.
func TestNamesAreReleased(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer func() { _ = rdb.Close() }()
	var links [3]*Link
	for i, limit := range []int{1, 1, 2} {
		var err error
		if links[i], err = New(Config{Client: rdb}); err != nil {
			t.Fatal(err)
		}
		if err := links[i].Claim("limits", limit); (err != nil) != (limit == 2) {
			t.Errorf("the limit %d: %v", limit, err)
		}
	}
	links[0].Change("others", 2)
	for _, l := range links {
		l.Close(func() {})
		l.Close(func() {})
		l.Change("limits", 3) // of one that is closed
		if l.name.client != nil {
			t.Error("a link that is closed holds its name")
		}
	}
	inUse.Lock()
	defer inUse.Unlock()
	for n := range inUse.names {
		if n.client == redis.UniversalClient(rdb) {
			t.Errorf("in use: %s %s", n.prefix, n.what)
		}
	}
}
