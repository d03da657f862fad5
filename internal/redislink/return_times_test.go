package redislink

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/lua"
)

// asked is a heartbeat, as a server gets it.
type asked struct {
	at                            time.Duration // since the server began
	key, back, id                 string
	life, longer, since, patience time.Duration
}

// counter is a server that answers each heartbeat with what says makes of it, and takes no time.
type counter struct {
	began time.Time
	says  func(asked) ([]int64, error) // alive, fresh, and the ages of the first and the last of these, in µs

	mu  sync.Mutex
	got []asked
}

func (c *counter) Process(_ context.Context, cmd redis.Cmder) error {
	args := cmd.Args()
	if args[0] != "evalsha" {
		return nil // of nothing that is asked here
	}
	keys := args[2].(int)
	micro := func(i int) time.Duration { return time.Duration(args[3+keys+i].(int64)) * time.Microsecond }
	a := asked{at: time.Since(c.began), key: *args[3].(*string), id: args[3+keys+1].(string), life: micro(2), longer: micro(3), since: micro(4), patience: micro(5)}
	if a.since < 0 {
		a.since = -1
	}
	if keys > 1 {
		a.back = *args[4].(*string)
	}
	c.mu.Lock()
	c.got = append(c.got, a)
	c.mu.Unlock()
	v, err := c.says(a)
	if err != nil {
		cmd.SetErr(err)
		return err
	}
	cmd.(interface{ SetVal([]int64) }).SetVal(v)
	return nil
}

func (c *counter) Pipelined(ctx context.Context, fn func(redis.Pipeliner) error) ([]redis.Cmder, error) {
	p := new(pipe)
	_ = fn(p)
	for _, cmd := range p.cmds {
		_ = c.Process(ctx, cmd)
	}
	return p.cmds, nil
}

// all returns what was asked so far.
func (c *counter) all() []asked {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]asked(nil), c.got...)
}

// counting runs a test in a bubble, with the link of a process whose heartbeats a counter answers: one of n
// that are counted. settled is when decisions were made by the server again.
func counting(t *testing.T, n int64, test func(t *testing.T, l *Link, c *counter, settled *[]time.Duration)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Protocol: 2})
		defer func() { _ = rdb.Close() }()
		l, err := New(Config{Client: rdb, Prefix: "p", Process: t.Name(), Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		c := &counter{began: time.Now(), says: func(asked) ([]int64, error) { return []int64{n, 0, 0, 0}, nil }}
		l.wire.lua = lua.NewClient(c)
		settled := new([]time.Duration)
		l.OnReturn(func(context.Context) { *settled = append(*settled, l.Now()) })
		if n > 0 {
			l.fleet.count(&l.fleet.beats, n, time.Now())
		}
		defer l.Close(func() {})
		test(t, l, c, settled)
	})
}

