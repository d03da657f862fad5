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
)

// several gives a link servers by the first letter of what is on them, with the first key of heartbeats on x, the next
// ones on y, one after all that are tried on w, and none on z.
func several(t *testing.T, l *Link) {
	t.Helper()
	of := func(id string) string {
		if i, ok := strings.CutPrefix(id, "p:v1:peers"); ok {
			switch i {
			case ":1", ":2":
				return "y"
			case ":1000":
				return "w"
			}
			return "x"
		}
		return id[:1]
	}
	c := Config{Client: l.Client, Prefix: l.Prefix, Budget: l.Budget}
	var err error
	if l.servers, err = newServers(l.wire, c.breakerSettings(l.wire.events.changed), of, false, l.changed); err != nil {
		t.Fatal(err)
	}
}

// open opens the breaker of a server.
func open(srv *Server) {
	for srv.Breaker.State() == breaker.Closed {
		p, _ := srv.Breaker.Acquire()
		p.Report(breaker.ClassUnavailable, breaker.ProofRun, 0)
	}
}

// TestHeartbeatsOnServers: the fleet is counted on one server, and on each other one that is used those who use it,
// each every two seconds; who returns to it alone is not counted there.
func TestHeartbeatsOnServers(t *testing.T) {
	counting(t, 0, func(t *testing.T, l *Link, s *counter, _ *[]time.Duration) {
		several(t, l)
		x, y, z, w := l.Server("xa"), l.Server("ya"), l.Server("za"), l.Server("wa")
		for srv, want := range map[*Server]string{x: "p:v1:peers", y: "p:v1:peers:1", z: "", w: ""} {
			if key := l.peersOn(srv); key != want {
				t.Errorf("the heartbeats on %s have the key %q", srv.Addr, key)
			}
		}
		says := map[string]int64{"p:v1:peers": 4, "p:v1:peers:1": 3}
		s.says = func(a asked) ([]int64, error) {
			if says[a.key] == 0 {
				return nil, errors.New("no connection")
			}
			return []int64{says[a.key], 1, 0, 0}, nil
		}
		sent := func() (keys []string) {
			synctest.Wait()
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, a := range s.got {
				keys = append(keys, strings.TrimPrefix(a.key, "p:v1:"))
				if a.id != l.fleet.id || a.since != 0 || a.back != l.Names.Back(a.key, "") {
					t.Errorf("%+v", a)
				}
			}
			slices.Sort(keys)
			s.got = nil
			return keys
		}
		time.Sleep(time.Second)
		for _, step := range []struct {
			srv  *Server
			want []string
		}{
			{y, []string{"peers", "peers:1"}}, {y, nil}, {x, nil}, {z, nil}, {w, nil},
		} {
			l.Beat(step.srv)
			if got := sent(); !slices.Equal(got, step.want) {
				t.Errorf("after %s answered: %v", step.srv.Addr, got)
			}
		}
		if l.Processes() != 4 || l.counted(x) != 4 || l.counted(y) != 3 || l.counted(z) != 0 {
			t.Errorf("%d processes; %d, %d and %d on servers", l.Processes(), l.counted(x), l.counted(y), l.counted(z))
		}
		l.fleet.beats, l.fleet.peers.n = census{}, 7 // as a function of the user's says
		if l.counted(x) != 7 || l.counted(y) != 3 {
			t.Errorf("%d and %d on servers", l.counted(x), l.counted(y))
		}
		l.fleet.beats, l.fleet.peers.n = census{n: 4}, 0
		// Who asks for the first time asks soon again, for two seconds: others may wait for each other.
		for i := range 16 {
			time.Sleep(250 * time.Millisecond)
			l.Beat(y)
			if got := strings.Join(sent(), " "); (got == "peers peers:1") != (i < 8 || i == 15) || got != "" && len(got) != 13 {
				t.Errorf("%d: %s", i, got)
			}
		}
		// The other one does not answer: what was counted stays, and it is asked in two seconds.
		says["p:v1:peers:1"] = 0
		time.Sleep(2 * time.Second)
		for i, want := range []string{"peers peers:1", "", "", "", "peers peers:1"} {
			l.Beat(y)
			if got := strings.Join(sent(), " "); got != want {
				t.Errorf("without an answer, %d: %s", i, got)
			}
			time.Sleep(500 * time.Millisecond)
		}
		if l.counted(y) != 3 || l.Processes() != 4 {
			t.Errorf("%d, %d", l.counted(y), l.Processes())
		}
		l.settle = nil
		time.Sleep(2 * time.Second)
		l.Beat(y)
		synctest.Wait()
		if all := s.all(); len(all) != 1 || all[0].key != "p:v1:peers" || all[0].back != "" {
			t.Errorf("where each returns alone: %+v", all)
		}
	})
}

