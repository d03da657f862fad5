package discovery

import (
	"hash/fnv"
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
	// A window that was not said is the longest time until a reset that was seen. When in so
	// many windows and responses none was nearly as long, and more requests were admitted than
	// such windows have room for, it has become shorter.
	forgetWindows   = 4
	forgetResponses = 20
	// unnamed is after how many windows, of at least a minute, a quota is forgotten that responses do not name
	// any more while they name others.
	unnamed = 2
)

// guess names the quota of a server that says none.
var guess = hash("rejections")

// quota is what is known of one quota. The zero value is nothing.
type quota struct {
	name   int64
	alone  bool  // this process shares what it learns with no other
	limit  int64 // 0 is not known
	window time.Duration
	// guessed is that the limit was never said: rejections are all that is known, and the
	// rate grows until there is one.
	guessed bool

	named     time.Time     // when a response did so last, or Redis first
	known     time.Duration // the window that the fleet knows
	peak      time.Duration // the longest time until a reset since peakSince
	peakSince time.Time
	peaks     int
	most      int64 // used of the limit since then
	passed    int64 // requests of ours that were admitted since then

	part part
	// What was sent by it, admitted and rejected.
	sent, admitted, rejects counter

	taken int64 // what others have of the window that ends at until
	until time.Time

	left int64 // of the limit, by the last decision; below 0 there was none
	// What a response said is left, until then, where a fleet has counted more: the next
	// decision tells whether the rest is of this fleet.
	doubt      int64
	doubtUntil time.Time
	unsaved    bool // the decision has shown that others have some
}

// hash names a quota in Redis and in keys.
func hash(name string) int64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return int64(h.Sum64() & (1<<48 - 1))
}

// share is the part of the limit that is sent.
func (q *quota) share(now time.Time) float64 {
	bound := 1.0
	if q.guessed {
		bound = 2
	}
	return q.part.at(now, q.limit, q.window, bound)
}

// none is whether others have taken all of the present window.
func (q *quota) none(now time.Time) bool { return q.taken >= q.limit && now.Before(q.until) }

// paced returns the limit that requests are sent by; ok is false where not enough is known.
//
// Of any n+1 requests the first and the last are then a window apart. Servers that count by
// windows, wherever these begin, by sliding windows or by buckets that hold a window's
// requests, all admit that. A process that has a part of it without knowing the others sends
// evenly: what all send is then even, too.
func (q *quota) paced(now time.Time) (l limiter.Limit, ok bool) {
	if q.limit < 1 || q.limit > maxLimit || q.window <= 0 || q.window > maxWindow || q.over(now) {
		return l, false
	}
	window, share := q.window, q.share(now)
	n := share * float64(q.limit)
	if now.Before(q.until) {
		n = max(min(n, 1), n-float64(q.taken))
	}
	exact := share == 1 || !q.alone
	if exact {
		window += min(window/lagPart, maxLag)
	}
	if exact && q.limit <= maxLogged { // whatever the part: what one kind of limit has counted, the other does not know
		if n < 1 {
			n, window = 1, time.Duration(min(float64(window)/n, float64(maxWindow)))
		}
		return limiter.SlidingWindowLog(limiter.Per(int(n), window.Truncate(time.Microsecond))), true
	}
	burst := max(1, int(n/burstPart))
	if exact {
		n -= float64(burst - 1)
	}
	// The arithmetic of limiters is exact up to longWindow.
	count := max(1, int(n*min(1, float64(longWindow)/float64(window))))
	per := min(float64(count)/n*float64(window), float64(maxWindow))
	return limiter.GCRA(limiter.Per(count, time.Duration(per).Truncate(time.Microsecond)), burst), true
}

// logged is whether requests are counted one by one, so that it is known how many are left.
func (q *quota) logged() bool { return q.limit >= 1 && q.limit <= maxLogged && q.window > 0 }

// paces is whether requests need not be stopped because of what a response said: where that is that nothing is
// left, they are denied until there is.
func (q *quota) paces(said retry.Quota, now time.Time) bool {
	return q.logged() && (said.Remaining != 0 || q.none(now) || q.left == 0 && q.share(now) == 1)
}

