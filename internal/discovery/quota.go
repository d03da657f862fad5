package discovery

import (
	"hash/fnv"
	"math"
	"time"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/retry"
)

const (
	// maxLimit is the largest limit that requests are paced by.
	maxLimit = 1_000_000
	// maxWindow bounds what is taken for a window. A longer one is a mistake, or a quota that
	// waiting does not help.
	maxWindow = 31 * 24 * time.Hour
	// maxLogged is the largest limit that is counted request by request. A larger one is paced
	// by GCRA, at some 60 bytes for a key, with a burst of a twentieth of it.
	maxLogged  = 1000
	burstPart  = 20
	longWindow = 24 * time.Hour
	// Requests take some time to arrive, and not always the same: what is sent a window apart
	// may arrive within one. So ours is longer, by a twentieth and at most 250 ms.
	lagPart = 20
	maxLag  = 250 * time.Millisecond
	// A rejection although the quota was kept shows that less is allowed than was said, or
	// that others share it. The first cut is small; one soon after another halves. What was
	// cut comes back by 3 % for each window.
	firstCut = 1.15
	nextCut  = 2.0
	soon     = 4 // windows
	recovery = 0.03
	// It comes back faster, by this once a window, while the server says that more is left of
	// the limit, by a fifth of it, than of the window.
	ease       = 0.85
	unused     = 0.2
	maxStretch = 1e5
	settle     = time.Second
	calm       = 10 * time.Second // what counts as a window at least, for that
	// A window that was not said is the longest time until a reset that was seen. When after
	// so many windows and responses none was nearly as long, it has become shorter.
	forgetWindows   = 4
	forgetResponses = 20
)

// quota is what is known of one quota. The zero value is nothing.
type quota struct {
	name   int64
	limit  int64 // 0 is not known
	window time.Duration
	// guessed is that the limit was never said: rejections are all that is known, and the
	// rate grows until there is one.
	guessed bool

	known     time.Duration // the window that the fleet knows
	peak      time.Duration // the longest time until a reset since peakSince
	peakSince time.Time
	peaks     int

	stretch float64 // at the last cut; 0 is 1
	cut     time.Time
	eased   time.Time

	taken int64 // what others have of the window that ends at until
	until time.Time

	left int64 // of the limit, by the last decision
}

// hash names a quota in Redis and in keys.
func hash(name string) int64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return int64(h.Sum64() & (1<<48 - 1))
}

// stretched is by how much less is sent than the limit says: above 1 after rejections.
func (q *quota) stretched(now time.Time) float64 {
	if q.stretch == 0 {
		return 1
	}
	windows := float64(now.Sub(q.cut)) / float64(max(q.window, calm))
	least := 1.0
	if q.guessed {
		least = 0.5
	}
	// In steps, so that a limit does not change with every call.
	s := q.stretch * math.Pow(1-recovery, math.Floor(windows))
	return max(least, s)
}

// none is whether others have taken all of the present window.
func (q *quota) none(now time.Time) bool { return q.taken >= q.limit && now.Before(q.until) }

// paced returns the limit that requests are sent by; ok is false where not enough is known.
//
// Of any n+1 requests the first and the last are then a window apart. Servers that count by
// windows, wherever these begin, by sliding windows or by buckets that hold a window's
// requests, all admit that.
func (q *quota) paced(now time.Time) (l limiter.Limit, ok bool) {
	if q.limit < 1 || q.limit > maxLimit || q.window <= 0 || q.window > maxWindow {
		return l, false
	}
	n, window := float64(q.limit), float64(q.window+min(q.window/lagPart, maxLag))
	if n /= q.stretched(now); n < 1 {
		window, n = window/n, 1
	}
	limit := int64(n)
	if now.Before(q.until) {
		limit = max(1, limit-q.taken)
	}
	per := time.Duration(min(window, float64(maxWindow))).Truncate(time.Microsecond)
	if limit <= maxLogged {
		return limiter.SlidingWindowLog(limiter.Per(int(limit), per)), true
	}
	burst := limit / burstPart
	days := time.Duration(1)
	if per > longWindow { // the arithmetic of limiters is exact up to that
		days = (per + longWindow - 1) / longWindow
	}
	return limiter.GCRA(limiter.Per(int(limit+1-burst)/int(days), (per/days).Truncate(time.Microsecond)), int(burst)), true
}

// logged is whether requests are counted one by one, so that it is known how many are left.
func (q *quota) logged() bool { return q.limit >= 1 && q.limit <= maxLogged && q.window > 0 }

// observe learns from a response, and reports whether the limit is another one and whether the
// fleet should know more. stale is that the request was sent before the present limit was known.
func (q *quota) observe(said retry.Quota, now time.Time, stale bool) (changed, more bool) {
	limit := said.Limit
	if limit == 0 {
		limit = max(q.limit, said.Remaining+1) // at least
	}
	limit = min(limit, maxLimit+1) // one that paces nothing, and that a script can count with
	if limit != q.limit && !stale {
		was := q.limit
		q.limit, q.guessed, changed = limit, false, true
		if q.taken = 0; was == 0 {
			q.left = limit - 1
		} else {
			q.left += limit - was
		}
	}
	if q.learnWindow(said, now, stale) {
		changed = true
	}
	more = q.learnTaken(said, now, stale)
	return changed, q.learnUnused(said, now, stale) || more
}

