package semaphore

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/configerr"
	"github.com/holdfast-go/holdfast/internal/critical"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/options"
	"github.com/holdfast-go/holdfast/internal/random"
	"github.com/holdfast-go/holdfast/internal/redislink"
	"github.com/holdfast-go/holdfast/internal/repeat"
	"github.com/holdfast-go/holdfast/limiter"
)

// Semaphore bounds how many of something are in flight at once, per key, over
// all processes that use the same Redis and prefix. It is safe for concurrent use. Make
// one with New; the zero value is not usable.
//
// Redis keeps a permit for a time to live (WithTTL), and a heartbeat extends it
// while it is held. A process that dies frees its permits by that; one that cannot
// reach Redis for so long, or stands still, may lose one: see Permit.Lost. While
// Redis answers within the budget, and no permit is lost, there are never more than n.
//
// While Redis cannot decide, each process has its share of n, at least 1, and
// what it holds already counts. With shares that add up to 1 there are then at most
// n in flight, and in addition what processes held beyond their share when Redis
// became unavailable, so less than 2·n. A Redis that lost its state knows all permits
// again after a third of the time to live; until then it may grant up to n more.
type Semaphore struct {
	ledger   *ledger
	redis    *redislink.Link
	decision func(context.Context, limiter.DecisionInfo) // nil without a hook
	of       func(context.Context, string) int           // nil without WithPermitsFor
}

// Acquirer is what middlewares ask for: a *Semaphore, or one of your own.
// Implementations must be safe for concurrent use.
type Acquirer interface {
	TryAcquire(ctx context.Context, key string) (*Permit, error)
}

var _ Acquirer = (*Semaphore)(nil)

// New returns a semaphore of n permits for each key, 1 to 2^31-1. It does not talk to
// Redis, so it succeeds at once when Redis is down. Any client of go-redis will do; it
// stays the caller's, who closes it after the semaphore. The error
// matches limiter.ErrInvalidConfig.
func New(rdb redis.UniversalClient, n int, opts ...Option) (*Semaphore, error) {
	s, err := newSemaphore(rdb, n, opts)
	return s, configerr.In("semaphore", err)
}

func newSemaphore(rdb redis.UniversalClient, n int, opts []Option) (*Semaphore, error) {
	c := config{TTL: DefaultTTL}
	if err := options.Apply(&c, opts); err != nil {
		return nil, err
	}
	if err := check(n); err != nil {
		return nil, err
	}
	if keptOf(n, c.Headroom) >= n {
		return nil, configerr.New("critical headroom", c.Headroom, "leaves no permit of %d to calls that are not critical", n)
	}
	c.Link.Client = rdb
	link, err := redislink.New(c.Link)
	if err != nil {
		return nil, err
	}
	s := &Semaphore{redis: link, decision: c.Decision, of: c.PermitsFor, ledger: &ledger{
		redis: link, policy: c.Link.Policy,
		permits: n, headroom: c.Headroom, ttl: c.TTL, suffix: fmt.Sprintf("/%d", c.TTL.Microseconds()), patience: defaultPatience, keys: make(map[string]*key),
	}}
	s.ledger.beats = repeat.Task{Every: c.TTL / beatsPerTTL, Start: link.Background.Start, Run: s.ledger.heartbeat}
	if err := link.Claim("permits", fmt.Sprintf("%d permits", n)); err != nil {
		return nil, err
	}
	return s, nil
}

// Permits returns how many may be in flight for a key without a number of its own.
func (s *Semaphore) Permits() int { return s.ledger.permits }

// TryAcquire takes a permit if there is one, and no caller waits for it. One that is not
// Allowed needs no Release.
//
// The error is limiter.ErrInvalidKey, limiter.ErrInvalidConfig (a number of WithPermitsFor),
// limiter.ErrClosed, limiter.ErrState, the context's
// own error, or, only under the policy fallback.Closed, limiter.ErrUnavailable.
func (s *Semaphore) TryAcquire(ctx context.Context, key string) (*Permit, error) {
	return s.report(ctx, key, false)
}

// Acquire waits for a permit. Those who wait get theirs in the order in which they
// came, over all processes, critical ones before others. Processes ask again every
// 10 to 200 ms, the later the more are ahead of them, and at once when one of their
// own permits is released; in a process only the first ones ask. A process that stands
// still loses its places after 2 s.
//
// The error is the context's own when it ends before Redis gives a permit, or one of TryAcquire.
func (s *Semaphore) Acquire(ctx context.Context, key string) (*Permit, error) {
	return s.report(ctx, key, true)
}

// report acquires a permit and calls the hook.
func (s *Semaphore) report(ctx context.Context, key string, wait bool) (*Permit, error) {
	if s.decision == nil {
		return s.acquire(ctx, key, wait)
	}
	start := time.Now()
	permit, err := s.acquire(ctx, key, wait)
	info := limiter.DecisionInfo{Key: key, Cost: 1, Err: err, Took: time.Since(start)}
	if permit != nil {
		info.Result = permit.Result
	}
	returned := false
	defer func() {
		if !returned && permit != nil { // it panics: the permit is not the caller's, and would be held without end
			_ = permit.Release()
		}
	}()
	s.decision(ctx, info)
	returned = true
	return permit, err
}

