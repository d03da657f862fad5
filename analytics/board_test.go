package analytics_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/analytics"
	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/limiter"
)

// board is a hook in the place of a Redis: what processes have published, as publish.lua keeps it.
type board struct {
	mu     sync.Mutex
	hold   chan struct{} // is waited for before every answer, if set
	held   atomic.Int64  // calls that wait for it
	err    error         // is every answer, if set
	ahead  time.Duration
	texts  map[string]string
	until  map[string]int64
	writes int
	asked  []int // how many texts each command read
	ctx    context.Context
	left   time.Duration // of the last write
}

// inMemory is a client of a Redis in memory.
func inMemory(t *testing.T) (*redis.Client, *board) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Protocol: 2, MaxRetries: -1})
	t.Cleanup(func() { _ = rdb.Close() })
	b := &board{texts: map[string]string{}, until: map[string]int64{}}
	rdb.AddHook(b)
	return rdb, b
}

func (b *board) DialHook(next redis.DialHook) redis.DialHook { return next }

func (b *board) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (b *board) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if b.hold != nil {
			b.held.Add(1)
			<-b.hold
			b.held.Add(-1)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.err != nil {
			cmd.SetErr(b.err)
			return b.err
		}
		switch cmd := cmd.(type) {
		case *redis.TimeCmd:
			cmd.SetVal(time.Now().Add(b.ahead))
		case *redis.StringSliceCmd:
			var names []string
			for name, until := range b.until {
				if least, _ := strconv.ParseInt(cmd.Args()[2].(string), 10, 64); until >= least {
					names = append(names, name)
				}
			}
			slices.Sort(names)
			slices.Reverse(names)
			cmd.SetVal(names)
		case *redis.SliceCmd:
			b.asked = append(b.asked, len(cmd.Args())-2)
			var found []any
			for _, name := range cmd.Args()[2:] {
				if text, is := b.texts[name.(string)]; is {
					found = append(found, text)
				} else {
					found = append(found, nil)
				}
			}
			cmd.SetVal(found)
		default:
			return b.publish(ctx, cmd)
		}
		return nil
	}
}

// state is what a process has published last, and how.
type state struct {
	writes int
	text   string
	until  int64
	ctx    context.Context
	left   time.Duration
}

func (b *board) of(process string) state {
	b.mu.Lock()
	defer b.mu.Unlock()
	return state{b.writes, b.texts[process], b.until[process], b.ctx, b.left}
}

// fails sets the answer to all that is asked from now on, nil for those of a Redis that works.
func (b *board) fails(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

func (b *board) publish(ctx context.Context, cmd redis.Cmder) error {
	args := cmd.Args()
	if len(args) != 9 {
		return fmt.Errorf("unexpected: %v", cmd)
	}
	b.writes++
	end, _ := ctx.Deadline()
	b.ctx, b.left = ctx, time.Until(end)
	name, life := args[6].(string), args[7].(int64)
	if delete(b.texts, name); life > 0 {
		now := time.Now().UnixMicro()
		b.texts[name], b.until[name] = fmt.Sprintf("%d %s", now, args[8]), now+life
	}
	cmd.(interface{ SetVal([]int64) }).SetVal([]int64{1})
	return nil
}

// report is what a process has published last.
func (b *board) report(t *testing.T, process string) (r analytics.ProcessReport) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	_, text, _ := strings.Cut(b.texts[process], " ")
	must(t, json.Unmarshal([]byte(text), &r))
	return r
}

