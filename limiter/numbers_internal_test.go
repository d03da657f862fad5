package limiter

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/calendar"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/wait"
)

// TestFewerUnits: how many are asked for after a denial, and for how few a call is admitted.
func TestFewerUnits(t *testing.T) {
	for _, c := range [][4]int{{1, 10, 4, 4}, {1, 10, 20, 9}, {1, 10, 10, 9}, {1, 10, 0, 1}, {1, 10, -3, 1}, {1, 2, 5, 1}, {2, 10, 4, 1}, {3, 10, 4, 1}} {
		if got := next(c[0], c[1], c[2]); got != c[3] {
			t.Errorf("after try %d for %d units with room for %d: %d, want %d", c[0], c[1], c[2], got, c[3])
		}
	}
	for c, want := range map[call]int{{n: 5}: 5, {n: 5, fewer: true}: 1, {n: 1, fewer: true}: 1, {fewer: true}: 0, {n: -1, fewer: true}: -1} {
		if got := c.least(); got != want {
			t.Errorf("%+v: %d, want %d", c, got, want)
		}
	}
}

// TestTimesOfBlocks: anything above 0, in whole microseconds, to 366 days.
func TestTimesOfBlocks(t *testing.T) {
	for d, want := range map[time.Duration]int64{time.Microsecond: 1, 1: 1, 366 * 24 * time.Hour: algo.MaxPeriod, 0: 0, -time.Hour: 0, 366*24*time.Hour + time.Microsecond: 0} {
		if us, err := blockTime(d); us != want || (err == nil) != (want > 0) {
			t.Errorf("%v: %d, %v", d, us, err)
		}
	}
}

// TestPeriods: a period as text, with and without a number, in any case, and in the plural where the word has one.
func TestPeriods(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"ns": 1, "us": time.Microsecond, "µs": time.Microsecond, "ms": time.Millisecond, "s": time.Second, "sec": time.Second, "second": time.Second, "m": time.Minute, "min": time.Minute,
		"minute": time.Minute, "h": time.Hour, "hour": time.Hour, "d": day, "day": day, "Day": day, "DAYS": day, "2days": 2 * day, "3D": 3 * day, "90s": 90 * time.Second, "1h30m": 90 * time.Minute,
		"mins": time.Minute, "secs": time.Second, "5minutes": 5 * time.Minute, "106751d": 106751 * day, "106752d": 0, "0d": 0, "0s": 0, "-1s": 0, "mss": 0, "ss": 0, "hs": 0, "ds": 0,
		"": 0, "week": 0, "2": 0, "d2": 0, "99999999999999999999d": 0,
	} {
		got, ok := period(text)
		if ok != (want > 0) || ok && got != want {
			t.Errorf("%q: %v, %v, want %v", text, got, ok, want)
		}
	}
}

// TestMeansOfCalendars: how long the units are on average; another one is an error, and no panic.
func TestMeansOfCalendars(t *testing.T) {
	const year = 31_556_952 * time.Second // of which 400 have 146,097 days
	for unit, want := range map[calendar.Unit]time.Duration{calendar.Day: 24 * time.Hour, calendar.Week: 7 * 24 * time.Hour, calendar.Month: year / 12, calendar.Year: year} {
		if got := Calendar(3, unit, time.UTC).Rate(); got != (Rate{3, want}) {
			t.Errorf("%v: %v, want %v", unit, got, want)
		}
	}
	for _, unit := range []calendar.Unit{0, 5, 6, 255} {
		if _, err := Calendar(3, unit, time.UTC).params(); err == nil {
			t.Errorf("unit %d is valid", unit)
		}
	}
}

