package operator_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/analytics"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/operator"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
)

// publish publishes a text of a process, as analytics.Publish does.
func publish(t *testing.T, rdb redis.UniversalClient, process string, ago time.Duration, text string) {
	t.Helper()
	texts, times := lua.NewNamer("holdfast").Published()
	now, err := rdb.Time(t.Context()).Result()
	must(t, err)
	must(t, rdb.HSet(t.Context(), texts, process, fmt.Sprint(now.Add(-ago).UnixMicro(), " ", text)).Err())
	must(t, rdb.ZAdd(t.Context(), times, redis.Z{Member: process, Score: float64(now.Add(time.Minute).UnixMicro())}).Err())
}

// report is what a process publishes of limits, of limiters with a prefix on one server.
func report(t *testing.T, process, prefix string, limits ...string) string {
	t.Helper()
	r := analytics.ProcessReport{Process: process}
	for _, l := range limits {
		r.Limiters = append(r.Limiters, analytics.LimiterReport{Name: l, Limit: l, State: &analytics.LimiterState{Servers: []analytics.ServerState{{Name: prefix + "@127.0.0.1:6379"}}}})
	}
	text, err := json.Marshal(r)
	must(t, err)
	return string(text)
}

// TestPublishedLimits: what remains is said by the limit that processes publish, where it is one of this prefix, the same in all
// of them, and of the rate that the state has, else by what the state says; and by the one that is asked about before any other.
func TestPublishedLimits(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t, redistest.Start(t))
	o := newOperator(t, rdb)
	gcra, log, counter := all[6], all[1], all[2]
	for _, l := range []limiter.Limit{gcra, log, counter} {
		use(t, newLimiter(t, rdb, l), "k", 3)
	}
	_, err := o.Block(t.Context(), "blocked", time.Minute, operator.BlockIn{Algorithm: "gcra"})
	must(t, err)
	larger, faster := limiter.GCRA(gcra.Rate(), 20), limiter.GCRA(limiter.PerHour(3), 10)
	unstated, unserved := `{"process":"a","limiters":[{"limit":"`+gcra.String()+`"}]}`, `{"process":"a","limiters":[{"limit":"`+gcra.String()+`","state":{"servers":[]}}]}`
	for i, c := range []struct {
		texts []string
		of    limiter.Limit
		key   string
		want  string
	}{
		{nil, gcra, "k", gcra.String()}, {[]string{report(t, "a", "holdfast", gcra.String())}, gcra, "k", gcra.String()}, {[]string{report(t, "a", "other", larger.String())}, gcra, "k", gcra.String()},
		{[]string{report(t, "a", "holdfast", "no limit", gcra.String())}, gcra, "k", gcra.String()}, {[]string{report(t, "a", "holdfast", counter.String())}, gcra, "k", gcra.String()},
		{[]string{unstated}, gcra, "k", gcra.String()}, {[]string{unserved}, gcra, "k", gcra.String()}, {[]string{report(t, "a", "holdfast", faster.String())}, gcra, "k", gcra.String()},
		{[]string{report(t, "a", "holdfast", gcra.String()), report(t, "b", "holdfast", gcra.String())}, gcra, "k", gcra.String()},
		{[]string{report(t, "a", "holdfast", gcra.String()), report(t, "b", "holdfast", larger.String())}, gcra, "k", gcra.String()}, {[]string{report(t, "a", "holdfast", larger.String())}, gcra, "k", larger.String()},
		{[]string{report(t, "a", "holdfast", gcra.String())}, gcra, "blocked", gcra.String()}, {[]string{report(t, "a", "holdfast", log.String())}, log, "k", log.String()},
		{[]string{report(t, "a", "holdfast", limiter.SlidingWindowCounter(limiter.PerHour(10)).String())}, counter, "k", ""},
	} {
		texts, times := lua.NewNamer("holdfast").Published()
		must(t, rdb.Del(t.Context(), texts, times).Err())
		for j, text := range c.texts {
			publish(t, rdb, fmt.Sprint(j), 0, text)
		}
		if s := find(t, inspect(t, o, c.key, operator.Question{}), c.of); s.Limit != c.want || (s.Remaining != nil) != (c.want != "") {
			t.Errorf("%d: %+v, want %q", i, s, c.want)
		}
		if s := find(t, inspect(t, o, c.key, operator.Question{Limit: larger}), gcra); s.Limit != larger.String() {
			t.Errorf("%d: %+v, asked about %v", i, s, larger)
		}
	}
}

// TestProcessesThatPublish: they are in a fleet also without a heartbeat, once each, and those that cannot be read are counted.
func TestProcessesThatPublish(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t, redistest.Start(t))
	now, err := rdb.Time(t.Context()).Result()
	must(t, err)
	names := lua.NewNamer("holdfast")
	for _, process := range []string{"both", "beats"} {
		must(t, rdb.ZAdd(t.Context(), names.Peers(0), redis.Z{Member: process, Score: float64(now.UnixMicro())}).Err())
	}
	publish(t, rdb, "both", 0, report(t, "both", "holdfast"))
	publish(t, rdb, "alone", 20*time.Second, report(t, "alone", "holdfast"))
	publish(t, rdb, "later", 0, "{")
	f, err := newOperator(t, rdb).Fleet(t.Context())
	must(t, err)
	if f.Unreadable != 1 || f.Share != 0.5 {
		t.Errorf("%+v", f)
	}
	var got []string
	for _, p := range f.Processes {
		got = append(got, fmt.Sprint(p.Name, " ", p.Beats, " ", p.Published != nil))
	}
	if want := []string{"alone false true", "beats true false", "both true true"}; !slices.Equal(got, want) {
		t.Fatalf("%v, want %v", got, want)
	}
	if d := time.Duration(f.Processes[0].Seen); d < 20*time.Second || d > 39*time.Second {
		t.Errorf("published %v ago", d)
	}
}

// TestOrderOfStates: those of one algorithm stand together, of the whole key first and then of its parts.
func TestOrderOfStates(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t, redistest.Start(t))
	o := newOperator(t, rdb)
	use(t, newLimiter(t, rdb, all[6]), "k", 1)
	parts := newLimiter(t, rdb, all[0], limiter.WithKeyShards(2))
	for range 2 {
		use(t, parts, "k", 1)
	}
	var got []string
	for _, s := range inspect(t, o, "k", operator.Question{}) {
		got = append(got, fmt.Sprint(s.Algorithm, s.Part != nil))
	}
	if want := []string{"fixed windowtrue", "fixed windowtrue", "gcrafalse"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
