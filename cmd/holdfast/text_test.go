package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/analytics"
	"github.com/holdfast-go/holdfast/internal/operator"
	"github.com/holdfast-go/holdfast/limiter"
)

// colors are what terminals read, as the tests write it.
var colors = strings.NewReplacer("\x1b[31m", "<red>", "\x1b[33m", "<yellow>", "\x1b[32m", "<green>", "\x1b[2m", "<dim>", "\x1b[1m", "<bold>", "\x1b[0m", "<>")

// shown is a text that a person reads in a terminal.
type shown struct {
	name  string
	print func(*program)
	want  string
}

// check compares texts to the letter.
func (s shown) check(t *testing.T) {
	t.Helper()
	var out bytes.Buffer
	s.print(&program{env: func(string) string { return "" }, out: &out, flags: flags{color: "always"}})
	if got := colors.Replace(out.String()); got != strings.TrimPrefix(s.want, "\n") {
		t.Errorf("%s:\n%s\nwant%s", s.name, got, s.want)
	}
}

func ms(n int) operator.Duration { return operator.Duration(n) * operator.Duration(time.Millisecond) }

var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func ptr[T any](v T) *T { return &v }

// TestShortTimes: a time has about three digits, in units that suit it.
func TestShortTimes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		of   time.Duration
		want string
	}{
		{0, "0s"},
		{499, "0s"},
		{1_501, "2µs"},
		{999_400, "999µs"},
		{999_999, "1ms"},
		{1_004_999, "1ms"},
		{1_005_000, "1.01ms"},
		{1_234_567, "1.23ms"},
		{999_994_999, "999.99ms"},
		{1_004_999_999, "1s"},
		{1_234_567_890, "1.23s"},
		{59_984_999_999, "59.98s"},
		{time.Minute + 299*time.Millisecond, "1m0s"},
		{time.Minute + 300*time.Millisecond, "1m0.6s"},
		{61*time.Minute + 17*time.Second, "1h1m12s"},
		{61*time.Minute + 31*time.Second, "1h1m48s"},
		{59*time.Minute + 59*time.Second + 400*time.Millisecond, "59m59.4s"},
	} {
		if got := short(operator.Duration(c.of)); got != c.want {
			t.Errorf("%v: %s, want %s", c.of, got, c.want)
		}
	}
}