// TestPublishesInIntervals: a process publishes at once and then about once in each interval, for three of
// them; a call has two seconds, and its context ends with it. After Close nothing is published, and
// what was is gone.
func TestPublishesInIntervals(t *testing.T) {
	for _, c := range []struct {
		opts        []analytics.PublishOption
		interval    time.Duration
		least, most int // in 601 s
	}{
		{nil, 10 * time.Second, 54, 67},
		{[]analytics.PublishOption{analytics.WithPublishInterval(time.Second)}, time.Second, 540, 670},
		{[]analytics.PublishOption{analytics.WithPublishInterval(10 * time.Minute)}, 10 * time.Minute, 1, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			rdb, redis := inMemory(t)
			p := publish(t, rdb, "p", map[string]analytics.Source{"l": {}}, c.opts...)
			synctest.Wait()
			if life := time.Duration(redis.of("p").until-time.Now().UnixMicro()) * time.Microsecond; life != 3*c.interval || redis.of("p").writes != 1 {
				t.Errorf("%d published at once, for %v", redis.of("p").writes, life)
			}
			if redis.of("p").left != 2*time.Second || redis.of("p").ctx.Err() == nil {
				t.Errorf("%v for a call, and after it %v", redis.of("p").left, redis.of("p").ctx.Err())
			}
			time.Sleep(601 * time.Second)
			synctest.Wait()
			if redis.of("p").writes < c.least || redis.of("p").writes > c.most || p.Err() != nil {
				t.Errorf("%d published, %v", redis.of("p").writes, p.Err())
			}
			redis.fails(os.ErrDeadlineExceeded)
			time.Sleep(11 * time.Minute)
			synctest.Wait()
			if p.Err() == nil {
				t.Error("no error")
			}
			redis.fails(nil)
			must(t, p.Close())
			before := redis.of("p").writes
			time.Sleep(time.Hour)
			if redis.of("p").writes != before || redis.of("p").text != "" {
				t.Errorf("%d published after Close, and %q stays", redis.of("p").writes-before, redis.of("p").text)
			}
		})
	}
}

// TestCloseWaitsForACall: Close ends after the call that is under way.
func TestCloseWaitsForACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb, redis := inMemory(t)
		redis.hold = make(chan struct{})
		p := publish(t, rdb, "p", map[string]analytics.Source{"l": {}})
		synctest.Wait()
		closing := make(chan error, 1)
		go func() { closing <- p.Close() }()
		synctest.Wait()
		if len(closing) > 0 || redis.held.Load() != 1 {
			t.Errorf("closed while it publishes, or %d calls at once", redis.held.Load())
		}
		redis.hold <- struct{}{}
		synctest.Wait()
		if redis.of("p").writes != 1 {
			t.Errorf("%d published", redis.of("p").writes)
		}
		close(redis.hold)
		must(t, <-closing)
	})
}

// TestReportOfAProcess: what a process says of itself.
func TestReportOfAProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(1400 * time.Millisecond)
		rdb, redis := inMemory(t)
		limit := limiter.GCRA(limiter.PerHour(1), 1)
		since := time.Now().Add(time.Millisecond + 499*time.Microsecond)
		health := limiter.Health{
			Processes: 3, Share: 0.25, Owed: 7, Decisions: map[limiter.Source]uint64{limiter.SourceRedis: 5, limiter.SourceLocal: 2},
			Servers: []limiter.ServerHealth{{Name: "s", State: breaker.Open, Since: since, LastFailure: breaker.ClassSlow}},
		}
		publish(t, rdb, "p", map[string]analytics.Source{
			"b": {Limit: func() limiter.Limit { return limit }},
			"a": {Health: func() limiter.Health { return health }},
			"c": {Top: newTop(t, 1)},
		})
		synctest.Wait()
		r := redis.report(t, "p")
		host, _ := os.Hostname()
		if r.Process != "p" || r.Host != host || r.PID != os.Getpid() || r.Program != filepath.Base(os.Args[0]) || !r.Started.Equal(time.Now().Add(-400*time.Millisecond)) || len(r.Limiters) != 3 {
			t.Fatalf("%+v", r)
		}
		a, b, c := r.Limiters[0], r.Limiters[1], r.Limiters[2]
		if a.Name != "a" || a.Limit != "" || a.Denials != nil || a.State.Processes != 3 || a.State.Share != 0.25 || a.State.Owed != 7 || a.State.Decisions["redis"] != 5 || a.State.Decisions["local"] != 2 {
			t.Errorf("%+v", a)
		}
		if s := a.State.Servers; len(s) != 1 || s[0].Name != "s" || s[0].State != "open" || s[0].LastFailure != "slow" || !s[0].Since.Equal(since.Truncate(time.Millisecond)) {
			t.Errorf("%+v", s)
		}
		if b.Name != "b" || b.Limit != limit.String() || b.State != nil || c.Denials == nil || len(c.Denials.Keys) != 0 {
			t.Errorf("%+v, %+v", b, c)
		}
	})
}

