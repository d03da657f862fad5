package sim

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sort"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/calendar"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/limiter"
)

// Plan says what a world is like. New plans are drawn from a seed; a shrinker makes
// smaller ones.
type Plan struct {
	Seed      uint64
	Shape     Shape
	Processes int
	Callers   int // of each process
	Keys      int // of each limit
	Limits    []Limit
	Permits   []Permits
	// Begins is how long after 2000-01-01 the world does.
	Begins time.Duration
	Life   time.Duration
	// Think is how long a caller pauses on average around faults, and Idle at other times.
	Think, Idle time.Duration
	Looks       float64 // the part of calls that are peeks
	Varied      float64 // the part of calls that are of all other kinds
	Waits       float64 // the part of calls that wait, beside a few
	Hasty       float64 // the part of calls whose callers leave before most answers
	Traffic     Traffic
	Faults      []Fault
	// Joins are when further processes start, and Leaves when one ends.
	Joins   []time.Duration
	Leaves  []Leave
	Changes []Change
	Host    Host
	Sampled Sampled
	Options options
}

// Change is another limit for all processes, each of which knows it within a second.
type Change struct {
	At time.Duration
	Of int // the number of the limit
	To limiter.Limit
	// Within is the time, beyond a second, in which all processes that run know of it, as in a deploy.
	Within time.Duration
}

// options are those of the limiters.
type options struct {
	NoDenials bool
	// Deadlines are those of contexts, which the client obeys.
	Deadlines bool
	// LocalKeys is the most keys that a limiter remembers, 0 for many.
	LocalKeys int
}

// Limit is a limit with what is particular to its limiter.
type Limit struct {
	limiter.Limit
	Lease int // units of a lease, 0 without
	Age   time.Duration
	Parts int // of a key, 0 where it is whole
	// Headroom is the part of it that only critical calls may use.
	Headroom float64
	// Unit and Zone are of a limit of a calendar.
	Unit calendar.Unit
	Zone string
}

func (l Limit) options() (opts []limiter.Option) {
	if l.Lease > 0 {
		opts = append(opts, limiter.WithLease(l.Lease, l.Age))
	}
	if l.Parts > 1 {
		opts = append(opts, limiter.WithKeyShards(l.Parts))
	}
	if l.Headroom > 0 {
		opts = append(opts, limiter.WithCriticalHeadroom(l.Headroom))
	}
	return opts
}

// most is the largest cost that a limiter of it takes, 0 where New rejects the limit.
func (l Limit) most() int {
	rdb := redis.NewClient(&redis.Options{Addr: "10.0.0.1:6379"}) // a name would be resolved
	defer rdb.Close()                                             //nolint:errcheck // it has no connection
	lim, err := limiter.New(rdb, l.Limit, append(l.options(), limiter.WithPrefix("drawn"))...)
	if err != nil {
		return 0
	}
	defer lim.Close() //nolint:errcheck // it never fails
	ended, end := context.WithCancel(context.Background())
	end()
	return sort.Search(l.Burst(), func(n int) bool {
		_, err := lim.AllowN(ended, "key", n+1)
		return errors.Is(err, limiter.ErrCostExceedsLimit)
	})
}

// Permits is a semaphore.
type Permits struct {
	N   int
	TTL time.Duration
}

// Sampled is a sampled limiter of each process. The zero value is none.
type Sampled struct {
	Rate               limiter.Rate
	Interval           time.Duration
	Keys               int // that are asked for
	TopKeys, LocalKeys int // the most that are tracked, and beside those
}

// Leave is the end of a process: it closes its limiters, or crashes.
type Leave struct {
	At      time.Duration
	Process int
	Crash   bool
}

// limitAt is the limit of a number as it is known at some time.
func (p *Plan) limitAt(i int, at time.Duration) Limit {
	l := p.Limits[i]
	for _, c := range p.Changes {
		if c.Of == i && c.At <= at {
			l.Limit = c.To
		}
	}
	return l
}

// scaled is a limit of the same algorithm, f times as high.
func scaled(l limiter.Limit, f float64) limiter.Limit {
	times := func(n int) int { return max(1, int(f*float64(n))) }
	rate := limiter.Per(times(l.Rate().N), l.Rate().Per)
	switch burst := times(l.Burst()); algorithmOf(l) {
	case algo.FixedWindow:
		return limiter.FixedWindow(rate)
	case algo.SlidingWindowLog:
		return limiter.SlidingWindowLog(rate)
	case algo.SlidingWindowCounter:
		return limiter.SlidingWindowCounter(rate)
	case algo.TokenBucket:
		return limiter.TokenBucket(rate, burst)
	case algo.LeakyBucket:
		return limiter.LeakyBucket(rate, burst)
	case algo.LeakyBucketShaping:
		return limiter.LeakyBucketShaping(rate, burst)
	default:
		return limiter.GCRA(rate, burst)
	}
}

// algorithmOf is the algorithm of a limit.
func algorithmOf(l limiter.Limit) algo.Kind {
	i := slices.IndexFunc(algo.Kinds[:], func(k algo.Kind) bool { return k.String() == l.Algorithm() })
	return algo.Kinds[i]
}

const (
	budget = 50 * time.Millisecond // the default of limiter.WithBudget
	// holdMost is the longest time for which a permit is held.
	holdMost = 5 * time.Second
)

