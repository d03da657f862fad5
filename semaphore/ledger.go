package semaphore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/redislink"
	"github.com/holdfast-go/holdfast/internal/repeat"
	"github.com/holdfast-go/holdfast/limiter"
)

// retryAtMost is the longest RetryAfter of a denial: a permit may be
// released at any time.
const retryAtMost = time.Second

// ledger has the permits that this process holds, and asks Redis for more and for less of
// them. A heartbeat extends what is held.
type ledger struct {
	redis    *redislink.Link
	policy   fallback.Policy
	permits  int
	headroom float64 // the part for critical callers
	ttl      time.Duration
	suffix   string        // of the names of callers: their ttl in µs
	patience time.Duration // defaultPatience, but in tests

	beats repeat.Task // while permits are held
	mu    sync.Mutex
	keys  map[string]*key
	held  int
}

// enter returns what is known of a key, which stays until leave. permits is the number that its caller may have; 0 says that
// it asks for none, and leaves the number of those who do.
func (l *ledger) enter(name string, permits int) *key {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.keys[name]
	if k == nil {
		id := lua.EncodeID(name)
		k = &key{name: name, id: id, inRedis: l.redis.Names.Permits(id), srv: l.redis.Server(id)}
		l.keys[name] = k
	}
	k.pending++
	if permits > 0 || k.permits() == 0 {
		k.most.Store(int64(cmp.Or(permits, l.permits)))
	}
	return k
}

func (l *ledger) leave(k *key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k.pending--
	l.dropUnused(k)
}

// dropUnused drops a key that is not used. mu is held.
func (l *ledger) dropUnused(k *key) {
	if k.pending == 0 && len(k.holding) == 0 && !k.polling {
		delete(l.keys, k.name)
	}
}

// question is what asks for several callers.
func (l *ledger) question(k *key, callers []string, critical, again, wait bool) lua.PermitAsk {
	n, keep := k.permits(), 0
	if !critical {
		keep = min(keptOf(n, l.headroom), n-1)
	}
	return lua.PermitAsk{
		ID: k.id, Key: k.inRedis, Most: int64(n), Keep: int64(keep),
		TTL: l.ttl.Microseconds(), Patience: l.patience.Microseconds(),
		Wait: wait, Critical: critical, Again: again, Callers: callers,
	}
}

// askRedis asks, and calls ended, if it is set, when the call is over: also one that the caller has left.
func (l *ledger) askRedis(ctx context.Context, k *key, ask *lua.PermitAsk, ended func(*redislink.Op, bool)) (reply lua.PermitReply, err error) {
	o := l.redis.NewOp()
	o.ID, o.Permits, o.After = k.id, ask, ended
	defer l.redis.Free(o)
	if err := l.redis.Ask(ctx, k.srv, o, l.redis.Budget); err != nil {
		return reply, err
	}
	l.redis.Beat(k.srv)
	return o.Got, nil
}

// forget takes callers out of all that Redis keeps of the key.
func (l *ledger) forget(ctx context.Context, k *key, callers ...string) {
	_ = l.redis.Exec(ctx, k.id, lua.LeavePermits(k.inRedis, callers...))
}

// takeBack takes a caller out of Redis that does not know what its call was answered.
func (l *ledger) takeBack(k *key, w *waiter, err error) {
	if !redislink.NeverExecuted(err) {
		l.note(k, w, unwanted)
	}
}

// note notes what came of the first call of a caller, each once. One that has ended and is unwanted is taken back: before,
// Redis could execute it later.
func (l *ledger) note(k *key, w *waiter, what uint32) {
	if w.first.Or(what)|what == ended|unwanted {
		l.redis.Background.Start(func(ctx context.Context) { l.forget(ctx, k, w.caller()) })
	}
}