// TestWhenReturnsEnd: a process that is back asks every 100 ms, and decides by the server again 200 ms after the
// last one of all that are counted was back, or none waits any more, or the first one has waited for the patience.
func TestWhenReturnsEnd(t *testing.T) {
	const ms = time.Millisecond
	const began = 10 * time.Second
	const patience = 6 * time.Second
	type reply struct {
		from          time.Duration // since the process was back
		alive, fresh  int64
		oldest, newer time.Duration // when the first and the last was back
		fails         bool
	}
	for name, c := range map[string]struct {
		n       int64
		follows bool
		replies []reply
		lost    time.Duration // when the server is lost again, 0 is never
		settled time.Duration // 0 is never
		asked   int
		counted int
	}{
		"all are back": {n: 3, replies: []reply{{0, 3, 3, -40 * ms, -10 * ms, false}}, settled: 190 * ms, asked: 2, counted: 3},
		"the last one comes later": {n: 3, replies: []reply{{0, 3, 2, -40 * ms, -10 * ms, false}, {1010 * ms, 3, 3, -40 * ms, 1010 * ms, false}},
			settled: 1210 * ms, asked: 13, counted: 3},
		"one never comes":        {n: 3, replies: []reply{{0, 3, 2, -1000 * ms, 500 * ms, false}}, settled: 5000 * ms, asked: 50, counted: 3},
		"none answers":           {n: 3, replies: []reply{{fails: true}}, settled: patience, asked: 60, counted: 3},
		"one more is alive":      {n: 3, replies: []reply{{0, 4, 3, 0, 0, false}}, settled: patience, asked: 60, counted: 4},
		"and is back":            {n: 3, replies: []reply{{0, 4, 3, 0, 0, false}, {500 * ms, 4, 4, 0, 450 * ms, false}}, settled: 650 * ms, asked: 7, counted: 4},
		"one of those counted":   {n: 4, replies: []reply{{0, 3, 3, 0, 0, false}}, settled: patience, asked: 60, counted: 3},
		"only this one is back":  {n: 2, replies: []reply{{0, 2, 1, 0, 0, false}}, settled: patience, asked: 60, counted: 2},
		"one that follows":       {n: 2, follows: true, replies: []reply{{0, 2, 1, -100 * ms, -100 * ms, false}, {300 * ms, 2, 0, 0, 0, false}}, settled: 300 * ms, asked: 4, counted: 2},
		"it is lost again":       {n: 3, replies: []reply{{0, 3, 2, 0, 0, false}}, lost: 250 * ms, asked: 3, counted: 3},
		"a large fleet":          {n: 5000, replies: []reply{{0, 5000, 5000, 0, 0, false}}, settled: 1000 * ms, asked: 2, counted: 5000},
		"a large fleet, one out": {n: 5000, replies: []reply{{0, 5000, 4999, 0, 0, false}}, settled: patience, asked: 12, counted: 5000},
	} {
		t.Run(name, func(t *testing.T) {
			counting(t, c.n, func(t *testing.T, l *Link, s *counter, settled *[]time.Duration) {
				time.Sleep(began)
				s.says = func(a asked) ([]int64, error) {
					r := c.replies[0]
					for _, next := range c.replies {
						if a.at-began >= next.from {
							r = next
						}
					}
					if r.fails {
						return nil, rejection("NOPERM it may not") // which says nothing of the server
					}
					age := func(at time.Duration) int64 { return max(0, a.at-began-at).Microseconds() }
					return []int64{r.alive, r.fresh, age(r.oldest), age(r.newer)}, nil
				}
				srv := l.Server("k")
				lost, asks := began-3*time.Second, patience
				if c.follows {
					asks = 0
				}
				srv.away.Store(true)
				srv.lost.Store(int64(lost))
				srv.unaware.Store(1)
				if c.lost > 0 {
					time.AfterFunc(c.lost, func() { srv.lost.Store(int64(l.Now())) })
				}
				l.comeBack(t.Context(), srv, int64(lost), asks)
				took := time.Since(s.began) - began
				all := s.all()
				if len(all) != c.asked || l.Processes() != c.counted {
					t.Errorf("asked %d times, want %d; %d are counted", len(all), c.asked, l.Processes())
				}
				for i, a := range all {
					if a.since != a.at-lost || a.patience != asks || a.key != "p:v1:peers" || a.back != l.Names.Back(a.key, "") || a.life != time.Minute || a.id != l.fleet.id {
						t.Errorf("the %d. question: %+v", i, a)
					}
				}
				if c.settled == 0 {
					if len(*settled) != 0 || !srv.away.Load() || took != 300*ms {
						t.Errorf("settled at %v, after %v", *settled, took)
					}
					return
				}
				if len(*settled) != 1 || (*settled)[0] != began+c.settled || srv.away.Load() || srv.unaware.Load() != 0 || !l.fleet.joined.Load() {
					t.Errorf("settled at %v, want %v", *settled, began+c.settled)
				}
				if next := time.Duration(l.fleet.turn.next.Load()); next < began+c.settled || next > began+c.settled+max(0, l.fleet.every()-beatEvery+l.fleet.every()) || c.n < 100 && next != began+c.settled {
					t.Errorf("the next heartbeat is due at %v", next)
				}
				if c.n < 5000 && !c.replies[0].fails && time.Duration(srv.heard.Load()) != all[len(all)-1].at {
					t.Errorf("last heard at %v", time.Duration(srv.heard.Load()))
				}
			})
		})
	}
}

// TestReturnsEndWithTheirContext: one that is closed does not settle.
func TestReturnsEndWithTheirContext(t *testing.T) {
	counting(t, 3, func(t *testing.T, l *Link, s *counter, settled *[]time.Duration) {
		s.says = func(asked) ([]int64, error) { return []int64{3, 1, 0, 0}, nil }
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
		defer cancel()
		srv := l.Server("k")
		srv.away.Store(true)
		l.comeBack(ctx, srv, 0, l.patience)
		if l.Now() != 150*time.Millisecond || len(*settled) != 0 || !srv.away.Load() {
			t.Errorf("settled %v, at %v", *settled, l.Now())
		}
	})
}