// TestPublishedKeys: how many of the keys of each source are published, and how often one that is not may
// have been denied: as often as the next one, and where there may be more than were kept, as the
// sketch errs.
func TestPublishedKeys(t *testing.T) {
	for _, c := range []struct {
		capacity, denied, sources int // denied: so many keys, the first of them once, the second twice
		opts                      []analytics.PublishOption
		keys                      int
		others                    int64
	}{
		{100, 60, 1, nil, 50, 10},
		{100, 60, 3, nil, 16, 44},
		{100, 3, 1, nil, 3, 0},
		{100, 3, 3, []analytics.PublishOption{analytics.WithPublishedKeys(1)}, 1, 2},
		{100, 9, 2, []analytics.PublishOption{analytics.WithPublishedKeys(4)}, 2, 7},
		{10, 10, 1, nil, 10, 2 * 55 / 10},
		{10, 10, 1, []analytics.PublishOption{analytics.WithPublishedKeys(2)}, 2, 11},
	} {
		synctest.Test(t, func(t *testing.T) {
			rdb, redis := inMemory(t)
			sources := map[string]analytics.Source{}
			for i := range c.sources {
				top := newTop(t, c.capacity)
				for k := 1; k <= c.denied; k++ {
					for range k {
						deny(top, fmt.Sprint("key", k))
					}
				}
				sources[fmt.Sprint("l", i)] = analytics.Source{Top: top}
			}
			publish(t, rdb, "p", sources, c.opts...)
			synctest.Wait()
			for _, l := range redis.report(t, "p").Limiters {
				if d := l.Denials; len(d.Keys) != c.keys || d.Others != c.others || d.Denied != int64(c.denied*(c.denied+1)/2) || d.Keys[0].Key != fmt.Sprint("key", c.denied) {
					t.Errorf("%+v: %d keys, others %d of %d", c, len(d.Keys), d.Others, d.Denied)
				}
			}
		})
	}
}

// TestPublishBounds: the largest and the smallest that is taken, and the next.
func TestPublishBounds(t *testing.T) {
	rdb, _ := inMemory(t)
	named := func(n int) map[string]analytics.Source {
		return map[string]analytics.Source{strings.Repeat("n", n): {}}
	}
	many := map[string]analytics.Source{}
	for i := range 100 {
		many[fmt.Sprint(i)] = analytics.Source{}
	}
	one := named(1)
	for _, c := range []struct {
		of   map[string]analytics.Source
		opt  analytics.PublishOption
		says string // "" where it is taken
	}{
		{named(64), analytics.WithPublishProcess("p"), ""},
		{named(65), analytics.WithPublishProcess("p"), "must be 1 to 64 bytes"},
		{many, analytics.WithPublishProcess("p"), ""},
		{one, analytics.WithPublishProcess(strings.Repeat("p", 64)), ""},
		{one, analytics.WithPublishProcess(strings.Repeat("p", 65)), "must be 1 to 64 bytes"},
		{one, analytics.WithPublishInterval(time.Second), ""},
		{one, analytics.WithPublishInterval(time.Second - 1), "must be between 1s and 10m"},
		{one, analytics.WithPublishInterval(10 * time.Minute), ""},
		{one, analytics.WithPublishInterval(10*time.Minute + 1), "must be between 1s and 10m"},
		{one, analytics.WithPublishedKeys(1), ""},
		{one, analytics.WithPublishedKeys(0), "must be 1 to 1000"},
		{one, analytics.WithPublishedKeys(1000), ""},
		{one, analytics.WithPublishedKeys(1001), "must be 1 to 1000"},
	} {
		p, err := analytics.Publish(rdb, c.of, c.opt)
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%v, want %q", err, c.says)
		}
		if err == nil {
			must(t, p.Close())
		}
	}
	many["one more"] = analytics.Source{}
	if _, err := analytics.Publish(rdb, many); err == nil || !strings.Contains(err.Error(), "must be 1 to 100") {
		t.Error(err)
	}
}