// TestSafeText: what would change a terminal is quoted, and so are bytes that are no text.
func TestSafeText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "customer:42": "customer:42", "zürich 東京": "zürich 東京", "a\nb": `"a\nb"`, "a\xffb": `"a\xffb"`, "\ufffd": `"�"`, "\ufffc": "\ufffc",
		"\u202e": `"\u202e"`,
	} {
		if got := safe(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// TestTextOfCheck: each server has a line, and each finding its level, its effect and what to do.
func TestTextOfCheck(t *testing.T) {
	t.Parallel()
	one := operator.Server{Addr: "a:1", Version: "7.0.15", Role: "master", P50: ms(1), P99: ms(2)}
	failing := operator.Finding{Level: operator.Failing, Server: "a:1", What: "no\tmemory", Effect: "decisions are local", Do: "add some"}
	risk := operator.Finding{Level: operator.Risk, Server: "b:2", What: "it is far", Effect: "it is slow", Do: "come nearer"}
	note := operator.Finding{Level: operator.Note, Server: "b:2", What: "no replica", Effect: "none follows", Do: "add one"}
	for _, c := range []shown{
		{"nothing", func(p *program) { p.printCheck(&operator.Checked{Servers: []operator.Server{one}}) }, `
<bold>a:1<>  Redis 7.0.15, master, round trip 1ms (slowest of 30 2ms)

<green>nothing to mend was found<>
`},
		{"a note", func(p *program) {
			p.printCheck(&operator.Checked{Servers: []operator.Server{{Addr: "a:1"}}, Findings: []operator.Finding{note}})
		}, `
<bold>a:1<>  Redis of an unknown version, of an unknown role, round trip 0s (slowest of 30 0s)

<dim>note   <> no replica
        so: none follows
        do: add one

<green>nothing to mend was found<>
`},
		{"two servers", func(p *program) {
			p.printCheck(&operator.Checked{Servers: []operator.Server{one, {Addr: "b:2", Version: "8", Role: "master"}}, Findings: []operator.Finding{failing, risk, note}})
		}, `
<bold>a:1<>  Redis 7.0.15, master, round trip 1ms (slowest of 30 2ms)
<bold>b:2<>  Redis 8, master, round trip 0s (slowest of 30 0s)

<red>failing<> "no\tmemory" at a:1
        so: decisions are local
        do: add some

<yellow>risk   <> it is far at b:2
        so: it is slow
        do: come nearer

<dim>note   <> no replica at b:2
        so: none follows
        do: add one
`},
		{"a risk", func(p *program) {
			p.printCheck(&operator.Checked{Servers: []operator.Server{one}, Findings: []operator.Finding{risk}})
		}, `
<bold>a:1<>  Redis 7.0.15, master, round trip 1ms (slowest of 30 2ms)

<yellow>risk   <> it is far
        so: it is slow
        do: come nearer
`},
	} {
		c.check(t)
	}
}

// TestTextOfInspect: what is stored is said with what is known of it, and no more.
func TestTextOfInspect(t *testing.T) {
	t.Parallel()
	for _, c := range []shown{
		{"nothing", func(p *program) { p.printKey(&operator.Key{Prefix: "holdfast", Key: "a\tb"}) }, `
<bold>"a\tb"<>  prefix holdfast
nothing is stored: the key was not used lately, is fully reset, or has another prefix
`},
		{"what is no limit", func(p *program) {
			p.printKey(&operator.Key{
				Prefix: "p", Key: "k", SampledRate: 1, Learnt: true,
				Permits: &operator.Permits{Redis: "p:sem", Held: 2, Waiting: 3, LastEnd: ms(4000), Expires: ms(5000)},
			})
		}, `
<bold>k<>  prefix p

permits
  held        2, the last one until in 4s
  waiting     3
  stored      p:sem, for 5s

sampled
  demand      is counted for a sampled limiter

learnt
  quotas      of this key were learnt from answers of a server
`},
		{"a whole key", func(p *program) {
			p.printKey(&operator.Key{Prefix: "p", Key: "k", Limits: []operator.State{{
				Redis: "p:k", Algorithm: "gcra", Limit: "gcra 1/s burst 5", Rate: "1/s", Used: 5, Remaining: ptr[int64](0),
				RetryAfter: ptr(ms(1000)), ResetAfter: ms(5000), BlockedFor: ms(6000), Since: &noon, Expires: ms(7000),
			}}})
		}, `
<bold>k<>  prefix p

<bold>gcra<>
  limit       gcra 1/s burst 5
  used        5, 0 remain
  <red>blocked<>     for 6s
  next unit   in 1s
  reset       in 5s
  used since  2026-07-01T12:00:00Z
  stored      p:k, for 7s
`},
		{"times that are nearly nothing", func(p *program) {
			p.printState(operator.State{Redis: "p:k", Algorithm: "gcra", Rate: "1/s", Used: 5, Remaining: ptr[int64](1), RetryAfter: ptr(operator.Duration(1)), BlockedFor: 1, Expires: 1})
		}, `

<bold>gcra<>
  rate        1/s; -limit TEXT shows what remains
  used        5, 1 remain
  <red>blocked<>     for 0s
  next unit   in 0s
  reset       in 0s
  stored      p:k, for 0s
`},
		{"a part that does not expire", func(p *program) {
			p.printState(operator.State{Redis: "p:\tk", Algorithm: "fixed window", Part: ptr(0), RetryAfter: ptr(operator.Duration(0))})
		}, `

<bold>fixed window, part 0<>
  limit       is not in Redis; -limit TEXT shows what remains
  used        0
  reset       in 0s
  stored      "p:\tk", <yellow>without a time to live: the next charge sets one<>
`},
		{"what is none", func(p *program) {
			p.printState(operator.State{Redis: "p:k", Algorithm: "gcra", Part: ptr(3), Broken: "it is a\tlist", Limit: "gcra 1/s burst 5"})
		}, `

<bold>gcra, part 3<>
  <red>broken<>      "it is a\tlist"
`},
	} {
		c.check(t)
	}
}

// TestTextOfChanges: a change is said with the keys of Redis, and with what else is to be known.
func TestTextOfChanges(t *testing.T) {
	t.Parallel()
	for _, c := range []shown{
		{"nothing", func(p *program) { p.printChange(&operator.Change{Prefix: "p", Key: "a\tb", Note: "n"}) }, `
nothing to change: no state is stored for "a\tb" under the prefix p
`},
		{"a block", func(p *program) {
			p.printChange(&operator.Change{Prefix: "p", Key: "a\tb", Redis: []string{"p:1", "p:\t2"}, Until: &noon})
		}, `
<bold>"a\tb"<> is blocked until 2026-07-01T12:00:00Z
changed p:1 "p:\t2"
`},
		{"a note", func(p *program) {
			p.printChange(&operator.Change{Key: "k", Redis: []string{"p:1"}, Note: "it takes a second"})
		}, `
changed p:1
<dim>note: it takes a second<>
`},
	} {
		c.check(t)
	}
}

// TestTextOfTables: limits stand in the order of their names, and those that are not obeyed behind the others.
func TestTextOfTables(t *testing.T) {
	t.Parallel()
	gold, free := limiter.GCRA(limiter.PerSecond(200), 400), limiter.FixedWindow(limiter.PerMinute(5))
	for _, c := range []shown{
		{"none", func(p *program) { p.printTables(nil) }, `
there is no table of limits under this prefix
`},
		{"several", func(p *program) {
			p.printTables([]operator.Table{
				{Name: "a\tb", Version: 3, Limits: map[string]limiter.Limit{"gold": gold, "free": free, "\t": gold}},
				{Name: "empty", Version: 2},
				{Name: "one", Version: 1, Limits: map[string]limiter.Limit{"gold": gold}, Rejected: map[string]string{"z\tz": "it is\tbad", "bad": "no rate"}},
				{Name: "equal", Version: 1, Limits: map[string]limiter.Limit{"gold": gold}, Rejected: map[string]string{"bad": "no rate"}},
			})
		}, `
<bold>"a\tb"<>  version 3
  "\t"                 gcra 200/1s burst 400
  free                 fixed window 5/1m
  gold                 gcra 200/1s burst 400

<bold>empty<>  version 2
  is empty: each program uses its own limits

<bold>one<>  version 1
  gold                 gcra 200/1s burst 400
  bad                  <red>is not obeyed:<> no rate
  "z\tz"               <red>is not obeyed:<> "it is\tbad"

<bold>equal<>  version 1
  gold                 gcra 200/1s burst 400
  bad                  <red>is not obeyed:<> no rate
`},
	} {
		c.check(t)
	}
}

// TestTextOfFleet: each process has a line, and what it publishes of its limiters stands below.
func TestTextOfFleet(t *testing.T) {
	t.Parallel()
	published := &analytics.ProcessReport{
		Host: "ho\tst", PID: 42, Program: "pro\tgram", Started: noon.Add(-time.Hour), At: noon.Add(-2 * time.Second),
		Limiters: []analytics.LimiterReport{
			{Name: "a\tb", Limit: "gcra 1/s\tburst 5"},
			{Name: "quiet", Limit: "gcra 1/s burst 5", State: &analytics.LimiterState{Servers: []analytics.ServerState{{Name: "s", State: "closed"}}}},
			{Name: "busy", Limit: "gcra 1/s burst 5", State: &analytics.LimiterState{
				Decisions: map[string]uint64{"redis": 7, "local": 1, "\t": 2}, Owed: 1,
				Servers: []analytics.ServerState{
					{Name: "s\t1", State: "open", LastFailure: "time\tout", Since: noon},
					{Name: "s2", State: "half\topen", LastFailure: "refused", Since: noon.Add(time.Minute)},
				},
			}},
		},
	}
	for _, c := range []shown{
		{"none", func(p *program) { p.printFleet(&operator.Fleet{Prefix: "p"}) }, `
no process sent a heartbeat under the prefix p within a minute: none decided anything, all have closed, or have a fixed share (WithShare)
`},
		{"sampled limiters alone", func(p *program) { p.printFleet(&operator.Fleet{Prefix: "p", Sampled: 1}) }, `
no process sent a heartbeat under the prefix p within a minute: none decided anything, all have closed, or have a fixed share (WithShare)

sampled limiters have 1 process
`},
		{"processes that do not publish", func(p *program) {
			p.printFleet(&operator.Fleet{Prefix: "p", Share: 1.0 / 3, Processes: []operator.Process{
				{Name: "a\tb", Beats: true, Seen: ms(10_000)}, {Name: "idle", Beats: true, Seen: ms(10_000) + 1}, {Name: "gone"},
			}})
		}, `
3 under the prefix p; the share of each is 0.333

  process              heartbeat        where
  "a\tb"               10s ago          
  idle                 <yellow>10s idle?       <> 
  gone                 <yellow>none            <> 

<dim>breakers, limits and debts are shown of programs that call analytics.Publish<>
`},
		{"all there is", func(p *program) {
			p.printFleet(&operator.Fleet{
				Prefix: "p", At: noon, Share: 0.5, Sampled: 2, Unreadable: 1,
				Processes: []operator.Process{{Name: "one", Beats: true, Seen: ms(1500), Published: published}, {Name: "two", Beats: true, Published: &analytics.ProcessReport{Host: "h", At: noon.Add(time.Second)}}},
				Returns:   []operator.Return{{Limiter: "gc\tra", Back: 3, Away: 4}},
			})
		}, `
2 under the prefix p; the share of each is 0.5

  process              heartbeat        where
  one                  1.5s ago         "ho\tst", pid 42, "pro\tgram", since 2026-07-01 11:00:00; said 2s ago:
    "a\tb"             "gcra 1/s\tburst 5"
    quiet              gcra 1/s burst 5; decisions: 
    busy               gcra 1/s burst 5; decisions: 2 "\t", 1 local, 7 redis
                       <red>the breaker of "s\t1" is open ("time\tout") since 12:00:00<>
                       <red>the breaker of s2 is "half\topen" (refused) since 12:01:00<>
                       <yellow>local use of 1 keys is not charged in Redis yet<>
  two                  0s ago           h, pid 0, , since 0001-01-01 00:00:00; said 0s ago:

<yellow>a return<> after an outage ("gc\tra"): 3 are back, 4 are not

sampled limiters have 2 processes

this version cannot read what is published by 1 process
`},
	} {
		c.check(t)
	}
}

// TestTextOfTop: limiters stand in the order of their names, and keys in that of the report.
func TestTextOfTop(t *testing.T) {
	t.Parallel()
	for _, c := range []shown{
		{"none", func(p *program) { p.printTop(&operator.Top{Prefix: "p"}) }, `
no process publishes its denials under the prefix p: see analytics.Publish
`},
		{"several", func(p *program) {
			p.printTop(&operator.Top{Prefix: "p", At: noon, Processes: 2, Limiters: map[string]analytics.Report{
				"quiet": {Since: noon.Add(-time.Minute)},
				"a\tb": {Since: noon.Add(-time.Hour), Denied: 9, Keys: []analytics.Key{
					{Key: "k\t1", Denied: 6, Error: 1, Allowed: 2, LastDenied: noon.Add(-3 * time.Second)},
					{Key: "k2", Denied: 3, LastDenied: noon.Add(time.Second)},
				}},
				"last": {Since: noon, Denied: 1, Keys: []analytics.Key{{Key: "k3", Denied: 1, LastDenied: noon}}},
			}})
		}, `
<bold>"a\tb"<>  9 denied since 2026-07-01 11:00:00, in 2 processes
        denied or less by      allowed  last         key
             6          1            2  3s ago       "k\t1"
             3          0            0  0s ago       k2

<bold>last<>  1 denied since 2026-07-01 12:00:00, in 2 processes
        denied or less by      allowed  last         key
             1          0            0  0s ago       k3

<bold>quiet<>  0 denied since 2026-07-01 11:59:00, in 2 processes
`},
	} {
		c.check(t)
	}
}

// TestTextOfBench: the CPU of a decision is said where it is known.
func TestTextOfBench(t *testing.T) {
	t.Parallel()
	shown{"rows", func(p *program) {
		p.printBench(&operator.Bench{Server: "a:1", RoundTrip: ms(1), Slowest: ms(2), Advice: "it is enough", Rows: []operator.BenchRow{
			{Algorithm: "gcra", Callers: 1, PerSecond: 1234.5, P50: ms(1), P99: ms(20), Late: 0.5, CPU: ms(1)},
			{Algorithm: "sliding window counter", Callers: 64, PerSecond: 99999.6, P50: ms(3), P99: ms(4), Late: 0.0123},
			{Algorithm: "token bucket", Callers: 64, Late: 1, CPU: 1},
		}})
	}, `
<bold>a:1<>  round trip 1ms (slowest of 30 2ms)

  algorithm                 callers    decisions/s        p50        p99       late   CPU of Redis
  gcra                            1           1234        1ms       20ms     50.00%            1ms
  sliding window counter         64         100000        3ms        4ms      1.23%               
  token bucket                   64              0         0s         0s    100.00%             0s

late are decisions that Redis did not make within the budget of 50ms; CPU is for one decision.
it is enough
`}.check(t)
}
