package limiter

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"sync"
	"sync/atomic"
	"time"
)

// The heartbeat by which the processes of a prefix count each other. A process
// that is not heard of for beatLife is not counted.
const (
	beatEvery = 2 * time.Second
	beatLife  = 3 * beatEvery
	// beatAgain is when to ask again after the number has changed: processes
	// that start together each see only those before them.
	beatAgain = 250 * time.Millisecond
	// fewerAfter is for how long fewer processes must be counted before they are
	// believed to be fewer: a Redis that lost its state knows each of them only
	// when it has beaten again.
	fewerAfter = beatEvery + time.Second
)

// processID names this process among all that share a prefix.
var processID = func() string {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}()

// present counts the limiters of this program by prefix and process id: the last
// one that closes says good-bye for all.
var present = struct {
	sync.Mutex
	limiters map[[2]string]int
}{limiters: map[[2]string]int{}}

// peers knows how many processes are alive. It asks Redis while decisions are
// made there, off the caller's path, and keeps the last answer through an
// outage.
type peers struct {
	prefix, id string
	turn       every
	alive      atomic.Int64
	joined     atomic.Bool

	mu    sync.Mutex
	heard bool
	fewer int64     // the most counted since there were fewer than alive
	since time.Time // when that began; zero while there are not fewer
}

func newPeers(prefix, id string) *peers {
	p := &peers{prefix: prefix, id: id}
	p.alive.Store(1)
	return p
}

// join counts this limiter in, at its first heartbeat.
func (p *peers) join() {
	if p.joined.Swap(true) {
		return
	}
	present.Lock()
	defer present.Unlock()
	present.limiters[[2]string{p.prefix, p.id}]++
}

// leave reports whether this limiter was the last one of its process.
func (p *peers) leave() (last bool) {
	if !p.joined.Swap(false) {
		return false
	}
	present.Lock()
	defer present.Unlock()
	k := [2]string{p.prefix, p.id}
	present.limiters[k]--
	if present.limiters[k] > 0 {
		return false
	}
	delete(present.limiters, k)
	return true
}

// beatIfDue starts the heartbeat that rides on traffic.
func (l *link) beatIfDue(now time.Time) {
	if l.share == 0 && l.peers.turn.due(now, beatEvery) {
		l.background.start(l.beat)
	}
}

// beat says that this process lives and learns how many do.
func (l *link) beat(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	l.peers.join()
	n, err := l.lua.Beat(ctx, 0, l.names.Peers(), l.peers.id, beatLife.Microseconds())
	if err != nil || n < 1 {
		return
	}
	now := time.Now()
	if l.peers.count(n, now) {
		l.peers.turn.soon(now.Add(beatAgain))
	}
}

// count takes note that n are alive, and reports whether to ask again soon.
func (p *peers) count(n int64, now time.Time) (again bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	first, alive := !p.heard, p.alive.Load()
	p.heard = true
	if n >= alive {
		p.since = time.Time{}
		p.alive.Store(n)
		return first || n > alive
	}
	if p.since.IsZero() {
		p.since, p.fewer = now, n
		return true
	}
	p.fewer = max(p.fewer, n)
	if now.Sub(p.since) < fewerAfter {
		return false
	}
	p.since = time.Time{}
	p.alive.Store(p.fewer)
	return true
}

// goodbye takes this process off the list, if Redis can be asked and no other
// limiter of the process is on it.
func (l *link) goodbye() {
	if !l.peers.leave() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.budget)
	defer cancel()
	sh := l.shards.forID(l.names.Peers())
	permit, ok := sh.breaker.Acquire()
	if !ok {
		return
	}
	c := newCall(l, func(ctx context.Context, c *call) error {
		_, err := l.lua.Beat(ctx, 0, l.names.Peers(), l.peers.id, 0)
		return err
	})
	err := sh.calls.do(ctx, c, l.budget, nil)
	took := time.Since(c.sent)
	permit.Done(classify(ctx, err, took, l.budget), took)
}

// currentShare is the part of the limit that this process may use on its own.
func (l *link) currentShare() float64 {
	if l.share > 0 {
		return l.share
	}
	return 1 / float64(l.peers.alive.Load())
}
