package redislink

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/lua"
)

const (
	// returnEvery is how often a process that is back asks for the others, and returnAfter
	// how long after the last one of them all return: each has learnt of it by then.
	returnEvery = 100 * time.Millisecond
	returnAfter = 2 * returnEvery
	// returnGrace is what is added to the longest time between two probes.
	returnGrace = time.Second
)

// Unavailable reports that decisions are not to be made by the server now: its breaker rejects
// calls, or it answers again and other processes do not know that yet.
func (s *Server) Unavailable() bool {
	return s.Breaker.Rejects() || s.Away()
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
	switch {
	case l.settle == nil:
	case ch.To == breaker.Open:
		srv.lost.Store(int64(l.Now()))
		srv.away.Store(l.counted(srv) > 1)
	case ch.To == breaker.Closed && srv.away.Load():
		l.Background.Start(func(ctx context.Context) { l.comeBack(ctx, srv) })
	}
}

// comeBack waits until all processes of the fleet have sent a heartbeat after this one saw
// Redis fail last, and lets decisions be made by the server again. All processes end that
// at the same time, as their heartbeats say when the first and the last of them was back. It
// ends at the latest when those that ask for decisions must have probed.
func (l *Link) comeBack(ctx context.Context, srv *Server) {
	need, end, lost := l.counted(srv), l.Now()+l.patience, srv.lost.Load()
	l.fleet.join()
	for wait := time.Duration(0); ; wait = min(returnEvery, end-l.Now()) {
		if !pause(ctx, wait) || srv.lost.Load() != lost {
			return // it is lost again; the next probe that succeeds begins again
		}
		b := lua.Beat{Key: l.peersOn(srv), ID: l.fleet.id, Life: beatLife.Microseconds()}
		b.Since = (l.Now() - time.Duration(lost)).Microseconds()
		if b.Key != "" && l.Exec(ctx, b.Key, &b) == nil {
			end = min(end, l.Now()+l.patience-micros(b.Oldest))
			if b.Fresh >= need {
				end = min(end, l.Now()+returnAfter-micros(b.Newest))
			}
		}
		if l.Now() >= end {
			break
		}
	}
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