// TestFirstHeartbeatOfALargeFleet: it is not known to live for longer than others, so that the second one comes
// within three quarters of their life, on each server, at random.
func TestFirstHeartbeatOfALargeFleet(t *testing.T) {
	var least, most [2]time.Duration
	for range 40 {
		counting(t, 0, func(t *testing.T, l *Link, s *counter, _ *[]time.Duration) {
			several(t, l)
			s.says = func(a asked) ([]int64, error) {
				l.Counted(MaxProcesses)
				return []int64{MaxProcesses, 1, 0, 0}, nil
			}
			srv := l.Server("ya")
			l.beatAt(t.Context(), srv)
			l.fleet.beats, srv.beats = census{}, census{}
			l.fleet.alive.Store(0)
			l.beat(t.Context())
			for i, turn := range []*Every{&l.fleet.turn, &srv.turn} {
				next := time.Duration(turn.next.Load())
				if next < BeatLife/2 || next > BeatLife*3/4 {
					t.Errorf("%d: the second heartbeat is due after %v", i, next)
				}
				if most[i] = max(most[i], next); least[i] == 0 || next < least[i] {
					least[i] = next
				}
			}
			// From then on it is.
			time.Sleep(time.Minute)
			l.beat(t.Context())
			if all := s.all(); all[len(all)-1].longer != longestLife-BeatLife {
				t.Errorf("it lives for %v longer", all[len(all)-1].longer)
			}
			l.beatAt(t.Context(), srv)
			for i, turn := range []*Every{&l.fleet.turn, &srv.turn} {
				if next := time.Duration(turn.next.Load()); next < 200*time.Second || next > 310*time.Second {
					t.Errorf("%d: the third heartbeat is due after %v", i, next)
				}
			}
		})
	}
	for i := range most {
		if most[i]-least[i] < 10*time.Second {
			t.Errorf("%d: the second heartbeats of a fleet come after %v to %v", i, least[i], most[i])
		}
	}
}

// TestWaitsOfLargeFleets: what comes together is spread over a quarter of the time between two heartbeats, and
// after an outage over all of it.
func TestWaitsOfLargeFleets(t *testing.T) {
	f := newFleet(&Config{Prefix: "p", Process: "a"})
	for n, every := range map[int64]time.Duration{1: 2 * time.Second, 4000: 2 * time.Second, 6000: 3 * time.Second, 10_000: 5 * time.Second, 40_000: 20 * time.Second} {
		f.alive.Store(n)
		var wait, spread, next time.Duration
		for range 200 {
			var turn Every
			f.schedule(&turn, time.Second, 2*time.Second, BeatLife, false)
			wait, spread, next = max(wait, f.wait(beatEvery)), max(spread, f.spread()), max(next, time.Duration(turn.next.Load())-time.Second)
			if f.schedule(&turn, time.Second, 2*time.Second, BeatLife, true); n == 1 && turn.next.Load() != int64(2250*time.Millisecond) {
				t.Errorf("another number: again at %v", time.Duration(turn.next.Load()))
			}
		}
		if next < every || n > 4000 && next < every*6/5 || next > every*5/4 {
			t.Errorf("%d processes: the next heartbeat after up to %v", n, next)
		}
		if large := every > 2*time.Second; !large && (wait != every || spread != 0) || large && (wait < every*6/5 || wait > every*5/4 || spread < every*3/4 || spread > every) {
			t.Errorf("%d processes: up to %v, after an outage up to %v", n, wait, spread)
		}
	}
}

