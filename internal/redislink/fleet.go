package redislink

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/random"
)

// The heartbeat by which the processes of a prefix count each other. A process
// that sends no heartbeat for BeatLife is not counted: until then it may be cut off, and use
// its claim, or be idle and ask again.
const (
	beatEvery = 2 * time.Second
	// BeatLife is for how long a process is counted after its last heartbeat.
	BeatLife = 30 * beatEvery
	// beatAgain is when to ask again after the number has changed: processes
	// that start together each see only those before them.
	beatAgain = 250 * time.Millisecond
	// peersWithin is how long the function of the user's may take.
	peersWithin = 5 * time.Second
	// rareBeats is how many of its own intervals a process lives whose heartbeats are rarer
	// than BeatLife, because it asks for little; and longestLife the most that this can be.
	rareBeats   = 3
	longestLife = 10 * BeatLife
	// beatsPerSecond is how many heartbeats a fleet sends together in a second, and returnsPerSecond how
	// often its processes ask for each other while they return: in larger fleets, each does it less often.
	beatsPerSecond   = 2000
	returnsPerSecond = 10_000
	// mostKeys is how many keys are tried to find one that is on a server.
	mostKeys = 1000
)

// MaxProcesses is the most processes that share a limit. A count beyond it is an error.
const MaxProcesses = 1_000_000

// processID names this process among all that share a prefix.
var processID = randomName()

// ProcessID names this process in heartbeats, where limiter.WithProcess does not.
func ProcessID() string { return processID }

// address is a database of a server.
type address struct {
	addr string
	db   int
}

// presence is a process on the list of a server.
type presence struct {
	server     any
	prefix, id string
}

// present counts the links of this program by what is listed: the last one that closes
// deregisters the process.
var present = struct {
	sync.Mutex
	links map[presence]int
}{links: map[presence]int{}}

// serverOf is the same for clients of one address. Other clients are of different servers, as far as
// is known: to deregister too early is mended by the next heartbeat, and too late by none.
func serverOf(client redis.UniversalClient) any {
	switch c, ok := client.(*redis.Client); {
	case ok && c.Options().Addr != "FailoverClient": // of Sentinel, whatever its master
		return address{c.Options().Addr, c.Options().DB}
	case reflect.ValueOf(client).Comparable():
		return client
	}
	return new(byte)
}

// fleet knows how many processes there are. It asks Redis while there is traffic, off the
// caller's path, and keeps the last answer through an outage; and it asks the function of
// the user's, if there is one, also during an outage.
type fleet struct {
	presence
	expected int64 // until something is known; what a fixed share says
	turn     Every
	alive    atomic.Int64 // 0 until something is known
	joined   atomic.Bool

	ask     func(context.Context) (int, error) // nil without
	askTurn Every
	asking  atomic.Bool

	mu sync.Mutex
	// last is when the last heartbeat was sent, 0 if Redis was lost since, and gaps are the times
	// between the last ones.
	last   time.Duration
	gaps   [3]time.Duration
	askErr error // of the last call of ask
	// Whichever is the larger number is used.
	beats, peers census
	// sure is from when a lower number may be counted in Redis: those that have not come
	// back from an outage yet are not counted.
	sure time.Time
}

// census is a number of processes, of which a lower one is taken over after a while.
type census struct {
	n     int64     // 0 until something is known
	fewer int64     // the most counted since there were fewer than n
	since time.Time // when that began; zero while there are not fewer
}

func newFleet(c *Config) *fleet {
	expected := int64(c.Expected)
	if c.Share > 0 { // nothing else is ever known then
		expected = int64(math.Round(1 / c.Share))
	}
	return &fleet{presence: presence{serverOf(c.Client), c.Prefix, cmp.Or(c.Process, processID)}, expected: expected, ask: c.PeerCount}
}

// size is how many processes there are, as far as is known.
func (f *fleet) size() int64 { return cmp.Or(f.alive.Load(), f.expected) }

// pace is how often each process does what the fleet does at most so many times in a second, and
// least where the fleet is small.
func (f *fleet) pace(least time.Duration, perSecond int64) time.Duration {
	return max(least, time.Duration(min(f.size(), MaxProcesses))*time.Second/time.Duration(perSecond))
}

// every is the time between two heartbeats: so long that three of them fit in the longest life.
func (f *fleet) every() time.Duration {
	return min(f.pace(beatEvery, beatsPerSecond), longestLife/rareBeats)
}

