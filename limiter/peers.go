package limiter

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/redislink"
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
// one that closes deregisters the process.
var present = struct {
	sync.Mutex
	limiters map[[2]string]int
}{limiters: map[[2]string]int{}}

// peers knows how many processes are alive. It asks Redis while decisions are
// made there, off the caller's path, and keeps the last answer through an
// outage.
type peers struct {
	prefix, id string
	turn       redislink.Every
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
func (l *link) beatIfDue() {
	if l.share == 0 && l.peers.turn.Due(l.redis.Now(), beatEvery) {
		l.redis.Background.Start(l.beat)
	}
}

// beat says that this process lives and learns how many do.
func (l *link) beat(ctx context.Context) {
	l.peers.join()
	b := lua.Beat{Key: l.names.Peers(), ID: l.peers.id, Life: beatLife.Microseconds()}
	if err := l.exec(ctx, l.names.Peers(), &b); err != nil || b.Alive < 1 {
		return
	}
	if l.peers.count(b.Alive, time.Now()) {
		l.peers.turn.Soon(l.redis.Now() + beatAgain)
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

// deregister takes this process off the list, if Redis can be asked and no other limiter
// of the process is on it.
func (l *link) deregister() {
	if l.peers.leave() && !l.redis.Server(l.names.Peers()).Breaker.Refuses() {
		l.redis.Last(&redislink.Op{ID: l.names.Peers(), Command: &lua.Beat{Key: l.names.Peers(), ID: l.peers.id}})
	}
}

// currentShare is the part of the limit that this process may use on its own.
func (l *link) currentShare() float64 {
	if l.share > 0 {
		return l.share
	}
	return 1 / float64(l.peers.alive.Load())
}