func specOf(t *testing.T, l Limit, of tuning) *spec {
	t.Helper()
	s, err := newSpec(l, of)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestRoomForLeases: a lease has room in what a limit has beside its headroom, in each part of a split key.
func TestRoomForLeases(t *testing.T) {
	ten := FixedWindow(PerHour(10))
	for i, c := range []struct {
		of   tuning
		fits bool
	}{
		{tuning{}, false}, {tuning{lease: 10}, true}, {tuning{lease: 11}, false}, {tuning{lease: 5, keyShards: 2}, true}, {tuning{lease: 6, keyShards: 2}, false},
		{tuning{lease: 5, headroom: 0.5}, true}, {tuning{lease: 6, headroom: 0.5}, false}, {tuning{lease: 10, keyShards: 1}, true},
	} {
		if s := specOf(t, ten, c.of); s.leased != c.fits || (s.checkLease() == nil) != (c.fits || c.of.lease == 0) {
			t.Errorf("%d: leased %v, %v", i, s.leased, s.checkLease())
		}
	}
	for n, ok := range map[int]bool{1: true, 2: true, 10: true, 11: false} {
		if s, err := newSpec(ten, tuning{keyShards: n}); (err == nil) != ok || ok && n > 1 && len(s.parts) != n {
			t.Errorf("%d shards: %v", n, err)
		}
	}
}

// TestCostsOfLimits: the largest that is ever admitted, by a limit, beside its headroom, and by a part of a split key; and in a
// claim.
func TestCostsOfLimits(t *testing.T) {
	ten := FixedWindow(PerHour(10))
	for i, c := range []struct {
		of    tuning
		most  int
		words string // of what is said of more
	}{
		{tuning{}, 10, "admits at most 10 at once"}, {tuning{headroom: 0.2}, 8, "admits at most 8 at once; the rest is for critical calls"}, {tuning{keyShards: 3}, 3, "admits at most 3 at once, with 3 key shards"},
	} {
		s := specOf(t, ten, c.of)
		for n, ok := range map[int]bool{0: true, 1: true, c.most: true, c.most + 1: false, 11: false} {
			if err := s.check("k", n); (err == nil) != ok || n == c.most+1 && !strings.HasSuffix(err.Error(), c.words) {
				t.Errorf("%d: a cost of %d: %v", i, n, err)
			}
		}
		if err := s.check("k", 10); c.of.headroom > 0 && !strings.Contains(err.Error(), "critical") {
			t.Errorf("all of it, of which a part is kept: %v", err)
		}
		if err := s.check("k", 11); strings.Contains(err.Error(), "critical") {
			t.Errorf("more than all of it: %v", err)
		}
		if got := (&call{n: 100, fewer: true}).within(s); got != c.most {
			t.Errorf("%d: %d of at most 100", i, got)
		}
	}
	for i, c := range []struct {
		of    tuning
		claim float64
		most  int
	}{
		{tuning{}, 0.5, 5}, {tuning{}, 1, 10}, {tuning{}, 0.25, 3}, {tuning{headroom: 0.2}, 0.5, 4}, {tuning{keyShards: 2}, 1, 5}, {tuning{keyShards: 3}, 1, 4},
	} {
		s := specOf(t, ten, c.of)
		if s.beyond(c.claim, c.most) || !s.beyond(c.claim, c.most+1) {
			t.Errorf("%d: beyond a claim of %v: %d %v, %d %v", i, c.claim, c.most, s.beyond(c.claim, c.most), c.most+1, s.beyond(c.claim, c.most+1))
		}
	}
	if most := specOf(t, FixedWindow(PerHour(11)), tuning{keyShards: 3}).mostAtOnce(); most != 3 {
		t.Errorf("%d by each of 4, 4 and 3", most)
	}
	s := specOf(t, ten, tuning{})
	if p := s.local(0.5, 7); p.Phase != 7 || p.Cap != 5 {
		t.Errorf("%+v", p)
	}
}

// TestMostDelays: a place in a queue must be had before the context ends, with time for the answer, of which at most half of
// what is left is kept.
func TestMostDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := specOf(t, LeakyBucketShaping(PerSecond(1), 100), tuning{})
		if other := specOf(t, GCRA(PerSecond(1), 100), tuning{}); other.boundedBy(wait.WithMostDelay(t.Context(), 1), 1) != other {
			t.Error("a limit without a delay is bounded")
		}
		if s.boundedBy(t.Context(), time.Second) != s {
			t.Error("without patience there is no bound")
		}
		for i, c := range []struct {
			most, left, answer time.Duration
			bound, kept        time.Duration // 0 is none
		}{
			{10 * time.Second, 0, time.Second, 10 * time.Second, time.Second}, {0, 0, time.Second, time.Microsecond, time.Second}, {1500, 0, time.Second, time.Microsecond, time.Second},
			{10 * time.Second, 8 * time.Second, time.Second, 7 * time.Second, time.Second}, {5 * time.Second, 8 * time.Second, time.Second, 5 * time.Second, time.Second},
			{10 * time.Second, 8 * time.Second, 6 * time.Second, 4 * time.Second, 4 * time.Second}, {time.Hour, 0, time.Second, 0, 0}, {100 * time.Second, 0, time.Second, 0, 0}, {100*time.Second - time.Microsecond, 0, time.Second, 100*time.Second - time.Microsecond, time.Second},
		} {
			ctx, end := wait.WithMostDelay(t.Context(), c.most), context.CancelFunc(func() {})
			if c.left > 0 {
				ctx, end = context.WithTimeout(ctx, c.left)
			}
			got := s.boundedBy(ctx, c.answer)
			end()
			if c.bound == 0 {
				if got != s {
					t.Errorf("%d: a bound of %d µs", i, got.args.MaxDelay)
				}
				continue
			}
			if got == s || got.args.MaxDelay != c.bound.Microseconds() || got.answer != c.kept || s.args.MaxDelay != 0 {
				t.Errorf("%d: %d µs, %v are kept", i, got.args.MaxDelay, got.answer)
			}
		}
		bounded := s.boundedBy(wait.WithMostDelay(t.Context(), 10*time.Second), time.Second)
		for reset, want := range map[int64]time.Duration{9_000_000: 5 * time.Second, 10_000_000: 5 * time.Second, 11_000_000: 12 * time.Second} {
			var res Result
			if bounded.result(&res, &algo.Decision{RetryAfter: 5_000_000, ResetAfter: reset}, SourceRedis); res.RetryAfter != want {
				t.Errorf("the queue is empty after %d µs: retry after %v, want %v", reset, res.RetryAfter, want)
			}
		}
	})
}

