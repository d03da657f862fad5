package redislink

import (
	"context"
	"math"
	"time"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/lua"
)

const (
	// returnEvery is how often a process that is back asks for the others. All return two such
	// times after the last one of them: each has learnt of it by then.
	returnEvery = 100 * time.Millisecond
	// returnGrace is what is added to the longest time between two probes.
	returnGrace = time.Second
	// awayEvery is how often a fleet that lost Redis says so together, as soon as it can; a process
	// does at least every longestAway, and not more often than every shortestAway.
	awayEvery    = 50 * time.Millisecond
	shortestAway = 250 * time.Millisecond
	longestAway  = 5 * time.Second
)

// Unavailable reports that decisions are not to be made by the server now: its breaker rejects
// calls, or it answers again and other processes do not know that yet.
func (s *Server) Unavailable() bool {
	return s.Breaker.Rejects() || s.Away()
}

func (s *Server) isBack() {
	now := time.Now()
	s.back.Store(&now)
}

// AwayAgo is how many µs ago decisions were not made by the server last, the largest number where they always were.
func (s *Server) AwayAgo() int64 {
	switch back := s.back.Load(); {
	case back == nil:
		return math.MaxInt64
	case back.IsZero(), s.away.Load():
		return 0
	default:
		return time.Since(*back).Microseconds()
	}
}

// Away reports that the server answers, and that decisions are not to be made by it yet.
func (s *Server) Away() bool { return s.away.Load() && s.Breaker.State() == breaker.Closed }

// OnReturn sets what is called as soon as decisions are made by the server again after an outage,
// and lets the processes of a fleet return to it together: until then each decides as in the
// outage. Without it, and where the share is fixed, each returns when its breaker closes. It must
// be called before the link is used.
func (l *Link) OnReturn(settle func(context.Context)) {
	if l.share == 0 {
		l.settle = settle
	}
}

// changed takes note of a breaker's state. Each probe, and so each heartbeat of one that may
// still be away, comes within the patience after the last change.
func (l *Link) changed(srv *Server, ch breaker.Change) {
	l.fleet.doubt(l.patience)
	if ch.To == breaker.Closed {
		srv.isBack()
		l.fleet.turn.Later(l.Now() + l.fleet.spread())
	}
	if ch.To == breaker.Open {
		srv.back.Store(new(time.Time))
	}
	switch {
	case l.settle == nil:
	case ch.To == breaker.Open:
		srv.lost.Store(int64(l.Now()))
		srv.away.Store(l.counted(srv) > 1)
	case ch.To == breaker.Closed && srv.away.Load():
		lost := srv.lost.Load()
		l.Background.Start(func(ctx context.Context) { l.comeBack(ctx, srv, lost, l.patience) })
	}
}

// BeatAway says in the background that this process decides without a server, if that is due: so those
// that did not see the outage, because they are idle or new, learn of it before a probe succeeds. It
// is called where srv cannot be asked, and says nothing to its breaker.
func (l *Link) BeatAway(srv *Server) {
	if l.settle == nil || !srv.away.Load() || srv.Answers() {
		return
	}
	every := l.fleet.pace(min(max(shortestAway, awayEvery*time.Duration(l.fleet.size())), longestAway), beatsPerSecond)
	if !srv.awayTurn.Due(l.Now(), every) || !srv.beatsAway.CompareAndSwap(false, true) {
		return
	}
	l.Background.Start(func(ctx context.Context) { l.beatAway(ctx, srv) })
}

func (l *Link) beatAway(ctx context.Context, srv *Server) {
	defer srv.beatsAway.Store(false)
	ctx, cancel := context.WithTimeout(ctx, l.Budget)
	defer cancel()
	b, errs := l.heartbeat(l.peersOn(srv)), make([]error, 1)
	if b.Since = -1; b.Key != "" {
		if l.wire.do(ctx, &srv.queue.clock, []lua.Command{&b}, errs); errs[0] == nil {
			l.fleet.count(l.beatsOf(srv), b.Alive, time.Now())
		}
	}
}

// followBack makes a process that was not in touch with a server for a while, or never, return
// with those who saw an outage of it, if its heartbeat says that there are some. It asks a few times
// at first: they need a moment to say so.
func (l *Link) followBack(ctx context.Context, srv *Server, b *lua.Beat, turn *Every) {
	now, lost := l.Now(), srv.lost.Load()
	heard := time.Duration(srv.heard.Swap(int64(now)))
	if l.settle == nil || srv.away.Load() || !srv.Answers() {
		return
	}
	if heard == 0 || now-heard > 2*l.fleet.every() { // it may have been idle in an outage
		srv.unaware.Store(int64(now + l.patience))
	}
	left := time.Duration(srv.unaware.Load()) - now
	if left <= 0 {
		return
	}
	if b.Fresh < 2 { // this one, as there are others
		if left > l.patience-beatEvery {
			turn.Soon(now + l.fleet.wait(beatAgain))
		}
		return
	}
	all := now - l.patience // none of them is back for longer
	if srv.lost.CompareAndSwap(lost, int64(all)) {
		srv.away.Store(true)
		l.comeBack(ctx, srv, int64(all), 0)
	}
}

// comeBack waits until all processes of the fleet sent a heartbeat after this one saw Redis fail
// last, and lets decisions be made by the server again: they are back, too, or have used Redis
// all the time. All processes end that at the same time, as the answers say when the first and the
// last of them was back. It ends at the latest when those that ask for decisions must have probed.
// The set of those who are back lasts for patience from now on; with 0 it ends when there is none.
func (l *Link) comeBack(ctx context.Context, srv *Server, lost int64, patience time.Duration) {
	need, end := l.counted(srv), l.Now()+l.patience
	l.fleet.join()
	for wait := time.Duration(0); ; wait = min(l.fleet.pace(returnEvery, returnsPerSecond), end-l.Now()) {
		if !pause(ctx, wait) || srv.lost.Load() != lost {
			return // it is lost again; the next probe that succeeds begins again
		}
		if l.Now() >= end { // all of a large fleet ask no more at that moment
			break
		}
		b := l.heartbeat(l.peersOn(srv))
		b.Since, b.Patience = (l.Now() - time.Duration(lost)).Microseconds(), patience.Microseconds()
		if b.Key != "" && l.Exec(ctx, b.Key, &b) == nil {
			srv.heard.Store(int64(l.Now()))
			l.fleet.count(l.beatsOf(srv), b.Alive, time.Now()) // some may be new
			if b.Fresh == 0 {
				break
			}
			need = max(need, b.Alive)
			end = min(end, l.Now()+l.patience-micros(b.Oldest))
			if b.Fresh >= need {
				end = min(end, l.Now()+2*l.fleet.pace(returnEvery, returnsPerSecond)-micros(b.Newest))
			}
		}
	}
	l.fleet.turn.Later(l.Now() + l.fleet.spread())
	srv.unaware.Store(0)
	srv.isBack() // before decisions are made by it
	srv.away.Store(false)
	l.settle(ctx)
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// pause waits, and reports whether ctx has not ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(max(0, d))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