// TestReadFleet: what is read of what was published, a few texts at a time.
func TestReadFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb, redis := inMemory(t)
		now := time.Now()
		at := func(ago time.Duration) string { return fmt.Sprint(now.Add(-ago).UnixMicro()) }
		redis.ahead = -time.Minute // a process may have published while this was read
		put := func(name, text string, until time.Duration) {
			redis.until[name] = now.Add(until).UnixMicro()
			if text != "" {
				redis.texts[name] = text
			}
		}
		for i := range 62 {
			name := fmt.Sprintf("p%02d", i)
			put(name, at(time.Hour)+` {"process":"`+name+`"}`, 0)
		}
		put("a", at(0)+` {"process":"a"}`, 0)
		put("dead", at(time.Hour)+` {"process":"dead"}`, -time.Minute-time.Microsecond)
		put("just", at(time.Hour)+` {"process":"just"}`, -time.Minute)
		put("gone", "", 0)
		put("bad 1", at(0)+" not JSON", 0)
		put("bad 2", `soon {"process":"bad"}`, 0)
		put("bad 3", `{"process":"bad"}`, 0)
		f, err := analytics.ReadFleet(t.Context(), rdb, "holdfast")
		must(t, err)
		if !f.At.Equal(now) || f.At.Location() != time.UTC || f.Unreadable != 3 || len(f.Processes) != 64 {
			t.Fatalf("at %v, %d unreadable, %d processes", f.At, f.Unreadable, len(f.Processes))
		}
		if a, b := f.Processes[0], f.Processes[1]; a.Process != "a" || !a.At.Equal(now) || b.Process != "just" || !b.At.Equal(now.Add(-time.Hour)) || b.At.Location() != time.UTC || f.Processes[63].Process != "p61" {
			t.Errorf("%+v, %+v", a, b)
		}
		if !slices.Equal(redis.asked, []int{32, 32, 4}) {
			t.Errorf("%v texts at a time", redis.asked)
		}
		redis.fails(os.ErrDeadlineExceeded)
		if f, err := analytics.ReadFleet(t.Context(), rdb, "holdfast"); err == nil || f != nil {
			t.Errorf("%+v, %v", f, err)
		}
	})
}

// TestDenialsAddUp: each key has what all processes say of it, and what those may have missed that do not.
func TestDenialsAddUp(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(1_760_000_000+s, 0) }
	of := func(name string, d *analytics.Denials) analytics.LimiterReport {
		return analytics.LimiterReport{Name: name, Denials: d}
	}
	denials := func(since time.Time, denied, others int64, keys ...analytics.Key) *analytics.Denials {
		return &analytics.Denials{Report: analytics.Report{Since: since, Denied: denied, Keys: keys}, Others: others}
	}
	f := &analytics.FleetReport{Processes: []analytics.ProcessReport{
		{Limiters: []analytics.LimiterReport{
			of("api", denials(at(5), 100, 3, analytics.Key{Key: "d", Denied: 60, Error: 2, Allowed: 7, DeniedUnits: 90, LastDenied: at(8)}, analytics.Key{Key: "c", Denied: 20, LastDenied: at(9)})),
			of("none", nil),
			of("others", denials(at(3), 4, 4)),
			of("full", denials(at(1), 1, 0, analytics.Key{Key: "x", DeniedUnits: math.MaxInt64 - 1, Denied: 1})),
		}},
		{Limiters: []analytics.LimiterReport{
			of("api", denials(at(2), 50, 5, analytics.Key{Key: "d", Denied: 30, Error: 1, Allowed: 4, DeniedUnits: 31, LastDenied: at(6)}, analytics.Key{Key: "b", Denied: 20})),
			of("full", denials(at(2), 1, 0, analytics.Key{Key: "x", DeniedUnits: 2, Denied: 1})),
		}},
		{Limiters: []analytics.LimiterReport{of("api", denials(at(7), 10, 0, analytics.Key{Key: "d", Denied: 1, LastDenied: at(9)}))}},
	}}
	got := f.Denials(10)
	want := map[string]analytics.Report{
		"api": {Since: at(2), Denied: 160, Keys: []analytics.Key{
			{Key: "d", Denied: 91, Error: 3, Allowed: 11, DeniedUnits: 121, LastDenied: at(9)},
			{Key: "c", Denied: 25, Error: 5, LastDenied: at(9)}, // more may have been denied than of b, and as much is certain
			{Key: "b", Denied: 23, Error: 3},
		}},
		"others": {Since: at(3), Denied: 4, Keys: []analytics.Key{}},
		"full":   {Since: at(1), Denied: 2, Keys: []analytics.Key{{Key: "x", Denied: 2, DeniedUnits: math.MaxInt64}}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	f.Processes[0].Limiters = append(f.Processes[0].Limiters, of("certain", denials(at(1), 30, 0, analytics.Key{Key: "often", Denied: 10, Error: 5}, analytics.Key{Key: "surely", Denied: 8}, analytics.Key{Key: "perhaps", Denied: 12, Error: 9})))
	if r := f.Denials(3)["certain"].Keys; r[0].Key != "surely" || r[1].Key != "often" || r[2].Key != "perhaps" {
		t.Errorf("%+v", r)
	}
	for n, keys := range map[int]int{-1: 0, 0: 0, 1: 1, 3: 3, 4: 3} {
		if r := f.Denials(n)["api"]; len(r.Keys) != keys || r.Denied != 160 {
			t.Errorf("%d: %+v", n, r)
		}
	}
}
