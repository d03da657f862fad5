package redislink

import (
	"crypto/rand"
	"encoding/hex"
	"sync"
	"sync/atomic"
	"time"
)

// The heartbeat by which the processes of a prefix count each other. A process
// that sends no heartbeat for beatLife is not counted.
const (
	beatEvery = 2 * time.Second
	beatLife  = 3 * beatEvery
	// beatAgain is when to ask again after the number has changed: processes
	// that start together each see only those before them.
	beatAgain = 250 * time.Millisecond
	// fewerAfter is for how long fewer processes must be counted before the
	// lower number is used: a Redis that lost its state knows each of them only
	// when it has sent its next heartbeat.
	fewerAfter = beatEvery + time.Second
)

// processID names this process among all that share a prefix.
var processID = func() string {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}()

// present counts the links of this program by prefix and process id: the last one that
// closes deregisters the process.
var present = struct {
	sync.Mutex
	links map[[2]string]int
}{links: map[[2]string]int{}}

// fleet knows how many processes are alive. It asks Redis while there is traffic, off the
// caller's path, and keeps the last answer through an outage.
type fleet struct {
	prefix, id string
	turn       Every
	alive      atomic.Int64
	joined     atomic.Bool

	mu    sync.Mutex
	heard bool
	fewer int64     // the most counted since there were fewer than alive
	since time.Time // when that began; zero while there are not fewer
}

func newFleet(prefix, id string) *fleet {
	if id == "" {
		id = processID
	}
	f := &fleet{prefix: prefix, id: id}
	f.alive.Store(1)
	return f
}

// join counts this link in, at its first heartbeat.
func (f *fleet) join() {
	if f.joined.Swap(true) {
		return
	}
	present.Lock()
	defer present.Unlock()
	present.links[[2]string{f.prefix, f.id}]++
}

// leave reports whether this link was the last one of its process.
func (f *fleet) leave() (last bool) {
	if !f.joined.Swap(false) {
		return false
	}
	present.Lock()
	defer present.Unlock()
	k := [2]string{f.prefix, f.id}
	present.links[k]--
	if present.links[k] > 0 {
		return false
	}
	delete(present.links, k)
	return true
}

// count notes that n are alive, and reports whether to ask again soon.
func (f *fleet) count(n int64, now time.Time) (again bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	first, alive := !f.heard, f.alive.Load()
	f.heard = true
	if n >= alive {
		f.since = time.Time{}
		f.alive.Store(n)
		return first || n > alive
	}
	if f.since.IsZero() {
		f.since, f.fewer = now, n
		return true
	}
	f.fewer = max(f.fewer, n)
	if now.Sub(f.since) < fewerAfter {
		return false
	}
	f.since = time.Time{}
	f.alive.Store(f.fewer)
	return true
}
