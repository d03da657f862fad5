package discovery

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/redislink"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/retry"
)

const (
	// refresh is how often Redis is asked what others have learnt of a key that is in use.
	refresh = time.Second
	// first is the same for a key of which nothing is known: callers wait for what others learn.
	first = refresh / 10
)

// Shelf keeps for a fleet what is learnt.
type Shelf interface {
	Load(ctx context.Context, key string) ([]lua.LearntQuota, error)
	Save(ctx context.Context, key string, all []lua.LearntQuota, life time.Duration) error
	// Processes is how many are alive, this one included.
	Processes() int
	Close()
}

// redisShelf is a Shelf in Redis.
type redisShelf struct {
	link *redislink.Link
	lim  *limiter.Limiter // which has the heartbeat
}

func (s *redisShelf) Load(ctx context.Context, key string) ([]lua.LearntQuota, error) {
	id := lua.EncodeID(key)
	cmd := &lua.Learnt{Key: s.link.Names.Learnt(id)}
	err := s.link.Exec(ctx, id, cmd)
	return cmd.Out, err
}

func (s *redisShelf) Save(ctx context.Context, key string, all []lua.LearntQuota, life time.Duration) error {
	id := lua.EncodeID(key)
	return s.link.Exec(ctx, id, &lua.Learnt{Key: s.link.Names.Learnt(id), Life: life.Milliseconds(), Quotas: all})
}

func (s *redisShelf) Processes() int { return s.lim.Health().Processes }

func (s *redisShelf) Close() { s.link.Close(func() {}) }

// load asks Redis what others have learnt, once in a while. While nothing is known, all wait for its answer.
func (e *entry) load(ctx context.Context, s Shelf, key string) {
	if s == nil {
		return
	}
	now, often := time.Now(), refresh
	e.mu.Lock()
	unknown := len(e.quotas) == 0 && !e.answered
	if unknown {
		often = first
	}
	due := e.loading == nil && now.Sub(e.loaded) >= often
	if due {
		loading := make(chan struct{})
		e.loaded, e.loading = now, loading
		go func() { // also for those who wait when this caller leaves
			defer close(loading)
			e.ask(context.WithoutCancel(ctx), s, key, loading)
		}()
	}
	loading := e.loading
	e.mu.Unlock()
	if loading == nil || !due && !unknown {
		return
	}
	select {
	case <-loading:
	case <-ctx.Done():
	}
}

// ask asks Redis now.
func (e *entry) ask(ctx context.Context, s Shelf, key string, loading chan struct{}) {
	all, err := s.Load(ctx, key)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.loading != loading {
		return // more has become known here meanwhile
	}
	if e.loading = nil; err != nil {
		return
	}
	if len(all) == 0 {
		e.saved = time.Time{} // Redis has lost it: the next response saves it
		return
	}
	changed, later := e.adopt(all, time.Now())
	if changed {
		e.changed, e.saved = time.Now(), time.Now()
	}
	if later {
		e.saved = time.Time{} // the next response saves it: the fleet sends by one limit
	}
}

// adopt takes what Redis has, and reports whether the limits are others, and whether some were cut later here. mu is held.
func (e *entry) adopt(all []lua.LearntQuota, now time.Time) (changed, later bool) {
	kept := make([]quota, 0, retry.MaxQuotas)
	for _, r := range all[:min(len(all), retry.MaxQuotas)] {
		q := quota{left: -1}
		if known := e.find(r.Name); known != nil {
			q = *known
		}
		changed = changed || q.limit != r.Limit || q.window != algo.Duration(r.Window)
		later = q.adopt(r, now) || later
		kept = append(kept, q)
	}
	e.quotas = kept
	return changed, later
}

// save tells the others.
func (e *entry) save(ctx context.Context, s Shelf, key string) {
	if s == nil {
		return
	}
	now := time.Now()
	e.mu.Lock()
	e.saved = now
	all, life := make([]lua.LearntQuota, 0, len(e.quotas)), e.life()
	for i := range e.quotas {
		all = append(all, e.quotas[i].record(now))
	}
	e.mu.Unlock()
	// When Redis is unavailable this process still keeps to it; others learn it themselves.
	_ = s.Save(ctx, key, all, life)
}

// join asks Redis about a key only after a response has said its quotas, which may say less than the fleet knows: how long
// the window is shows only in time. What a request is counted by changes with it.
func (e *entry) join(ctx context.Context, shelf Shelf, key string, uncounted []paces) {
	all, err := shelf.Load(ctx, key)
	if err != nil || len(all) == 0 {
		return
	}
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	said := e.quotas
	e.adopt(all, now)
	for _, s := range said {
		q := e.find(s.name)
		switch {
		case q != nil:
			if q.limit = s.limit; s.peaks == 0 || s.window > q.window {
				q.window, q.known = s.window, s.known
			}
		case !s.guessed && len(e.quotas) < retry.MaxQuotas:
			e.quotas = append(e.quotas, s)
		}
	}
	for i := range uncounted {
		if q := e.find(uncounted[i].name); q != nil {
			if l, ok := q.paced(now); ok {
				uncounted[i].limit = l
			}
		}
	}
	for _, s := range said { // others have that, and not this request
		if q := e.find(s.name); q != nil && s.taken > 0 {
			q.taken, q.until = s.taken, s.until
		}
	}
}