// observe learns from a response, and reports whether the limit is another one and whether the
// fleet should know more. The request was sent at sent; stale is that this was before the present
// limit was known.
func (q *quota) observe(said retry.Quota, sent, now time.Time, stale bool) (changed, more bool) {
	limit := said.Limit
	if limit == 0 {
		limit = max(q.limit, said.Remaining+1) // at least
	}
	limit = min(limit, maxLimit+1) // one that paces nothing, and that a script can count with
	if limit != q.limit && !stale {
		was := q.limit
		q.limit, q.guessed, changed = limit, false, true
		q.taken = 0
		switch {
		case was == 0 && q.alone:
			q.left = limit - 1
		case was == 0: // the limiter knows what others of the fleet have sent
			q.left = -1
		case q.left >= 0:
			q.left = max(0, q.left+limit-was)
		}
	}
	if q.learnWindow(said, now, stale) {
		changed = true
	}
	used := q.limit - said.Remaining
	if changed && q.part.of == 0 {
		q.part.since = time.Time{} // the counts of another limit
	}
	if q.alone && q.part.of == 0 && said.Remaining >= 0 && q.part.others(used, q.limit, q.window, sent, now) {
		q.taken = 0
		return changed, true
	}
	more = q.learnTaken(said, now, stale)
	if stale || q.part.of == 0 || said.Remaining < 0 || said.Reset < 0 || q.limit < 1 || q.window <= 0 {
		return changed, more
	}
	load := q.part.load(used, q.limit, q.window, said.Reset, now)
	return changed, q.part.more(q.share(now), load, used, q.window, now) || more
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
		q.peakSince, q.peak, q.most, q.passed = now, 0, 0, 0
	}
	q.peak = max(q.peak, said.Reset)
	q.most = max(q.most, q.limit-max(0, said.Remaining))
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
		// A reset alone does not show it: where requests are spread, the oldest of a sliding
		// window is always about to leave.
		windows := 1 + float64(now.Sub(q.peakSince))/float64(q.window)
		if w < q.window*4/5 && float64(q.passed) > windows*float64(q.most) {
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
	share, until := q.share(now), now.Add(min(said.Reset, q.window))
	if share != 1 {
		return false // the part leaves it to them
	}
	if said.Remaining == 0 {
		if q.left >= 0 && float64(q.limit-q.left) >= 0.9*float64(q.limit) {
			return false
		}
		q.taken, q.until = q.limit, until
		return true
	}
	changed, q.unsaved = q.unsaved, false
	if !q.others(said.Remaining, now) {
		return changed
	}
	if !q.alone { // what others of the fleet have sent meanwhile is not in left
		q.doubt, q.doubtUntil = said.Remaining, until
		return changed
	}
	q.taken, q.until = q.left-said.Remaining, until
	return true
}

// others is whether clearly less remains than was counted and is known of others.
func (q *quota) others(remaining int64, now time.Time) bool {
	known := int64(0)
	if now.Before(q.until) {
		known = q.taken
	}
	return q.left >= 0 && q.left-remaining > known+max(1, q.limit/10)
}

// note remembers what a decision has left of the limit that it was made by.
func (q *quota) note(left int64, now time.Time) {
	if q.left = left; now.Before(q.until) {
		q.left += q.taken
	}
	if now.Before(q.doubtUntil) && q.others(q.doubt, now) {
		q.taken, q.until, q.unsaved = q.left-q.doubt, q.doubtUntil, true
	}
	q.doubtUntil = time.Time{}
}

// rejected learns from a rejection of a request that was sent at sent, and reports whether
// that changed anything.
func (q *quota) rejected(sent, now time.Time) (changed bool) {
	if q.limit < 1 || q.window <= 0 || !q.part.cut.IsZero() && sent.Sub(q.part.cut) < settle {
		return false
	}
	ours := -1.0
	if q.alone { // of what is under way, the server will admit some
		ours = (q.sent.in(now, q.window) + q.admitted.in(now, q.window) - q.rejects.in(now, q.window)) / 2
		ours = max(0, ours)
	}
	q.part.less(q.share(now), ours, q.limit, q.window, now)
	return true
}

// count counts a request that is sent.
func (q *quota) count(now time.Time) {
	if q.window > 0 {
		q.sent.add(now, q.window)
		q.part.sent++
	}
}

// uncount takes back a count.
func (q *quota) uncount() {
	q.sent.now, q.part.sent = max(0, q.sent.now-1), max(0, q.part.sent-1)
}

// answered counts what became of a request.
func (q *quota) answered(now time.Time, rejected bool) {
	switch {
	case q.window <= 0:
	case rejected:
		q.rejects.add(now, q.window)
	default:
		q.admitted.add(now, q.window)
		q.passed++
	}
}

// over is whether nothing is left to be learnt from: a guess that was never wrong again. It paces nothing any more,
// because it may be of a time in which little was sent.
func (q *quota) over(now time.Time) bool { return q.guessed && q.share(now) >= 2 }

// record is the quota as Redis keeps it.
func (q *quota) record(now time.Time) lua.LearntQuota {
	r := lua.LearntQuota{Name: q.name, Limit: q.limit, Window: q.window.Microseconds()}
	if q.part.of != 0 {
		r.Stretch, r.Cut = int64(1000/q.part.of), max(0, now.Sub(q.part.since).Microseconds())
	}
	if q.taken > 0 && now.Before(q.until) {
		r.Taken, r.Left = q.taken, q.until.Sub(now).Microseconds()
	}
	return r
}

// adopt takes what Redis keeps, and reports whether this process has cut later: Redis was away, or others have
// saved what they knew before that.
func (q *quota) adopt(r lua.LearntQuota, now time.Time) (later bool) {
	q.name, q.limit, q.window = r.Name, r.Limit, algo.Duration(r.Window)
	if q.named.IsZero() {
		q.named = now
	}
	q.known, q.guessed = q.window, r.Name == guess
	if r.Stretch <= 0 {
		q.part = part{}
	} else if since := now.Add(-algo.Duration(r.Cut)); q.part.of == 0 || since.After(q.part.since) {
		q.part.set(1000/float64(r.Stretch), since, q.part.used)
		q.part.cut = since
	} else {
		later = q.part.since.Sub(since) > settle
	}
	q.taken, q.until = r.Taken, now.Add(algo.Duration(r.Left))
	return later
}