// acquire asks once or, to wait, stands in the queue until there is a permit.
func (s *Semaphore) acquire(ctx context.Context, key string, wait bool) (*Permit, error) {
	k, err := s.enter(ctx, key)
	if err != nil {
		return nil, err
	}
	defer s.ledger.leave(k)
	// Its name is that of no other caller, with the time to live of its permit.
	w, rank := &waiter{}, 1
	w.name[0] = s.redis.Nonce(s.ledger.suffix)
	if critical.Is(ctx) {
		rank = 0
	}
	if !wait || s.first(k, rank) {
		permit, err := s.ask(ctx, k, w, wait)
		if !wait || err != nil || permit.Allowed {
			return permit, err
		}
		w.asked = permit.Source != limiter.SourceRedis // which may still have granted one
	}
	w.done = make(chan struct{})
	s.queue(k, w, rank)
	select {
	case <-w.done:
		return w.permit, w.err
	case <-ctx.Done():
		err = ctx.Err()
	case <-s.redis.Life().Done():
		err = limiter.ErrClosed
	}
	s.unqueue(k, w, rank)
	return nil, err
}

// InFlight returns how many permits of key are held. While Redis cannot be asked
// those of this process are, with limiter.ErrUnavailable. Of permits that other processes
// acquired while Redis could not decide it knows when their next heartbeat has reached Redis.
func (s *Semaphore) InFlight(ctx context.Context, key string) (int, error) {
	if err := s.usable(ctx, key); err != nil {
		return 0, err
	}
	k := s.ledger.enter(key, 0)
	defer s.ledger.leave(k)
	ask := s.ledger.question(k, nil, true, false, false)
	reply, err := s.ledger.askRedis(ctx, k, &ask, nil)
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	if err != nil {
		return len(k.holding), redislink.CallerError(ctx, key, err)
	}
	return max(int(reply.Held), len(k.holding)), nil // a Redis that does not write knows no newer ones
}

// Health reports without asking Redis. Decisions are those on callers who acquired a
// permit or were denied one.
func (s *Semaphore) Health() limiter.Health {
	servers, decisions := redislink.Health[limiter.Source](s.redis)
	h := limiter.Health{Share: s.redis.Share(), ShareOrigin: s.redis.ShareOrigin(), Processes: s.redis.Processes(), Decisions: decisions, FunctionsError: s.redis.FunctionsError(), PeerCountError: s.redis.PeerCountError()}
	for _, srv := range servers {
		h.Servers = append(h.Servers, limiter.ServerHealth(srv))
	}
	return h
}

// Close fails later calls, and those that wait, with limiter.ErrClosed, and ends the
// heartbeat. Permits that are still held end with their time to live, also when they are
// released after that, so release them first; places in the queue are given up. It waits for
// calls that are on their way to Redis; the client's own timeouts bound that. The client
// stays open. Closing twice is harmless.
func (s *Semaphore) Close() error {
	places := make(map[*key][]string)
	s.ledger.beats.End()
	s.ledger.mu.Lock()
	for _, k := range s.ledger.keys {
		for _, waiting := range k.waiting {
			for _, w := range waiting {
				places[k] = append(places[k], w.caller())
			}
		}
		places[k] = append(places[k], k.left...)
	}
	s.ledger.mu.Unlock()
	s.redis.Close(func() {
		for k, callers := range places {
			if len(callers) > 0 && s.redis.Last(&redislink.Op{ID: k.id, Command: lua.LeavePermits(k.inRedis, callers...)}) != nil {
				return // Redis drops them soon
			}
		}
	})
	return nil
}

// enter returns what is known of a key, for a caller that asks for a permit, which stays until leave.
func (s *Semaphore) enter(ctx context.Context, name string) (*key, error) {
	if err := s.usable(ctx, name); err != nil {
		return nil, err
	}
	n := s.ledger.permits
	if s.of != nil {
		n = cmp.Or(s.of(ctx, name), n)
	}
	if err := check(n); err != nil {
		return nil, configerr.In("semaphore", err)
	}
	return s.ledger.enter(name, n), nil
}

// usable returns why no caller can ask about a key.
func (s *Semaphore) usable(ctx context.Context, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: key is empty", limiter.ErrInvalidKey)
	case s.redis.IsClosed():
		return limiter.ErrClosed
	}
	return ctx.Err()
}

// check returns the rule that a number of permits breaks.
func check(n int) error {
	if n < 1 || n > math.MaxInt32 {
		return configerr.New("permits", n, "must be at least 1 and below 2^31")
	}
	return nil
}

