package redislink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
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
	if _, err := New(Config{Client: rdb, Share: 0.5, Policy: fallback.Open}); err == nil {
		t.Error("a share without a meaning is taken")
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
	if err != nil || l.wire.fair != 20*time.Millisecond || l.wire.late != 150*time.Millisecond || l.wire.connections != 7 || l.patience != 6*time.Second || !l.wire.plain {
		t.Errorf("%+v, %v", l.wire, err)
	}
	if l, _ = New(Config{Client: rdb, Breaker: breaker.Settings{SlowCall: time.Second}}); l.wire.fair != 50*time.Millisecond {
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
	})
	if n := Slot("123456789"); n != 0x31c3 { // of the specification
		t.Errorf("%#x", n)
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

// TestFunctionOfTheUsers: which numbers of processes count, how often and how long it is asked, and what is
// known before it has answered.
func TestFunctionOfTheUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var n int
		var fails error
		var asked []time.Duration
		var left time.Duration
		var last context.Context
		began := time.Now()
		hangs := make(chan struct{})
		close(hangs)
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Protocol: 2})
		defer rdb.Close()
		l, err := New(Config{Client: rdb, Expected: 4, PeerCount: func(ctx context.Context) (int, error) {
			mu.Lock()
			end, _ := ctx.Deadline()
			asked, left, last = append(asked, time.Since(began)), time.Until(end), ctx
			answer, number, err := hangs, n, fails
			mu.Unlock()
			<-answer
			return number, err
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close(func() {})
		if l.Share() != 0.25 || l.Processes() != 4 || l.ShareOrigin() != "assumed" {
			t.Errorf("%v of %d, %s", l.Share(), l.Processes(), l.ShareOrigin())
		}
		for _, c := range []struct {
			n       int
			fails   error
			counted int
			says    string
		}{
			{0, nil, 4, "0 processes are not between 1 and 1000000"},
			{-1, nil, 4, "-1 processes"},
			{7, errors.New("no answer"), 4, "no answer"},
			{1, nil, 1, ""},
			{2, nil, 2, ""},
			{MaxProcesses + 1, nil, 2, "1000001 processes"},
			{MaxProcesses, nil, MaxProcesses, ""},
		} {
			mu.Lock()
			n, fails = c.n, c.fails
			mu.Unlock()
			for range 30 {
				l.askPeers()
				time.Sleep(100 * time.Millisecond)
			}
			synctest.Wait()
			if err := l.PeerCountError(); l.Processes() != c.counted || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%d, %v: %d processes, %v", c.n, c.fails, l.Processes(), err)
			}
		}
		mu.Lock()
		if l.ShareOrigin() != "learnt" || l.Share() != 1.0/MaxProcesses || left != 5*time.Second || last.Err() == nil {
			t.Errorf("%s, %v, %v for an answer", l.ShareOrigin(), l.Share(), left)
		}
		for i, at := range asked {
			if i > 0 && at-asked[i-1] < 2*time.Second {
				t.Errorf("asked at %v", asked)
			}
		}
		if len(asked) != 11 { // in 21 s
			t.Errorf("asked %d times", len(asked))
		}
		mu.Unlock()
		mu.Lock()
		hangs = make(chan struct{})
		mu.Unlock()
		for range 1000 {
			l.askPeers()
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if len(asked) != 12 {
			t.Errorf("one that hangs is asked %d times", len(asked)-11)
		}
		close(hangs)
	})
}

// TestShares: what is fixed is not asked for.
func TestShares(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Protocol: 2})
	defer rdb.Close()
	asked := 0
	for share, processes := range map[float64]int{0.25: 4, 0.3: 3, 1: 1} {
		l, err := New(Config{Client: rdb, Share: share, Expected: 7, PeerCount: func(context.Context) (int, error) { asked++; return 9, nil }})
		if err != nil {
			t.Fatal(err)
		}
		l.askPeers()
		l.Beat(l.Server("k"))
		if l.Share() != share || l.UseShare() != share || l.Processes() != processes || l.ShareOrigin() != "fixed" {
			t.Errorf("%v: %v of %d, %s", share, l.Share(), l.Processes(), l.ShareOrigin())
		}
		l.Close(func() {})
	}
	if asked != 0 {
		t.Errorf("asked %d times", asked)
	}
}