// TestWhoFollows: a process that may not have seen an outage returns with those who did, for as long as the
// patience, and asks soon again at first; one that has heard of the server lately does not.
func TestWhoFollows(t *testing.T) {
	const patience = 6 * time.Second
	const now = 20 * time.Second
	for name, c := range map[string]struct {
		heard, unaware time.Duration // before
		away, open     bool
		none           bool // no return
		fresh          int64
		follows        bool
		soon           bool
		after          time.Duration // unaware afterwards
	}{
		"the first heartbeat":            {fresh: 1, soon: true, after: now + patience},
		"the first, and others wait":     {fresh: 2, follows: true},
		"each returns alone":             {fresh: 2, none: true},
		"it waits itself":                {fresh: 2, away: true},
		"it cannot be asked":             {fresh: 2, open: true},
		"heard lately":                   {heard: now - 4*time.Second, fresh: 2},
		"not heard lately":               {heard: now - 4*time.Second - 1, fresh: 2, follows: true},
		"not heard, and none waits":      {heard: now - 4*time.Second - 1, fresh: 1, soon: true, after: now + patience},
		"the second heartbeat":           {heard: now - time.Second, unaware: now + 5*time.Second, fresh: 1, soon: true, after: now + 5*time.Second},
		"a later one":                    {heard: now - time.Second, unaware: now + 4*time.Second, fresh: 1, after: now + 4*time.Second},
		"just before":                    {heard: now - time.Second, unaware: now + 4*time.Second + 1, fresh: 0, soon: true, after: now + 4*time.Second + 1},
		"a later one, and others wait":   {heard: now - time.Second, unaware: now + 1, fresh: 3, follows: true},
		"too late, though others wait":   {heard: now - time.Second, unaware: now, fresh: 3, after: now},
		"much too late, and others wait": {heard: now - time.Second, unaware: now - 3*time.Second, fresh: 3, after: now - 3*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			counting(t, 3, func(t *testing.T, l *Link, s *counter, settled *[]time.Duration) {
				time.Sleep(now)
				srv := l.Server("k")
				if c.open {
					for srv.Breaker.State() == breaker.Closed {
						p, _ := srv.Breaker.Acquire()
						p.Report(breaker.ClassUnavailable, breaker.ProofRun, 0)
					}
				}
				if c.none {
					l.settle = nil
				}
				says := s.says
				s.says = func(a asked) ([]int64, error) {
					if !srv.away.Load() && a.life > 0 {
						t.Error("it decides by the server while it waits for others")
					}
					return says(a)
				}
				srv.heard.Store(int64(c.heard))
				srv.unaware.Store(int64(c.unaware))
				srv.away.Store(c.away)
				var turn Every
				turn.next.Store(int64(time.Hour))
				l.followBack(t.Context(), srv, &lua.Beat{Alive: 3, Fresh: c.fresh}, &turn)
				next := time.Duration(turn.next.Load())
				if c.soon && next != now+beatAgain || !c.soon && next != time.Hour {
					t.Errorf("the next heartbeat is due at %v", next)
				}
				if got := time.Duration(srv.unaware.Load()); got != c.after && !c.follows {
					t.Errorf("it may learn of an outage until %v, want %v", got, c.after)
				}
				if got := time.Duration(srv.heard.Load()); got != now {
					t.Errorf("heard at %v", got)
				}
				all := s.all()
				if (len(*settled) == 1) != c.follows || (len(all) == 1) != c.follows || srv.away.Load() != c.away {
					t.Errorf("settled %v, asked %d times", *settled, len(all))
				}
				if c.follows && (all[0].since != patience || all[0].patience != 0 || time.Duration(srv.lost.Load()) != now-patience) {
					t.Errorf("asked %+v", all[0])
				}
			})
		})
	}
}