// ask asks for one caller, who gets no place in the queue: those who wait get theirs by the poller, in the order in
// which they wait in this process. A place that no caller of the batch has would be asked for by none.
func (s *Semaphore) ask(ctx context.Context, k *key, w *waiter, wait bool) (*Permit, error) {
	w.ask = s.ledger.question(k, w.name[:], critical.Is(ctx), false, false)
	reply, err := s.ledger.askRedis(ctx, k, &w.ask, func(*redislink.Op, bool) { s.ledger.note(k, w, ended) })
	switch {
	case err == nil:
		if !reply.Granted[0] {
			return s.ledger.denied(k, reply.NextEnd, limiter.SourceRedis), nil
		}
		return s.ledger.grant(k, w.caller(), k.permits()-int(reply.Held), false), nil
	case redislink.FallsBack(err):
		permit, failed := s.ledger.fallBack(k, w.caller(), critical.Is(ctx), err)
		// A caller that waits from now on gets what was granted by asking again.
		if failed != nil || permit.free == nil && (!wait || permit.Allowed) {
			s.ledger.takeBack(k, w, err)
		}
		return permit, failed
	}
	s.ledger.takeBack(k, w, err)
	return nil, redislink.CallerError(ctx, k.name, err)
}

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

// first reports whether no caller of this process waits before a caller of that rank.
func (s *Semaphore) first(k *key, rank int) bool {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	return len(k.waiting[0])+rank*len(k.waiting[1]) == 0
}

// queue lets w wait, and starts the poller that asks for it.
func (s *Semaphore) queue(k *key, w *waiter, rank int) {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	k.waiting[rank] = append(k.waiting[rank], w)
	if k.polling {
		if len(k.waiting[0])+len(k.waiting[1]) <= callersPerCall { // it gets its place now
			s.ledger.wakeUp(k)
		}
		return
	}
	if k.wake == nil {
		k.wake = make(chan struct{}, 1)
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
	s.ledger.mu.Lock()
	k.waiting[rank] = slices.DeleteFunc(k.waiting[rank], func(other *waiter) bool { return other == w })
	select {
	case <-w.done:
		s.ledger.mu.Unlock()
		if w.permit != nil && w.permit.Allowed {
			_ = w.permit.Release()
		}
		return
	default:
	}
	// Its place would hold others up until Redis drops it. The poller takes it out, after
	// a call that may be on its way with it.
	k.left = append(k.left, w.caller())
	s.ledger.mu.Unlock()
	s.ledger.pollNow(k)
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

// round asks once for the first callers of each rank. It reports how many are ahead, and
// whether any caller still waits.
func (s *Semaphore) round(ctx context.Context, k *key) (ahead int64, more bool) {
	ahead = -1
	s.ledger.mu.Lock()
	left := k.left
	k.left = nil
	s.ledger.mu.Unlock()
	for some := range slices.Chunk(left, permitsPerBeat) {
		s.ledger.forget(ctx, k, some...)
	}
	for rank := range k.waiting {
		s.ledger.mu.Lock()
		batch := slices.Clone(k.waiting[rank][:min(callersPerCall, len(k.waiting[rank]))])
		s.ledger.mu.Unlock()
		if len(batch) == 0 {
			continue
		}
		n := s.askFor(ctx, k, batch, rank == 0)
		if ahead < 0 { // the critical ones have fewer ahead than others
			ahead = n
		}
	}
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	if len(k.waiting[0])+len(k.waiting[1])+len(k.left) > 0 && ctx.Err() == nil {
		return max(0, ahead), true
	}
	k.polling = false
	s.ledger.dropUnused(k)
	return 0, false
}

// askFor asks for a batch of waiters and gives them what there is.
func (s *Semaphore) askFor(ctx context.Context, k *key, batch []*waiter, critical bool) (ahead int64) {
	callers := make([]string, len(batch))
	again := false
	for i, w := range batch {
		callers[i] = w.caller()
		again = again || w.asked
	}
	ask := s.ledger.question(k, callers, critical, again, true)
	reply, err := s.ledger.askRedis(ctx, k, &ask, nil)
	for i, w := range batch {
		before := w.asked
		w.asked = true
		switch {
		case err == nil && reply.Granted[i]:
			s.settle(k, w, s.ledger.grant(k, w.caller(), k.permits()-int(reply.Held), before), nil)
		case redislink.FallsBack(err):
			if permit, err := s.ledger.fallBack(k, w.caller(), critical, err); err != nil || permit.Allowed {
				s.settle(k, w, permit, err)
			}
		case err != nil && ctx.Err() == nil:
			s.settle(k, w, nil, redislink.CallerError(ctx, k.name, err))
		}
	}
	return reply.Ahead
}

// settle ends the wait of w with a permit, or with an error. One that is not counted ends its place in Redis, too, and
// what was granted there in a reply that was lost. The permit of one that has left meanwhile is released.
func (s *Semaphore) settle(k *key, w *waiter, permit *Permit, err error) {
	s.ledger.mu.Lock()
	if w.err = err; err == nil {
		w.permit = permit
	}
	if err != nil || permit.free == nil {
		k.left = append(k.left, w.caller())
	}
	here := false
	for r := range k.waiting {
		k.waiting[r] = slices.DeleteFunc(k.waiting[r], func(other *waiter) bool {
			here = here || other == w
			return other == w
		})
	}
	close(w.done)
	s.ledger.mu.Unlock()
	if !here && err == nil {
		_ = w.permit.Release()
	}
}