// TestNamesOfTwoLimiters: those with different limits may not share their counts.
func TestNamesOfTwoLimiters(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Protocol: 2})
	defer rdb.Close()
	link := func(prefix string) *Link {
		l, err := New(Config{Client: rdb, Prefix: prefix})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	claims := func(l *Link, what string, limit any, ok bool) {
		t.Helper()
		if err := l.Claim(what, limit); (err == nil) != ok {
			t.Errorf("%s of %s with %v: %v", what, l.Prefix, limit, err)
		}
	}
	a, b, c := link("names"), link("names"), link("names")
	claims(a, "tb", 1, true)
	claims(b, "tb", 1, true)
	claims(c, "tb", 2, false)
	claims(c, "gcra", 2, true)
	claims(link("other"), "tb", 2, true)
	if a.keeps() != "tb" || c.keeps() != "gcra" {
		t.Errorf("%q, %q", a.keeps(), c.keeps())
	}
	a.Close(func() {})
	claims(link("names"), "tb", 2, false)
	b.Change("tb", 3)
	claims(link("names"), "tb", 1, false)
	b.Close(func() {})
	claims(link("names"), "tb", 4, true)
	if a.keeps() != "" {
		t.Errorf("%q is kept after Close", a.keeps())
	}
	a.Change("tb", 5) // of a link that is closed
	claims(link("names"), "tb", 4, true)
}

// TestWhatAnOpIs: how much work, of how many keys, and whether it changes nothing.
func TestWhatAnOpIs(t *testing.T) {
	gcra, log := args(t, algo.GCRA), args(t, algo.SlidingWindowLog)
	item := func(a *lua.Args, cost int64) lua.Item { return lua.Item{Params: *a, Cost: cost} }
	of := func(a *lua.Args, n int64) int64 { return lua.Work(&a.Params, n) }
	if of(log, 3) == of(log, 1) || of(log, 1) < 1 {
		t.Fatalf("work of a log: %d, %d", of(log, 1), of(log, 3))
	}
	for name, c := range map[string]struct {
		o     *Op
		peeks bool
		keys  int
		work  int64
	}{
		"decision":  {&Op{Args: log, Cost: 3}, false, 1, of(log, 3)},
		"several":   {&Op{Args: log, Cost: 2, Count: 4}, false, 1, of(log, 8)},
		"debt":      {&Op{Args: log, Cost: -5}, false, 1, of(log, 5)},
		"peek":      {&Op{Args: log}, true, 1, of(log, 0)},
		"set":       {&Op{All: []lua.Item{item(log, 2), item(gcra, 1)}}, false, 2, of(log, 2) + of(gcra, 1)},
		"peeks":     {&Op{All: []lua.Item{item(log, 0), item(gcra, 0)}}, true, 2, of(log, 0) + of(gcra, 0)},
		"give back": {&Op{Taken: &lua.Taken{Params: *log, Units: 4}}, false, 1, of(log, 4)},
		"permits":   {&Op{Permits: &lua.PermitAsk{Callers: []string{"a", "b", "c"}}}, false, 1, 3},
		"count":     {&Op{Permits: &lua.PermitAsk{}}, false, 1, 1},
		"leave":     {&Op{Leave: &lua.Leaver{}}, false, 1, 1},
		"keep":      {&Op{Keep: &lua.Holders{Callers: []string{"a", "b"}}}, false, 1, 2},
		"command":   {&Op{Command: &lua.Beat{}}, false, 1, 1},
	} {
		if c.o.peeks() != c.peeks || c.o.keys() != c.keys || c.o.work() != c.work {
			t.Errorf("%s: peeks %v, %d keys, work %d, want %d", name, c.o.peeks(), c.o.keys(), c.o.work(), c.work)
		}
	}
}