// rush is a time in which much is asked for: a fault with what comes before and after it,
// or the whole life of a fleet that is always busy.
type rush struct{ from, to time.Duration }

const (
	// rushBefore is as long as it takes all processes to count each other.
	rushBefore = 20 * time.Second
	rushAfter  = 40 * time.Second
)

// rushes lists the times in which callers pause for Think and not for Idle.
func (p *Plan) rushes() (all []rush) {
	for _, f := range p.Faults {
		all = append(all, rush{f.At - rushBefore, f.At + f.For + rushAfter})
	}
	for _, l := range p.Leaves {
		all = append(all, rush{l.At - rushBefore, l.At + rushAfter})
	}
	for _, at := range p.Joins {
		all = append(all, rush{at - rushBefore, at + rushAfter})
	}
	all = append(all, rush{p.Life - rushAfter, p.Life})
	slices.SortFunc(all, func(a, b rush) int { return cmp.Compare(a.from, b.from) })
	merged := all[:1]
	for _, r := range all[1:] {
		if last := &merged[len(merged)-1]; r.from <= last.to {
			last.to = max(last.to, r.to)
		} else {
			merged = append(merged, r)
		}
	}
	return merged
}

// knownAt is when the others certainly know of a process that joins: not before the faults
// are over in which it does. Until then it counts itself as one of those that are expected,
// of which there are more than there are others.
func (p *Plan) knownAt(join time.Duration) time.Duration {
	known := join + 15*time.Second
	for again := true; again; {
		again = false
		for _, f := range p.Faults {
			if over := f.At + f.For + 20*time.Second; f.At < known && over > known {
				known, again = over, true
			}
		}
	}
	return known
}

// claim is the part of a limit that each process may use locally at a time: one of as many
// as could reach Redis lately.
func (p *Plan) claim(at time.Duration) float64 {
	cut := map[int]bool{}
	for _, f := range p.Faults {
		if f.Of != nil && f.For > 2*time.Second && f.At < at && f.At+f.For+20*time.Second > at {
			for _, n := range f.Of {
				cut[n] = true
			}
		}
	}
	// A process that joins or leaves is noticed within 15 s.
	n, least := p.Processes, p.Processes
	type change struct {
		at time.Duration
		by int
	}
	var changes []change
	for _, j := range p.Joins {
		if at > p.knownAt(j) {
			changes = append(changes, change{j, 1})
		}
	}
	for _, l := range p.Leaves {
		changes = append(changes, change{l.At, -1})
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	for _, c := range changes {
		if c.at > at {
			break
		}
		if c.at <= at-15*time.Second {
			least = n + c.by
		}
		n += c.by
		least = min(least, n)
	}
	return 1 / float64(max(1, least-len(cut)))
}

// knowsNone reports that a process may know of no other one: there is none that could reach Redis lately,
// it has joined, perhaps in a fault, they ask for little, a fault began before all could count each other, or Redis has lost
// what it knew of them, or its clock has stepped, and not all have asked since.
func (p *Plan) knowsNone(process int, at time.Duration) bool {
	counted := rushBefore + 40*p.slowest() // each has asked of every limit by then
	early := func(f Fault) bool {
		return f.At < counted || f.Kind.forgets() && f.At < at && at < f.At+f.For+counted
	}
	return p.Idle > p.Think || process >= p.Processes || at < counted || p.claim(at) == 1 || slices.ContainsFunc(p.Faults, early)
}

// migrated reports that slots may be elsewhere than at first.
func (p *Plan) migrated(at time.Duration) bool {
	return slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Kind == Migrated && f.At < at })
}

// calmSince is when the last fault of a server until then was over; -1 is all servers.
func (p *Plan) calmSince(at time.Duration, server int) (since time.Duration) {
	for _, f := range p.Faults {
		if f.At < at && (server < 0 || f.On < 0 || f.On == server || f.Kind == Migrated) {
			since = max(since, f.At+f.For+time.Millisecond)
		}
	}
	return since
}

// alive is how many processes there are at the end.
func (p *Plan) alive() int { return p.Processes + len(p.Joins) - len(p.Leaves) }

// quiet lists the times in which no fault, and no process that comes or goes, matters to what a sampled
// fleet is asked for and to what its processes know of each other.
func (p *Plan) quiet() (all [][2]time.Duration) {
	interval := p.Sampled.Interval
	var ends [][2]time.Duration
	add := func(at, long time.Duration) { ends = append(ends, [2]time.Duration{at, at + long}) }
	for _, f := range p.Faults {
		add(f.At, f.For)
	}
	for _, l := range p.Leaves {
		add(l.At, 0)
	}
	for _, at := range p.Joins {
		add(at, 0)
	}
	add(p.Life-rushAfter, rushAfter)
	slices.SortFunc(ends, func(a, b [2]time.Duration) int { return cmp.Compare(a[0], b[0]) })
	settles := 15*time.Second + 10*interval // so long an interval is remembered
	from := settles
	for _, e := range ends {
		if to := e[0] - rushBefore; to-from >= max(30*time.Second, 2*settles) {
			all = append(all, [2]time.Duration{from, to})
		}
		from = max(from, e[1]+rushAfter+settles)
	}
	return all
}
