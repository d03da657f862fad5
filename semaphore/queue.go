package semaphore

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/random"
	"github.com/holdfast-go/holdfast/internal/redislink"
	"github.com/holdfast-go/holdfast/limiter"
)

const (
	// defaultPatience is how long Redis keeps the place of a caller that does not ask.
	defaultPatience = 2 * time.Second
	// Between these a process asks again for those who wait, the later the more are
	// ahead of them.
	pollLeast = 10 * time.Millisecond
	pollMost  = 200 * time.Millisecond
	pollEach  = 5 * time.Millisecond
	// callersPerCall is how many of those who wait are asked for in one call.
	callersPerCall = 64
)

// first reports whether nobody of this process waits before a caller of that rank.
func (s *Semaphore) first(k *key, rank int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r := 0; r <= rank; r++ {
		if len(k.waiting[r]) > 0 {
			return false
		}
	}
	return true
}

// queue lets w wait, and starts the poller that asks for it.
func (s *Semaphore) queue(k *key, w *waiter, rank int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k.waiting[rank] = append(k.waiting[rank], w)
	if k.polling {
		return
	}
	k.polling = s.redis.Background.Start(func(ctx context.Context) { s.poll(ctx, k) })
	if !k.polling {
		w.err = limiter.ErrClosed
		close(w.done)
	}
}

// unqueue takes a waiter out that has left. A permit that it got at the same moment is
// released.
func (s *Semaphore) unqueue(k *key, w *waiter, rank int) {
	s.mu.Lock()
	k.waiting[rank] = slices.DeleteFunc(k.waiting[rank], func(other *waiter) bool { return other == w })
	select {
	case <-w.done:
		s.mu.Unlock()
		if w.permit != nil && w.permit.Allowed {
			_ = w.permit.Release()
		}
		return
	default:
	}
	// Its place would hold others up until Redis drops it. The poller takes it out, after
	// a call that may be on its way with it.
	k.left = append(k.left, w.caller)
	s.mu.Unlock()
	k.pollNow()
}

// poll asks for those who wait, until there are none.
func (s *Semaphore) poll(ctx context.Context, k *key) {
	timer := time.NewTimer(pollLeast)
	defer timer.Stop()
	for {
		ahead, more := s.round(ctx, k)
		if !more {
			return
		}
		pause := min(pollMost, pollLeast+time.Duration(ahead)*pollEach)
		timer.Reset(pause*3/4 + random.Below(pause/2))
		select {
		case <-timer.C:
		case <-k.wake:
		case <-ctx.Done():
		}
	}
}

// round asks once for the first of those who wait, the critical ones for
// themselves. It reports how many are ahead, and whether anybody still waits.
func (s *Semaphore) round(ctx context.Context, k *key) (ahead int64, more bool) {
	ahead = -1
	s.mu.Lock()
	left := k.left
	k.left = nil
	s.mu.Unlock()
	for some := range slices.Chunk(left, permitsPerBeat) {
		s.forget(ctx, k, some...)
	}
	for rank := range k.waiting {
		s.mu.Lock()
		batch := slices.Clone(k.waiting[rank][:min(callersPerCall, len(k.waiting[rank]))])
		s.mu.Unlock()
		if len(batch) == 0 {
			continue
		}
		if n := s.askFor(ctx, k, batch, rank == 0); ahead < 0 || n < ahead {
			ahead = n
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(k.waiting[0])+len(k.waiting[1])+len(k.left) > 0 && ctx.Err() == nil {
		return max(0, ahead), true
	}
	k.polling = false
	s.dropUnused(k)
	return 0, false
}

// askFor asks for a batch of waiters and gives them what there is.
func (s *Semaphore) askFor(ctx context.Context, k *key, batch []*waiter, critical bool) (ahead int64) {
	callers := make([]string, len(batch))
	again := false
	for i, w := range batch {
		callers[i] = w.caller
		again = again || w.asked
	}
	reply, _, err := s.askRedis(ctx, k, callers, critical, again, true)
	for i, w := range batch {
		w.asked = true
		switch {
		case err == nil && reply.Granted[i]:
			s.settle(k, w, func() { w.permit = s.hold(k, w.caller, s.permits-int(reply.Held), limiter.SourceRedis) })
		case redislink.FallsBack(err):
			permit, err := s.fallBack(k, w.caller, critical, err)
			if err != nil {
				s.fail(k, w, err)
			} else if permit.Allowed {
				s.settle(k, w, func() { w.permit = permit })
			}
		case err != nil && ctx.Err() == nil:
			s.fail(k, w, s.callerError(ctx, k.name, err))
		}
	}
	return reply.Ahead
}

// fail ends the wait of w with an error, and its place.
func (s *Semaphore) fail(k *key, w *waiter, err error) {
	s.settle(k, w, func() {
		w.err = err
		k.left = append(k.left, w.caller)
	})
}

// settle ends the wait of w. The permit of one that has left meanwhile is released.
func (s *Semaphore) settle(k *key, w *waiter, settle func()) {
	s.mu.Lock()
	settle()
	here := false
	for r := range k.waiting {
		k.waiting[r] = slices.DeleteFunc(k.waiting[r], func(other *waiter) bool {
			here = here || other == w
			return other == w
		})
	}
	close(w.done)
	s.mu.Unlock()
	if !here && w.permit != nil {
		_ = w.permit.Release()
	}
}