// fallBack decides without Redis.
func (l *ledger) fallBack(k *key, caller string, critical bool, cause error) (*Permit, error) {
	switch l.policy {
	case fallback.Open:
		return l.count(k, limiter.Result{Allowed: true, Remaining: k.permits(), Source: limiter.SourceOpen}), nil
	case fallback.Closed:
		return l.denied(k, 0, limiter.SourceClosed), fmt.Errorf("%w: %w", limiter.ErrUnavailable, cause)
	}
	permits, keep := l.part(k, l.redis.UseShare())
	if critical {
		keep = 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	room := permits - len(k.holding)
	if room <= keep {
		return l.denied(k, 0, limiter.SourceLocal), nil
	}
	return l.hold(k, caller, room-1, limiter.SourceLocal), nil
}

// part is what a share leaves of the permits of a key, and of those kept for critical callers.
func (l *ledger) part(k *key, share float64) (permits, keep int) {
	n := max(1, int(float64(k.permits())*share+1e-9))
	return n, min(keptOf(n, l.headroom), n-1)
}

// keptOf is the part f of n, rounded up, except for what floating point adds.
func keptOf(n int, f float64) int { return int(math.Ceil(float64(n)*f*(1-1e-12) - 1e-9)) }

// denied is a permit that was denied. nextEnd is when the next one ends, in µs; 0 is not
// known.
func (l *ledger) denied(k *key, nextEnd int64, from limiter.Source) *Permit {
	nextEnd = min(cmp.Or(nextEnd, math.MaxInt64), retryAtMost.Microseconds())
	return l.count(k, limiter.Result{RetryAfter: max(time.Duration(nextEnd)*time.Microsecond, time.Millisecond), Source: from})
}

// count counts a decision.
func (l *ledger) count(k *key, res limiter.Result) *Permit {
	k.srv.Counts[res.Source].Add(1)
	return &Permit{Result: res}
}

// grant makes the permit that Redis granted to a caller, who may have asked before.
func (l *ledger) grant(k *key, caller string, remaining int, again bool) *Permit {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.hold(k, caller, remaining, limiter.SourceRedis)
	p.leave.Queued = again
	return p
}

// hold makes the permit of a caller. mu is held.
func (l *ledger) hold(k *key, caller string, remaining int, from limiter.Source) *Permit {
	p := l.count(k, limiter.Result{Allowed: true, Remaining: max(0, remaining), Source: from})
	p.free = func() { l.release(k, p) }
	p.leave = lua.Leaver{ID: k.id, Key: k.inRedis, Caller: caller, Queued: from != limiter.SourceRedis}
	p.known.Store(!p.leave.Queued)
	k.hold(p)
	l.held++
	l.beats.Begin()
	return p
}

// release frees a permit, here and in Redis.
func (l *ledger) release(k *key, p *Permit) {
	l.mu.Lock()
	k.drop(p)
	l.held--
	l.dropUnused(k)
	l.mu.Unlock()
	o := l.redis.NewOp()
	o.ID, o.Leave = k.id, &p.leave
	_ = l.redis.Ask(context.Background(), k.srv, o, l.redis.Budget)
	l.redis.Free(o)
	l.pollNow(k)
}

// pollNow lets the poller of a key ask at once.
func (l *ledger) pollNow(k *key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wakeUp(k)
}

// wakeUp is pollNow. mu is held.
func (l *ledger) wakeUp(k *key) {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

const (
	// beatsPerTTL is how many heartbeats there are in a permit's time to live.
	beatsPerTTL = 3
	// permitsPerBeat bounds the permits of one key in a request, and keysPerBeat the
	// requests that are made at a time.
	permitsPerBeat = 1000
	keysPerBeat    = 64
)

// heartbeat extends what is held, if there is something.
func (l *ledger) heartbeat(ctx context.Context) (more bool) {
	l.extendAll(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held > 0
}

// beat is the permits of one key in a heartbeat.
type beat struct {
	k       *key
	permits []*Permit
}

// extendAll extends all permits of this process, also those that it granted without Redis: those that it
// granted itself count in Redis from then on.
func (l *ledger) extendAll(ctx context.Context) {
	var all []beat
	l.mu.Lock()
	// In an order that is the same in each run.
	for _, name := range slices.Sorted(maps.Keys(l.keys)) {
		k := l.keys[name]
		permits := slices.SortedFunc(slices.Values(k.holding), func(a, b *Permit) int { return strings.Compare(a.leave.Caller, b.leave.Caller) })
		for part := range slices.Chunk(permits, permitsPerBeat) {
			all = append(all, beat{k, part})
		}
	}
	l.mu.Unlock()
	for some := range slices.Chunk(all, keysPerBeat) {
		l.extend(ctx, some)
	}
}

// extend extends the permits of some keys.
func (l *ledger) extend(ctx context.Context, beats []beat) {
	ops := make([]*redislink.Op, len(beats))
	for i, b := range beats {
		of := &lua.Holders{ID: b.k.id, Key: b.k.inRedis}
		for _, p := range b.permits {
			of.Callers = append(of.Callers, p.leave.Caller)
		}
		ops[i] = &redislink.Op{ID: b.k.id, Keep: of, TTL: l.ttl.Microseconds()}
	}
	errs := l.redis.AskAll(ctx, ops)
	for i, b := range beats {
		var gone []string
		for n, p := range b.permits {
			if p.released.Load() {
				gone = append(gone, p.leave.Caller) // meanwhile: the heartbeat has brought it back
			} else if errs[i] == nil && p.known.Swap(true) && ops[i].Lost[n] {
				p.lose()
			}
		}
		if len(gone) > 0 {
			l.forget(ctx, b.k, gone...)
		}
	}
}