// TestRareHeartbeats: a process that asks rarely lives for three of its own intervals, as long as one of the last three
// was rare, and at most ten times as long as others; the end of an outage begins no interval.
func TestRareHeartbeats(t *testing.T) {
	f := newFleet(&Config{Prefix: "p", Process: "a", Expected: 10})
	at := time.Second
	for i, c := range []struct{ gap, longer time.Duration }{
		{0, 0}, {time.Minute, 0}, {time.Minute + 1, 2*time.Minute + 3}, {2 * time.Second, 2*time.Minute + 3}, {2 * time.Second, 2*time.Minute + 3}, {2 * time.Second, 0},
		{90 * time.Second, 210 * time.Second}, {70 * time.Second, 210 * time.Second}, {80 * time.Second, 210 * time.Second}, {time.Second, 3*80*time.Second - time.Minute},
		{time.Hour, 540 * time.Second}, {time.Second, 540 * time.Second}, {time.Second, 540 * time.Second}, {time.Second, 0},
	} {
		at += c.gap
		f.beat(at)
		if got := f.longer(); got != c.longer {
			t.Errorf("heartbeat %d after %v: it lives for %v longer, want %v", i, c.gap, got, c.longer)
		}
	}
	start := time.Now()
	f.beat(at + 100*time.Second) // a lower number is believed later, too
	f.count(&f.beats, 4, start)
	f.count(&f.beats, 2, start)
	for _, c := range []struct {
		after time.Duration
		want  int64
	}{{300*time.Second - 1, 4}, {300 * time.Second, 2}} {
		if f.count(&f.beats, 2, start.Add(c.after)); f.size() != c.want {
			t.Errorf("after %v: %d processes", c.after, f.size())
		}
	}
	f.doubt(0)
	for range 3 {
		f.beat(at)
	}
	f.doubt(0)
	f.beat(at + time.Hour)
	if got := f.longer(); got != 0 {
		t.Errorf("after an outage it lives for %v longer", got)
	}
}