// learnWindow learns the length of the window: what is said, else the longest reset.
func (q *quota) learnWindow(said retry.Quota, now time.Time, stale bool) (changed bool) {
	if w := min(said.Window, maxWindow+time.Microsecond); w > 0 {
		changed = !stale && w != q.window
		if changed {
			q.window = w
		}
		return changed
	}
	if said.Reset <= 0 || said.Reset > maxWindow {
		return false
	}
	if q.peaks == 0 {
		q.peakSince, q.peak = now, 0
	}
	q.peak = max(q.peak, said.Reset)
	q.peaks++
	switch w := round(said.Reset); {
	case w > q.window:
		// That of a bucket grows with each request. The fleet need not know every step.
		q.window = w
		if changed = float64(w) > 1.1*float64(q.known); changed {
			q.known = w
		}
		return changed
	case q.peaks >= forgetResponses && now.Sub(q.peakSince) > forgetWindows*q.window:
		w = round(q.peak)
		q.peaks = 0
		if w < q.window*4/5 {
			q.window, q.known = w, w
			return true
		}
	}
	return false
}

// round returns a usual length of a window that d is just below, else d.
func round(d time.Duration) time.Duration {
	for _, unit := range [...]time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour} {
		for _, n := range [...]time.Duration{1, 2, 3, 5, 10, 15, 20, 30} {
			if w := n * unit; d <= w && d > w*9/10 {
				return w
			}
		}
	}
	return d
}

// learnTaken learns what others have: the server says that less is left than we counted, by
// more than what is on its way.
func (q *quota) learnTaken(said retry.Quota, now time.Time, stale bool) (changed bool) {
	if stale || !q.logged() || said.Remaining < 0 || said.Reset <= 0 || q.none(now) {
		return false
	}
	share, until := q.stretched(now), now.Add(min(said.Reset, q.window))
	if said.Remaining == 0 {
		own := float64(q.limit)/share - float64(q.left)
		if own >= 0.9*float64(q.limit) {
			return false
		}
		q.taken, q.until = q.limit, until
		return true
	}
	known := int64(0)
	if now.Before(q.until) {
		known = q.taken
	}
	taken := q.left - said.Remaining
	if share != 1 || taken <= known+max(1, q.limit/10) {
		return false
	}
	q.taken, q.until = taken, until
	return true
}

// learnUnused learns that less is sent than could be.
func (q *quota) learnUnused(said retry.Quota, now time.Time, stale bool) (changed bool) {
	since := now.Sub(q.cut)
	if !q.eased.Before(q.cut) {
		since = now.Sub(q.eased)
	}
	if stale || q.stretched(now) <= 1 || said.Remaining < 0 || said.Reset < 0 || q.limit < 1 || since < max(q.window, settle) {
		return false
	}
	if float64(said.Remaining)/float64(q.limit) <= float64(said.Reset)/float64(q.window)+unused {
		return false
	}
	q.stretch, q.eased = max(1, q.stretch*ease), now
	return true
}

// rejected learns from a rejection of a request that was sent at sent, and reports whether
// that changed anything. What was sent before the last cut, or soon after it, shows the same
// excess.
func (q *quota) rejected(sent, now time.Time) (changed bool) {
	if q.limit < 1 || q.window <= 0 || q.stretch != 0 && sent.Sub(q.cut) < settle {
		return false
	}
	by := firstCut
	if q.stretch != 0 && now.Sub(q.cut) < soon*max(q.window, settle) {
		by = nextCut
	}
	q.stretch, q.cut = min(maxStretch, q.stretched(now)*by), now
	return true
}

// over is whether nothing is left to be learnt from: a guess that was never wrong again.
func (q *quota) over(now time.Time) bool { return q.guessed && q.stretched(now) <= 0.5 }

// record is the quota as Redis keeps it.
func (q *quota) record(now time.Time) lua.LearntQuota {
	r := lua.LearntQuota{Name: q.name, Limit: q.limit, Window: q.window.Microseconds()}
	if q.stretch != 0 {
		r.Stretch, r.Cut = int64(q.stretch*1000), max(0, now.Sub(q.cut).Microseconds())
	}
	if q.taken > 0 && now.Before(q.until) {
		r.Taken, r.Left = q.taken, q.until.Sub(now).Microseconds()
	}
	return r
}

// adopt takes what Redis keeps.
func (q *quota) adopt(r lua.LearntQuota, now time.Time) {
	q.name, q.limit, q.window = r.Name, r.Limit, algo.Duration(r.Window)
	q.known, q.guessed = q.window, r.Name == guess
	q.stretch, q.cut = float64(r.Stretch)/1000, now.Add(-algo.Duration(r.Cut))
	q.taken, q.until = r.Taken, now.Add(algo.Duration(r.Left))
}
