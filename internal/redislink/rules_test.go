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

// TestProbesWrite: a probe writes also where what is asked for may write nothing, or where that frees memory before it
// writes; what writes in any case goes alone.
func TestProbesWrite(t *testing.T) {
	gcra := args(t, algo.GCRA)
	for name, c := range map[string]struct {
		o        Op
		commands int
	}{
		"heartbeat": {Op{Command: &lua.Beat{}}, 1},
		"report":    {Op{Command: &lua.Report{}}, 1},
		"block":     {Op{Command: &lua.Block{}}, 2},
		"keep":      {Op{Keep: &lua.Holders{Callers: []string{"a"}}}, 2},
		"permit":    {Op{Permits: &lua.PermitAsk{}}, 2},
		"peek":      {Op{Args: gcra}, 2},
		"decision":  {Op{Args: gcra, Cost: 1}, 2},
	} {
		f := newFlight(&wire{names: lua.NewNamer("test")})
		f.add(&c.o)
		f.writes()
		if f.used != c.commands {
			t.Errorf("%s: %d commands, want %d", name, f.used, c.commands)
		}
		if _, beat := f.commands[f.used-1].command().(*lua.Beat); c.commands == 2 && !beat {
			t.Errorf("%s: %T", name, f.commands[f.used-1].command())
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
	if p := proves(&lua.Block{Time: 1, Left: 2}); p != breaker.ProofRun {
		t.Errorf("a block that is longer already: %v", p)
	}
	gcra := args(t, algo.GCRA)
	if p := proves(&lua.Decide{Items: []lua.Item{{Params: *gcra}}}); p != breaker.ProofRead {
		t.Errorf("a peek: %v", p)
	}
	if p := proves(&lua.Decide{Items: []lua.Item{{Params: *gcra, Cost: 1}}}); p != breaker.ProofRun {
		t.Errorf("a denial: %v", p)
	}
	if p := proves(&lua.Permits{Items: []lua.PermitItem{{Ask: &lua.PermitAsk{}, Got: lua.PermitReply{Granted: []bool{true}}}}}); p != breaker.ProofWrite {
		t.Errorf("a permit: %v", p)
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
		{func() { e.assumed(7) }, []string{"WARN holdfast: it is not known yet how many processes there are", "processes=7"}},
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

// TestDoubtedCounts: while a process cannot know who has come back from an outage, no lower number is taken
// over, and a higher one is.
func TestDoubtedCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(&Config{Prefix: "p", Process: "a", Expected: 10})
		at := func(n, want int64, again bool) {
			t.Helper()
			if got := f.count(&f.beats, n, time.Now()); got != again || f.size() != want {
				t.Errorf("counted %d: %d processes, ask again %v; want %d, %v", n, f.size(), got, want, again)
			}
		}
		at(4, 4, true)
		at(4, 4, false)
		f.doubt(10 * time.Second)
		at(2, 4, false)
		time.Sleep(9 * time.Second)
		at(2, 4, false)
		at(6, 6, true)
		time.Sleep(time.Second)
		at(2, 6, true)
		time.Sleep(3*time.Second - 1)
		at(3, 6, false)
		time.Sleep(1)
		at(2, 3, true)
		if f.count(&f.peers, 5, time.Now()); f.size() != 5 { // the larger one of the two
			t.Errorf("%d processes", f.size())
		}
		f.count(&f.peers, 1, time.Now())
		time.Sleep(3 * time.Second)
		f.count(&f.peers, 1, time.Now())
		at(4, 4, true)
		at(2, 4, true) // which does not count, because of what comes
		f.doubt(10 * time.Second)
		time.Sleep(9 * time.Second)
		at(2, 4, false)
		time.Sleep(2 * time.Second)
		at(2, 4, true)
	})
}

// TestBrokenKeys: one that holds something else is an error of those who asked for it, and of no others.
func TestBrokenKeys(t *testing.T) {
	a, out := args(t, algo.GCRA), algo.Decision{Allowed: true, Remaining: 5}
	item := func(id string, broken bool) lua.Item {
		return lua.Item{Keys: names.KeysOf(algo.GCRA, id), Params: *a, Cost: 1, Count: 1, Admitted: 1, Broken: broken, At: 7}
	}
	c := &command{what: decisions, items: 2, decide: lua.Decide{Items: []lua.Item{item("a", true), item("b", false)}, Out: []algo.Decision{{}, out}}}
	c.all = lua.DecideAll{Of: 2, Items: []lua.Item{item("a", false), item("b", true), item("c", false), item("d", false)}, Out: []algo.Decision{{}, {}, out, out}}
	failed := c.decide.Items[0].BrokenError()
	for i, broken := range []bool{true, false} {
		o, several := &Op{Class: breaker.ClassBug, Err: failed}, &Op{Class: breaker.ClassBug, Err: failed, All: make([]lua.Item, 2)}
		if broken {
			o, several = &Op{}, &Op{All: make([]lua.Item, 2)}
		}
		c.answer(o, place{item: i})
		c.answerAll(several, place{item: i})
		for _, o := range []*Op{o, several} {
			if (o.Class == breaker.ClassBug) != broken || (o.Err != nil) != broken || broken && !isA[*lua.ReplyError](o.Err) {
				t.Errorf("%d: %v, %v", i, o.Class, o.Err)
			}
		}
		if !broken && (o.Out != out || len(several.Outs) != 2 || several.Outs[1] != out || several.All[1].At != 7) {
			t.Errorf("%+v, %+v", o.Out, several)
		}
	}
}

// TestCallersOfOneItem: each of those who share an item knows whether it was admitted, what is left after it, and
// what those behind it took.
func TestCallersOfOneItem(t *testing.T) {
	for _, c := range []struct {
		turn, count                 int64
		admitted, behind, remaining int64
		allowed                     bool
	}{
		{0, 0, 1, 4, 5, true}, {1, 0, 1, 2, 3, true}, {2, 0, 1, 0, 1, true}, {3, 0, 0, 0, 1, false},
		{0, 2, 2, 2, 3, true}, {2, 2, 1, 0, 1, true}, {3, 2, 0, 0, 1, false},
	} {
		of := &command{what: decisions, decide: lua.Decide{
			Items: []lua.Item{{Cost: 2, Count: 4, Admitted: 3, At: 7}},
			Out:   []algo.Decision{{Allowed: false, Remaining: 1, RetryAfter: 9}},
		}}
		o := &Op{Count: c.count}
		of.answer(o, place{turn: c.turn})
		retry := o.Out.RetryAfter == 0
		if o.Admitted != c.admitted || o.Behind != c.behind || o.Out.Remaining != c.remaining || o.Out.Allowed != c.allowed || retry != c.allowed || o.At != 7 || o.Whole.Remaining != 1 {
			t.Errorf("%+v: %d admitted, %d behind, %+v", c, o.Admitted, o.Behind, o.Out)
		}
	}
}