// TestDeregister: the last link of a process that closes takes it off the lists of all servers on which it was counted,
// as far as they can be asked, and whatever uses it of its own does not.
func TestDeregister(t *testing.T) {
	counting(t, 0, func(t *testing.T, l *Link, s *counter, _ *[]time.Duration) {
		s.says = func(asked) ([]int64, error) { return []int64{1, 0, 0, 0}, nil }
		link := func(process string, alone bool) *Link {
			other, err := New(Config{Client: l.Client, Prefix: "p", Process: process, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			other.wire.lua = l.wire.lua
			if !alone {
				several(t, other)
			}
			return other
		}
		last := func() (keys []string) {
			for _, a := range s.all() {
				if a.life == 0 {
					keys = append(keys, a.id+strings.TrimPrefix(a.key, "p:v1:peers"))
				}
			}
			slices.Sort(keys)
			return keys
		}
		check := func(when string, want ...string) {
			t.Helper()
			if got := last(); !slices.Equal(got, want) {
				t.Errorf("%s: %v", when, got)
			}
		}
		first, second, third, other, silent := link("a", false), link("a", false), link("a", false), link("b", true), link("a", false)
		for _, one := range []*Link{first, second, third} {
			for range 2 { // which is one for all
				one.beat(t.Context())
			}
			one.beatAt(t.Context(), one.Server("y"))
			one.Server("z")
			one.Server("w")
		}
		other.beat(t.Context())
		silent.Close(func() {})
		first.Close(func() {})
		first.Close(func() {})
		check("one of three")
		second.Close(func() {})
		check("two of three")
		third.Close(func() {})
		check("all three", "a", "a:1")
		other.Close(func() {})
		check("another process", "a", "a:1", "b")
		down, unused := link("c", false), link("d", false)
		down.beat(t.Context())
		down.beatAt(t.Context(), down.Server("y"))
		open(down.Server("y"))
		down.Close(func() {})
		check("one server is lost", "a", "a:1", "b", "c")
		unused.Server("y")
		unused.Server("x")
		unused.beat(t.Context())
		unused.Close(func() {})
		check("a server that was not used", "a", "a:1", "b", "c", "d")
		present.Lock()
		defer present.Unlock()
		for p := range present.links {
			if p.server == serverOf(l.Client) && slices.Contains([]string{"a", "b", "c", "d"}, p.id) {
				t.Errorf("%+v is kept", p)
			}
		}
	})
}

// TestServersOfClients: clients of one database of one server share the list of processes; of others it is not known.
func TestServersOfClients(t *testing.T) {
	client := func(addr string, db int) redis.UniversalClient {
		rdb := redis.NewClient(&redis.Options{Addr: addr, DB: db, Protocol: 2})
		t.Cleanup(func() { _ = rdb.Close() })
		return rdb
	}
	a, same, other, sentinel, second := client("a:1", 0), client("a:1", 0), client("a:1", 1), client("FailoverClient", 0), client("FailoverClient", 0)
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer cluster.Close()
	type foreign struct {
		redis.UniversalClient
		_ []int // cannot be compared
	}
	odd := foreign{UniversalClient: a}
	for _, c := range []struct {
		x, y redis.UniversalClient
		same bool
	}{{a, same, true}, {a, other, false}, {sentinel, sentinel, true}, {sentinel, second, false}, {cluster, cluster, true}, {cluster, a, false}, {odd, odd, false}} {
		if got := serverOf(c.x) == serverOf(c.y); got != c.same {
			t.Errorf("%T and %T: the same %v", c.x, c.y, got)
		}
	}
}

// TestAssumedOnce: that a process does not know how many there are is logged once, when it matters.
func TestAssumedOnce(t *testing.T) {
	log := &lines{}
	l := unused(t, 128)
	l.wire.events.logger = slog.New(log)
	l.Share()
	if len(log.said) != 0 {
		t.Errorf("%q", log.said)
	}
	l.UseShare()
	l.UseShare()
	if len(log.said) != 1 || !strings.Contains(log.said[0], "processes=10") {
		t.Errorf("%q", log.said)
	}
	fixed, err := New(Config{Client: l.Client, Prefix: "p", Share: 0.5, Logger: slog.New(log)})
	if err != nil || fixed.UseShare() != 0.5 || len(log.said) != 1 {
		t.Errorf("%v, %q", err, log.said)
	}
	known := unused(t, 128)
	known.wire.events.logger = slog.New(log)
	if !known.Counted(1) || known.ShareOrigin() != "learnt" || !known.Counted(3) || known.Counted(0) {
		t.Error("what is counted")
	}
	if known.UseShare() != 1.0/3 || len(log.said) != 1 {
		t.Errorf("%v, %q", known.UseShare(), log.said)
	}
}

// TestSeveralServersAreAskedAtOnce: requests to several servers share calls with those to the same one, and what a
// server that is lost is asked for fails alone.
func TestSeveralServersAreAskedAtOnce(t *testing.T) {
	counting(t, 0, func(t *testing.T, l *Link, s *counter, _ *[]time.Duration) {
		several(t, l)
		open(l.Server("y"))
		var ops []*Op
		for _, id := range []string{"x", "y", "z", "y"} {
			b := l.heartbeat(id)
			ops = append(ops, &Op{ID: id, Command: &b})
		}
		s.says = func(a asked) ([]int64, error) {
			if a.key == "z" {
				return nil, rejection("WRONGTYPE")
			}
			return []int64{1, 0, 0, 0}, nil
		}
		for i, err := range l.AskAll(context.Background(), ops) {
			failed, _ := errors.AsType[*Error](err)
			switch {
			case i == 0 && err == nil:
			case i == 2 && failed != nil && failed.Class == breaker.ClassBug:
			case i%2 == 1 && failed != nil && failed.Class == breaker.ClassUnavailable && errors.Is(err, ErrOpen):
			default:
				t.Errorf("%d: %v", i, err)
			}
		}
		err := l.Ask(t.Context(), l.Server("y"), &Op{ID: "y", Command: ops[1].Command}, l.Budget)
		if failed, ok := errors.AsType[*Error](err); !ok || failed.Class != breaker.ClassUnavailable || !errors.Is(err, ErrOpen) || !l.Server("y").Unavailable() || l.Server("y").Away() {
			t.Errorf("%v", err)
		}
		if n := len(s.all()); n != 2 {
			t.Errorf("%d were asked", n)
		}
	})
}