// TestLimitsThatAreKept: 1024 beside the limiter's own, which are made once; the limit of the limiter itself has no line of its
// own.
func TestLimitsThatAreKept(t *testing.T) {
	var p limits
	own := FixedWindow(PerHour(10))
	if err := p.set(own, tuning{}); err != nil {
		t.Fatal(err)
	}
	kept := 0
	for i := range mostLimits + 2 {
		l := FixedWindow(PerHour(100 + i))
		a, errA := p.use(t.Context(), l)
		b, errB := p.use(t.Context(), l)
		if errA != nil || errB != nil || a.limit != l || b.limit != l {
			t.Fatalf("%v, %v", errA, errB)
		}
		if a == b {
			kept++
		}
	}
	if kept != mostLimits {
		t.Errorf("%d are kept", kept)
	}
	other := FixedWindow(PerHour(11))
	if a, b := p.line("k", own), p.line("k", other); a != (lineOf{key: "k"}) || b != (lineOf{"k", other}) {
		t.Errorf("%+v, %+v", a, b)
	}
	if last(nil) != (Limit{}) || last([]Limit{own, other}) != other || last([]Limit{own}) != own {
		t.Error("the last limit of a call is meant")
	}
}

// TestLimitsOfParts: each part has the cost and the limit at its place, of which one cost is of all.
func TestLimitsOfParts(t *testing.T) {
	a, b := FixedWindow(PerHour(10)), FixedWindow(PerHour(11))
	named := Part{Key: func(key string) string { return key + "@" }}
	for i, c := range []struct {
		opts []CallOption
		want [2]ask
	}{
		{nil, [2]ask{{key: "k@", n: 1}, {key: "k@", n: 1}}}, {[]CallOption{Cost(4)}, [2]ask{{key: "k@", n: 4}, {key: "k@", n: 4}}}, {[]CallOption{Cost(4), Cost(5)}, [2]ask{{key: "k@", n: 4}, {key: "k@", n: 5}}},
		{[]CallOption{a, Cost(4), b}, [2]ask{{key: "k@", n: 4, limit: a}, {key: "k@", n: 4, limit: b}}}, {[]CallOption{AtMost(7)}, [2]ask{{key: "k@", n: 7}, {key: "k@", n: 7}}},
	} {
		for part, want := range c.want {
			if got := named.of("k", c.opts, part); got != want {
				t.Errorf("%d: part %d: %+v, want %+v", i, part, got, want)
			}
		}
	}
	if got := named.of("", nil, 0); got.key != "" {
		t.Errorf("of no key: %q", got.key)
	}
	if got := new(Part).of("k", nil, 0); got.key != "k" {
		t.Errorf("without a function: %q", got.key)
	}
	for words, opts := range map[string][]CallOption{
		"costs is 2: must be one AtMost": {AtMost(1), AtMost(1)}, "costs is 3: must be one AtMost": {AtMost(1), Cost(1), Cost(2)}, "costs is 3: must be one for all": {Cost(1), Cost(1), Cost(1)}, "limits is 1: must be none": {a}, "limits is 3": {a, a, a},
	} {
		if err := check(make([]Part, 2), opts); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want %q in it", err, words)
		}
	}
	if err := check(make([]Part, 3), []CallOption{Cost(1), Cost(1)}); err == nil {
		t.Error("two costs of three parts")
	}
}

// TestAddressesOfOneFamily: processes with addresses of both families count once.
func TestAddressesOfOneFamily(t *testing.T) {
	for want, addrs := range map[int][]string{0: nil, 1: {"::1", "127.0.0.1"}, 2: {"10.0.0.1", "::ffff:10.0.0.2", "fd00::1"}, 3: {"fd00::1", "10.0.0.1", "fd00::2", "fd00::3"}} {
		var list []netip.Addr
		for _, a := range addrs {
			list = append(list, netip.MustParseAddr(a))
		}
		if got := ofOneFamily(list); got != want {
			t.Errorf("%v: %d, want %d", addrs, got, want)
		}
	}
}

// TestWordsOfWaitErrors: the times are whole microseconds.
func TestWordsOfWaitErrors(t *testing.T) {
	err := &WaitError{RetryAfter: time.Second, Remaining: 3*time.Microsecond + 1}
	if want := "limiter: would wait 1s, but the context ends in 3µs"; err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
}