// wait is the time to the next heartbeat: least where the fleet is small. In a large one it is up to
// a quarter longer than it has to be, at random, so that what came together does not stay together.
func (f *fleet) wait(least time.Duration) time.Duration {
	d := min(f.pace(least, beatsPerSecond), f.every())
	if d > least {
		d += random.Below(d / 4)
	}
	return d
}

// spread is how long the heartbeat of a process waits when an outage ends: in a large fleet, all of
// which are due, a random part of the time between two, and nothing in a small one.
func (f *fleet) spread() time.Duration {
	if every := f.every(); every > beatEvery {
		return random.Below(every)
	}
	return 0
}

// schedule says when the heartbeat after one that was sent and answered is due: before the process is
// dead, which may not have known how rare its heartbeats will be, and soon if the number of processes
// has changed.
func (f *fleet) schedule(turn *Every, sent, answered, life time.Duration, changed bool) {
	next := f.wait(beatEvery)
	if next > life/2 {
		next = life/2 + random.Below(life/4)
	}
	turn.Later(sent + next)
	if changed {
		turn.Soon(answered + f.wait(beatAgain))
	}
}

// join counts this link in, at its first heartbeat.
func (f *fleet) join() {
	if f.joined.Swap(true) {
		return
	}
	present.Lock()
	defer present.Unlock()
	present.links[f.presence]++
}

// leave reports whether this link was the last one of its process.
func (f *fleet) leave() (last bool) {
	if !f.joined.Load() {
		return false
	}
	present.Lock()
	defer present.Unlock()
	present.links[f.presence]--
	if present.links[f.presence] > 0 {
		return false
	}
	delete(present.links, f.presence)
	return true
}

// beat notes that a heartbeat is sent.
func (f *fleet) beat(now time.Duration) {
	f.join()
	f.mu.Lock()
	defer f.mu.Unlock()
	copy(f.gaps[1:], f.gaps[:])
	if f.gaps[0] = 0; f.last != 0 {
		f.gaps[0] = now - f.last
	}
	f.last = now
}

// longer is how much longer than others this process lives, because its heartbeats are rare.
func (f *fleet) longer() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return min(max(rareBeats*f.rare(), rareBeats*f.every(), BeatLife), longestLife) - BeatLife
}

// rare is the longest time between two heartbeats lately, 0 if it is not longer than a
// heartbeat lives.
func (f *fleet) rare() time.Duration {
	if gap := slices.Max(f.gaps[:]); gap > BeatLife {
		return gap
	}
	return 0
}

// count notes that n are alive, and reports whether to ask again soon.
func (f *fleet) count(of *census, n int64, now time.Time) (again bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if of != &f.peers && n < of.n && now.Before(f.sure) {
		of.since = time.Time{}
		return false
	}
	// A Redis that lost its state knows each process only when it has sent its next heartbeat, which
	// takes longer where traffic is rare.
	again = of.count(n, now, max(f.every()*3/2, rareBeats*f.rare()))
	f.alive.Store(max(f.beats.n, f.peers.n))
	return again
}

// doubt lets no lower number of Redis' be taken over for d.
func (f *fleet) doubt(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sure, f.last = time.Now().Add(d), 0
}

func (c *census) count(n int64, now time.Time, after time.Duration) (again bool) {
	if n >= c.n {
		again = n > c.n
		c.n, c.since = n, time.Time{}
		return again
	}
	if c.since.IsZero() {
		c.since, c.fewer = now, n
		return true
	}
	c.fewer = max(c.fewer, n)
	if now.Sub(c.since) < after {
		return false
	}
	c.n, c.since = c.fewer, time.Time{}
	return true
}

// askPeers asks the function of the user's. What is no answer changes nothing.
func (f *fleet) askPeers(ctx context.Context) {
	defer f.asking.Store(false)
	ctx, cancel := context.WithTimeout(ctx, peersWithin)
	defer cancel()
	n, err := f.ask(ctx)
	if err == nil && (n < 1 || n > MaxProcesses) {
		err = fmt.Errorf("%d processes are not between 1 and %d", n, MaxProcesses)
	}
	f.mu.Lock()
	f.askErr = err
	f.mu.Unlock()
	if err == nil {
		f.count(&f.peers, int64(n), time.Now())
	}
}
