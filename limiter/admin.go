package limiter

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
)

// Block denies key for d, whatever its limit says, in every process: what a
// server's Retry-After asks for. It never shortens a longer block, and counts by
// the clock of Redis. This process heeds it even when Redis cannot be reached; then the
// error is ErrUnavailable, and Redis is told when it is back. d must be above 0 and at
// most 366 days.
//
// The block is a part of the key's state under the limiter's algorithm: a limit of
// another algorithm on the same key is not blocked. An option names the limit whose
// algorithm is meant. While it lasts, nothing remains of the key.
func (l *Limiter) Block(ctx context.Context, key string, d time.Duration, opts ...CallOption) error {
	us, err := blockTime(d)
	if err != nil {
		return err
	}
	s, err := l.forCall(ctx, opts)
	if err != nil {
		return err
	}
	if err := l.enter(ctx, s, key, 0); err != nil {
		return err
	}
	return l.eachPart(s, key, func(i int, key string) error {
		args := s.args
		if s.parts != nil {
			args = s.parts[i].args
		}
		l.local.Block(key, args.Params, us)
		defer l.forget(lua.EncodeID(key))
		b := &lua.Block{Keys: l.names.Keys(args.Kind, key), Params: args, Time: us}
		err := l.ask(ctx, key, b)
		if err == nil {
			l.local.Sent(args.Kind, key, b.Left)
		}
		return err
	})
}

func blockTime(d time.Duration) (int64, error) {
	us := algo.Micros(d)
	if d <= 0 || us > algo.MaxPeriod {
		return 0, &ConfigError{"block", d, "must be above 0 and at most 366 days"}
	}
	return us, nil
}

// Reset makes key as if never used: its count and its block, in Redis and in
// this process. When Redis cannot be reached the error is ErrUnavailable, and
// only this process has forgotten the key. An option names the limit whose
// algorithm's state is meant.
func (l *Limiter) Reset(ctx context.Context, key string, opts ...CallOption) error {
	s, err := l.forCall(ctx, opts)
	if err != nil {
		return err
	}
	if err := l.enter(ctx, s, key, 0); err != nil {
		return err
	}
	return l.eachPart(s, key, func(_ int, key string) error {
		l.local.Reset(key)
		defer l.forget(lua.EncodeID(key))
		keys := l.names.Keys(s.args.Kind, key)
		return l.ask(ctx, key, &lua.Remove{Keys: []string{keys.State()}})
	})
}

// forget drops what this process knows and holds of a key.
func (l *Limiter) forget(id string) {
	l.denials.Forget(id)
	if l.leases != nil {
		l.leases.drop(id)
	}
}

// blockedHere denies what this process has blocked and could not tell Redis.
func (l *Limiter) blockedHere(r *request) (algo.Decision, bool) {
	if l.local.Unsent(r.s.args.Kind, r.key) == 0 {
		return algo.Decision{}, false
	}
	if !r.sh.Breaker.Refuses() {
		l.sendSoon(l.reconcile)
	}
	d := l.local.Peek(r.key, r.s.local(l.currentShare()), int64(r.n))
	return d, !d.Allowed
}