// TestWhatAnswersProve: a breaker that is half open closes by what was written, not by what was read.
func TestWhatAnswersProve(t *testing.T) {
	for _, cmd := range []lua.Command{&lua.Beat{}, &lua.KeepPermits{}, &lua.Report{}, &lua.Block{}} {
		if proves(cmd) != breaker.ProofWrite {
			t.Errorf("%T: %v", cmd, proves(cmd))
		}
	}
	gcra := args(t, algo.GCRA)
	if p := proves(&lua.Decide{Items: []lua.Item{{Params: *gcra}}}); p != breaker.ProofRead {
		t.Errorf("a peek: %v", p)
	}
	if p := proves(&lua.Decide{Items: []lua.Item{{Params: *gcra, Cost: 1}}}); p != breaker.ProofRun {
		t.Errorf("a denial: %v", p)
	}
	if p := proves(&lua.Permits{}); p != breaker.ProofRun {
		t.Errorf("no permit: %v", p)
	}
	if proofOf(true) != breaker.ProofRead || proofOf(false) != breaker.ProofRun {
		t.Error("what an answer proves at least")
	}
}

// TestErrorsOfCallers: what callers get of what a link says.
func TestErrorsOfCallers(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	cause := errors.New("cause")
	for _, c := range []struct {
		ctx   context.Context
		err   error
		is    error
		falls bool
	}{
		{t.Context(), cause, cause, false},
		{t.Context(), &Error{breaker.ClassUnavailable, cause}, ErrUnavailable, true},
		{t.Context(), &Error{breaker.ClassUnavailable, cause}, cause, true},
		{ended, &Error{breaker.ClassUnavailable, cause}, ErrUnavailable, true},
		{t.Context(), &Error{breaker.ClassBug, cause}, ErrState, false},
		{t.Context(), &Error{breaker.ClassBug, cause}, cause, false},
		{ended, &Error{breaker.ClassCaller, cause}, context.Canceled, false},
		{t.Context(), &Error{breaker.ClassCaller, ErrClosed}, ErrClosed, false},
		{t.Context(), &Error{breaker.ClassCaller, cause}, context.DeadlineExceeded, false},
	} {
		if got := CallerError(c.ctx, "key 1", c.err); !errors.Is(got, c.is) || FallsBack(c.err) != c.falls {
			t.Errorf("%v: %v, falls back %v", c.err, got, FallsBack(c.err))
		}
	}
	state := CallerError(t.Context(), "part", &Error{breaker.ClassBug, cause})
	if !strings.Contains(state.Error(), `of key "part": cause`) || !strings.Contains(OfKey(state, "whole").Error(), `of key "whole": cause`) || OfKey(cause, "whole") != cause {
		t.Errorf("%v, %v", state, OfKey(state, "whole"))
	}
}

// TestClassesOfErrors: what a call that failed says of the server.
func TestClassesOfErrors(t *testing.T) {
	const fair = 25 * time.Millisecond
	for _, c := range []struct {
		err  error
		took time.Duration
		want breaker.Class
	}{
		{nil, time.Hour, breaker.ClassOK},
		{ErrClosed, 0, breaker.ClassCaller},
		{&lua.ReplyError{}, 0, breaker.ClassBug},
		{&lua.ClockError{}, 0, breaker.ClassAborted},
		{ErrOpen, 0, breaker.ClassUnavailable},
		{errNoTurn, time.Hour, breaker.ClassAborted},
		{errBudget, fair - 1, breaker.ClassAborted},
		{errBudget, fair, breaker.ClassSlow},
		{errUnsent, fair - 1, breaker.ClassAborted},
		{errUnsent, fair, breaker.ClassUnavailable},
	} {
		if got := classify(t.Context(), c.err, c.took, fair); got != c.want {
			t.Errorf("%v after %v: %v, want %v", c.err, c.took, got, c.want)
		}
	}
}

// lines counts the lines of a log.
type lines struct{ said []string }

func (*lines) Enabled(context.Context, slog.Level) bool { return true }
func (l *lines) WithAttrs([]slog.Attr) slog.Handler     { return l }
func (l *lines) WithGroup(string) slog.Handler          { return l }
func (l *lines) Handle(_ context.Context, r slog.Record) error {
	text := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += fmt.Sprintf(" %s=%v", a.Key, a.Value)
		return true
	})
	l.said = append(l.said, text)
	return nil
}