// TestChangesOfABreaker: when a server is lost, its processes wait for each other afterwards, unless there is but one.
func TestChangesOfABreaker(t *testing.T) {
	for _, n := range []int64{0, 1, 2, 20_000} {
		counting(t, n, func(t *testing.T, l *Link, s *counter, settled *[]time.Duration) {
			time.Sleep(time.Second)
			srv, turn := l.Server("k"), &l.fleet.turn
			turn.next.Store(0)
			l.fleet.beat(l.Now())
			l.changed(srv, breaker.Change{From: breaker.Closed, To: breaker.Open})
			if srv.away.Load() != (n > 1) || time.Duration(srv.lost.Load()) != time.Second || turn.next.Load() != 0 || len(*settled) != 0 {
				t.Errorf("of %d: away %v, lost at %v, the next heartbeat at %v", n, srv.away.Load(), time.Duration(srv.lost.Load()), turn.next.Load())
			}
			if l.fleet.last != 0 || l.fleet.sure.Sub(s.began) != time.Second+l.patience {
				t.Errorf("of %d: lower counts are doubted until %v", n, l.fleet.sure.Sub(s.began))
			}
			l.changed(srv, breaker.Change{From: breaker.Open, To: breaker.HalfOpen})
			synctest.Wait()
			if len(s.all()) != 0 || turn.next.Load() != 0 {
				t.Errorf("of %d: half open, it asks %+v", n, s.all())
			}
			time.Sleep(time.Second)
			s.says = func(asked) ([]int64, error) { return []int64{n, 0, 0, 0}, nil }
			l.changed(srv, breaker.Change{From: breaker.HalfOpen, To: breaker.Closed})
			synctest.Wait()
			next, all := time.Duration(turn.next.Load()), s.all()
			if next < 2*time.Second || n < 4000 && next != 2*time.Second || next > 2*time.Second+2*l.fleet.every() {
				t.Errorf("of %d: the next heartbeat is due at %v", n, next)
			}
			if returns := n > 1; (len(*settled) == 1) != returns || (len(all) == 1) != returns || returns && (all[0].since != time.Second || all[0].patience != l.patience) || srv.away.Load() {
				t.Errorf("of %d: settled %v, asked %+v", n, *settled, all)
			}
		})
	}
	counting(t, 20_000, func(t *testing.T, l *Link, s *counter, _ *[]time.Duration) {
		l.settle = nil // each returns alone
		l.changed(l.Server("k"), breaker.Change{To: breaker.Open})
		l.changed(l.Server("k"), breaker.Change{To: breaker.Closed})
		synctest.Wait()
		if next := l.fleet.turn.next.Load(); len(s.all()) != 0 || l.Server("k").away.Load() || next <= 0 {
			t.Errorf("asked %+v, the next heartbeat at %v", s.all(), next)
		}
	})
}

// TestHowOftenALossIsTold: while a server cannot be asked for decisions, the fleet says so every 50 ms together, each
// process every quarter of a second to 5 s, and a large fleet 2000 times in a second.
func TestHowOftenALossIsTold(t *testing.T) {
	for n, every := range map[int64]time.Duration{
		2: 250 * time.Millisecond, 5: 250 * time.Millisecond, 6: 300 * time.Millisecond, 100: 5 * time.Second, 1000: 5 * time.Second, 20_000: 10 * time.Second,
	} {
		t.Run(strconv.FormatInt(n, 10), func(t *testing.T) {
			counting(t, n, func(t *testing.T, l *Link, s *counter, _ *[]time.Duration) {
				srv := l.Server("k")
				tell := func(d time.Duration) (times int) {
					before := len(s.all())
					for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
						l.BeatAway(srv)
					}
					synctest.Wait()
					return len(s.all()) - before
				}
				srv.away.Store(true)
				if k := tell(time.Minute); k != 0 {
					t.Errorf("told %d times before", k)
				}
				srv.away.Store(false)
				for srv.Breaker.State() == breaker.Closed {
					p, _ := srv.Breaker.Acquire()
					p.Report(breaker.ClassUnavailable, breaker.ProofRun, 0)
				}
				if k := tell(time.Minute); k != int(time.Minute/every) {
					t.Errorf("told %d times in a minute", k)
				}
				for _, a := range s.all() {
					if a.since != -1 || a.key != "p:v1:peers" || a.back == "" || a.patience != 0 && a.patience != l.patience {
						t.Errorf("told %+v", a)
					}
				}
				s.says = func(asked) ([]int64, error) { return []int64{n + 1, 0, 0, 0}, errors.New("no connection") }
				time.Sleep(every)
				tell(20 * time.Millisecond)
				if l.Processes() != int(n) {
					t.Errorf("without an answer %d are counted", l.Processes())
				}
				s.says = func(asked) ([]int64, error) { return []int64{n + 1, 0, 0, 0}, nil }
				time.Sleep(every)
				tell(20 * time.Millisecond)
				if l.Processes() != int(n+1) {
					t.Errorf("%d are counted", l.Processes())
				}
				// One that hangs is not followed by another one.
				hangs, before := make(chan struct{}), len(s.all())
				s.says = func(asked) ([]int64, error) { <-hangs; return []int64{n, 0, 0, 0}, nil }
				time.Sleep(every)
				tell(5 * every)
				close(hangs)
				synctest.Wait()
				if k := len(s.all()) - before; k != 1 {
					t.Errorf("told %d times while the first one hangs", k)
				}
				time.Sleep(every)
				if k := tell(20 * time.Millisecond); k != 1 {
					t.Errorf("told %d times after that", k)
				}
				l.settle = nil
				time.Sleep(every)
				if k := tell(every); k != 0 {
					t.Errorf("told %d times without a return", k)
				}
			})
		})
	}
}
