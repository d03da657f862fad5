package discovery

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/admission"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/retry"
)

const (
	// What is learnt ages: it is forgotten after four windows without a request, and at
	// least these.
	minLife = 10 * time.Minute
	maxLife = 48 * time.Hour
	// guessWindow is that in which requests are counted where nothing is said.
	guessWindow = 10 * time.Second
)

// entry is what is known of one key.
type entry struct {
	mu       sync.Mutex
	quotas   []quota
	answered bool          // a response has come
	changed  time.Time     // when the quotas were learnt, by a response or from Redis
	loaded   time.Time     // when Redis was asked last, or more was known here than there
	loading  chan struct{} // closed once it has answered; nil where no answer counts
	saved    time.Time     // when Redis last got them, or had them
	asked    time.Time     // when a request was last sent, or the first one was denied since
	stopped  time.Time     // until when requests are denied, as far as is known

	// How many requests were sent in this guessWindow and in the one before it.
	second    time.Time
	sent, was int64
}

// asksAgain reports whether a request that is denied for long is still sent: no answer of
// a server stops a process for longer than admission.Max. It shortens what res says accordingly.
func (e *entry) asksAgain(res *limiter.Result, now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if now.After(e.stopped) {
		e.asked = now
	}
	if end := now.Add(res.RetryAfter); end.After(e.stopped) {
		e.stopped = end
	}
	left := admission.Max - now.Sub(e.asked)
	if left <= 0 && res.RetryAfter > 0 {
		e.asked, e.answered, e.quotas = now, false, nil // what it says now counts
		e.knowsMore(now.Add(calm))                      // and not what Redis has, if it says something by then
		return true
	}
	res.RetryAfter = min(res.RetryAfter, left)
	return false
}

// knowsMore is for what Redis does not have yet: what it has does not count until a refresh after a time. mu is held.
func (e *entry) knowsMore(until time.Time) { e.loaded, e.loading = until, nil }

// used reports whether what is learnt would be missed.
func (e *entry) used() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Since(e.asked) < e.life()
}

// paces is a limit, and whose it is.
type paces struct {
	name  int64
	limit limiter.Limit
	until time.Time // until when others have a part of it
	none  bool      // they have all of it
}

// paced returns the limits that are known well enough. mu is held.
func (e *entry) paced(now time.Time) (all []paces) {
	for i := range e.quotas {
		if l, ok := e.quotas[i].paced(now); ok {
			all = append(all, paces{e.quotas[i].name, l, e.quotas[i].until, e.quotas[i].none(now)})
		}
	}
	return all
}

// taken is a request of one quota.
type taken struct {
	name int64
	r    *limiter.Reservation
}

// giveBack gives back what was taken for a request that is not sent.
func (e *entry) giveBack(ctx context.Context, all []taken) {
	for _, t := range all {
		if t.r.Cancel(ctx) != nil {
			continue // then it drains
		}
		e.mu.Lock()
		if q := e.find(t.name); q != nil {
			q.left = min(q.left+1, q.limit)
		}
		e.mu.Unlock()
	}
}

// note remembers what is left of a quota.
func (e *entry) note(name int64, left int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if q := e.find(name); q != nil {
		q.note(int64(left), time.Now())
	}
}

// count counts a request. mu is held.
func (e *entry) count(now time.Time) {
	switch since := now.Sub(e.second); {
	case since >= 2*guessWindow:
		e.was, e.sent, e.second = 0, 0, now
	case since >= guessWindow:
		e.was, e.sent, e.second = e.sent, 0, now
	}
	e.sent++
	e.asked = now
	for i := range e.quotas {
		e.quotas[i].count(now)
	}
}

// uncount takes back that a request was counted, which is not sent.
func (e *entry) uncount() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sent = max(0, e.sent-1)
	for i := range e.quotas {
		e.quotas[i].uncount()
	}
}

// counts reports whether a quota paces requests whose response says that, and else whether it does if nothing is left
// of l.
func (e *entry) counts(name int64, said retry.Quota) (l limiter.Limit, paces, asks bool) {
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	q := e.find(name)
	if q == nil {
		return l, false, false
	}
	if q.paces(said, now) || q.alone || !q.logged() || q.share(now) != 1 {
		return l, q.paces(said, now), false
	}
	l, asks = q.paced(now)
	return l, false, asks
}

// find returns the quota of a name, nil without. mu is held.
func (e *entry) find(name int64) *quota {
	i := slices.IndexFunc(e.quotas, func(q quota) bool { return q.name == name })
	if i < 0 {
		return nil
	}
	return &e.quotas[i]
}

// drop forgets the quotas that responses do not name any more, such as those of another policy, or of something
// before the server that answered once. mu is held.
func (e *entry) drop(said []retry.Quota, now time.Time) (dropped bool) {
	n := len(e.quotas)
	e.quotas = slices.DeleteFunc(e.quotas, func(q quota) bool {
		return now.Sub(q.named) > unnamed*max(q.window, calm) &&
			!slices.ContainsFunc(said, func(s retry.Quota) bool { return hash(s.Name) == q.name })
	})
	return len(e.quotas) < n
}

// quota is find, which makes the quota if there is room. mu is held.
func (e *entry) quota(name int64, alone bool) *quota {
	if q := e.find(name); q != nil {
		return q
	}
	if len(e.quotas) > 0 && e.quotas[0].guessed {
		e.quotas = e.quotas[:0] // now it is said
	}
	if len(e.quotas) == retry.MaxQuotas {
		return nil
	}
	e.quotas = append(e.quotas, quota{name: name, alone: alone})
	return &e.quotas[len(e.quotas)-1]
}

// life is how long Redis keeps what is learnt. mu is held.
func (e *entry) life() time.Duration {
	life := minLife
	for i := range e.quotas {
		life = max(life, min(4*min(e.quotas[i].window, maxWindow), maxLife))
	}
	return life
}