// TestWhatIsLogged: an outage is a line when it begins and one when it is over; what does not change is
// said once.
func TestWhatIsLogged(t *testing.T) {
	log := &lines{}
	var calls []Call
	var changes []breaker.Change
	e := &events{
		logger: slog.New(log), prefix: "p", policy: fallback.Closed,
		onCall: func(_ context.Context, c Call) { calls = append(calls, c) }, onChange: func(_ context.Context, c breaker.Change) { changes = append(changes, c) },
	}
	at := time.Unix(1_760_000_000, 0)
	for _, c := range []struct {
		do   func()
		says []string
	}{
		{func() {
			e.changed(t.Context(), breaker.Change{Name: "n", From: breaker.Closed, To: breaker.Open, At: at, Since: at, OpenFor: time.Second})
		}, []string{"WARN holdfast: redis circuit opened; falling back breaker=n from=closed to=open", "policy=closed", "open_for=1s"}},
		{func() {
			e.changed(t.Context(), breaker.Change{Name: "n", From: breaker.Open, To: breaker.HalfOpen, At: at, Since: at})
		}, []string{"DEBUG holdfast: redis circuit half-open"}},
		{func() {
			e.changed(t.Context(), breaker.Change{Name: "n", From: breaker.HalfOpen, To: breaker.Closed, At: at.Add(time.Minute), Since: at})
		}, []string{"INFO holdfast: redis circuit closed", "outage=1m0s"}},
		{func() { e.called(Call{Server: "s", Class: breaker.ClassOK}) }, nil},
		{func() { e.called(Call{Server: "s", Class: breaker.ClassPermission, Err: ErrOpen}) }, []string{"ERROR holdfast: redis denies permission; falling back prefix=p policy=closed error="}},
		{func() { e.called(Call{Server: "s", Class: breaker.ClassPermission, Err: ErrOpen}) }, nil},
		{func() { e.noFunctions(ErrOpen) }, []string{"WARN holdfast: functions cannot be used; using EVALSHA prefix=p error="}},
		{func() { e.noFunctions(ErrOpen) }, nil},
		{func() { e.assumed(7) }, []string{"WARN holdfast: redis has not been reached since the start", "processes=7"}},
		{func() { e.assumed(7) }, nil},
	} {
		log.said = nil
		c.do()
		if len(log.said) != min(1, len(c.says)) {
			t.Errorf("%q, want %q", log.said, c.says)
			continue
		}
		for _, want := range c.says {
			if !strings.Contains(log.said[0], want) {
				t.Errorf("%q, want %q", log.said, want)
			}
		}
	}
	if len(calls) != 3 || len(changes) != 3 {
		t.Errorf("%d calls and %d changes were told", len(calls), len(changes))
	}
	none := &events{logger: slog.New(log)} // without functions of the user's
	none.called(Call{})
	none.changed(t.Context(), breaker.Change{To: breaker.Closed})
}

// TestManyServers: a topology that keeps changing leaves a bounded number behind.
func TestManyServers(t *testing.T) {
	rdb := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}, HeartbeatFrequency: time.Hour})
	defer rdb.Close()
	l, err := New(Config{Client: rdb, Prefix: "p"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range maxServers {
		if srv := l.servers.get(fmt.Sprint(i)); srv.Name != fmt.Sprint("p@", i) || srv != l.servers.get(fmt.Sprint(i)) || srv.Addr != fmt.Sprint(i) {
			t.Fatalf("%d: %q", i, srv.Name)
		}
	}
	one, two := l.servers.get("new"), l.servers.get("newer")
	if all := l.Servers(); one != two || one.Name != "p@others" || len(all) != maxServers+1 || !slices.IsSortedFunc(all, func(a, b *Server) int { return strings.Compare(a.Name, b.Name) }) {
		t.Errorf("%q, %q, %d servers", one.Name, two.Name, len(all))
	}
	if l.servers.on(one, "k") || l.Server("k") != one {
		t.Errorf("%q", l.Server("k").Addr)
	}
}
