package retry

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/chain"
	"github.com/holdfast-go/holdfast/internal/random"
)

// The defaults of [ThrottleSettings].
const (
	DefaultThrottleMultiplier  = 3
	DefaultThrottleWindow      = 2 * time.Minute
	DefaultThrottleMinRequests = 20
)

const (
	// maxOutcomes is how many outcomes the window holds at most. A server that
	// accepts nothing is sent about one in maxOutcomes of the requests.
	maxOutcomes = 200
	// throttledAt is the probability at which a Throttle counts as throttling
	// for OnChange, until it is 0 again.
	throttledAt = 0.5
)

// ThrottleSettings tunes a [Throttle]. Zero fields have their defaults.
type ThrottleSettings struct {
	// Name identifies the throttle in [ThrottleChange]. It is not interpreted.
	Name string
	// Multiplier is how many requests are sent for each that is accepted before
	// any is rejected, by default 3: a server that fails less than two thirds
	// of the time is not throttled. (With 2, as in the book, chance would throttle
	// one that fails every second time.) Critical calls have twice as many. From 1
	// to 100.
	Multiplier float64
	// Window is for how long an outcome counts, to the second, by default 2
	// minutes. From 1 s to 1 h.
	Window time.Duration
	// MinRequests is how many outcomes the window must hold before any request
	// is rejected, and how many consecutive failures make the throttle forget
	// what came before them; by default 20. From 1 to 200.
	MinRequests int
	// Rand returns random numbers in [0, 1), by default those of math/rand/v2.
	// It must be safe for concurrent use.
	Rand func() float64
	// OnChange, if not nil, is called once when throttling begins, which is
	// when half of the calls are rejected, and once when none is rejected any
	// more; in order, outside every lock, on the goroutine of a Report, with the
	// context of the Report that changed it.
	OnChange func(context.Context, ThrottleChange)
}

// ThrottleChange is the begin or the end of throttling.
type ThrottleChange struct {
	Name       string    // ThrottleSettings.Name
	Throttling bool      // it begins
	At         time.Time // when it happened
	// Since is when throttling began or, when it begins, when the last one
	// ended or the throttle was made.
	Since             time.Time
	Requests, Accepts int // in the window
}

// Throttle rejects calls to a server that fails, the more often the more it fails:
// with the probability max(0, (requests − K·accepts) / (requests + 1)),
// K being the Multiplier. A server that fails some of the time still gets what
// it can do, one that is down gets little, and the calls that go through show when
// it has recovered. It is the adaptive throttling of "Handling
// Overload" in Site Reliability Engineering, O'Reilly 2016, except for three
// things.
//
// Requests are those that were sent: were the rejected ones counted, rejections
// would cause rejections, and a server that fails a little more often than K
// allows would get next to nothing. The window holds 200 outcomes at most, so
// that a busy server's past does not hide that it is down; and after MinRequests
// consecutive failures it holds only failures.
//
// A server that is down is sent MinRequests calls per Window, or one in 200 of
// all calls if that is more. Between the two, of n calls in a Window it is about
// √n.
//
// Make it with [NewThrottle]; the zero value must not be used. It is safe for
// concurrent use and runs no goroutine.
type Throttle struct {
	cfg   ThrottleSettings
	epoch time.Time

	// rejecting is whether the probability was not 0 at the last Report. While
	// it is not, asking takes no lock.
	rejecting atomic.Bool

	mu          sync.Mutex
	outcomes    [maxOutcomes]outcome // a ring
	first, n    int
	accepts     int // among them
	consecutive int // failures since the last success

	throttling bool
	since      time.Time
	changes    chain.Queue[pendingChange]
}

type pendingChange struct {
	ctx context.Context
	ThrottleChange
}

// outcome is the time of a request in seconds since epoch, doubled, and one more
// if it was accepted.
type outcome uint32

// NewThrottle returns a throttle that rejects nothing yet. The error
// matches [ErrInvalidConfig].
func NewThrottle(s ThrottleSettings) (*Throttle, error) {
	s.Multiplier = cmp.Or(s.Multiplier, DefaultThrottleMultiplier)
	s.Window = cmp.Or(s.Window, DefaultThrottleWindow)
	s.MinRequests = cmp.Or(s.MinRequests, DefaultThrottleMinRequests)
	switch {
	case !(s.Multiplier >= 1 && s.Multiplier <= 100): // also rejects NaN
		return nil, invalid("ThrottleSettings.Multiplier", s.Multiplier, "must be from 1 to 100")
	case s.Window < time.Second || s.Window > time.Hour:
		return nil, invalid("ThrottleSettings.Window", s.Window, "must be from 1s to 1h")
	case s.MinRequests < 1 || s.MinRequests > maxOutcomes:
		return nil, invalid("ThrottleSettings.MinRequests", s.MinRequests, "must be from 1 to 200")
	}
	if s.Rand == nil {
		s.Rand = random.Float64
	}
	now := time.Now()
	return &Throttle{cfg: s, epoch: now, since: now}, nil
}

// Rejecting reports whether any call may be rejected. It takes no lock.
func (t *Throttle) Rejecting() bool { return t.rejecting.Load() }

// Draw returns a random number for one call, to be compared with
// [Throttle.Probability]: once, or again after a wait, which then does not reject
// the call by chance alone.
func (t *Throttle) Draw() float64 { return t.cfg.Rand() }

// Probability returns with which probability a call would be rejected now.
// Critical calls are rejected last: they have twice the Multiplier.
func (t *Throttle) Probability(critical bool) float64 {
	if !t.Rejecting() {
		return 0
	}
	k := t.cfg.Multiplier
	if critical {
		k *= 2
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire()
	return t.probability(k)
}

// Wait returns the mean time between the calls that were sent recently, which is
// about how long it takes until the next one is; at least 1 s and at most the
// Window.
func (t *Throttle) Wait() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire()
	if t.n == 0 {
		return time.Second
	}
	age := t.now() - t.outcomes[t.first].second()
	return min(max(time.Second, time.Duration(age)*time.Second/time.Duration(t.n)), t.cfg.Window)
}

// Report reports the outcome of a call that was sent. Do not report what says
// nothing about the server, such as a call that its caller gave up.
func (t *Throttle) Report(ctx context.Context, accepted bool) {
	t.mu.Lock()
	t.expire()
	if t.n == maxOutcomes {
		t.drop()
	}
	o := outcome(t.now() << 1)
	if accepted {
		o |= 1
		t.accepts++
		t.consecutive = 0
	} else {
		t.consecutive++
	}
	t.outcomes[(t.first+t.n)%maxOutcomes] = o
	t.n++
	if t.consecutive == t.cfg.MinRequests {
		for t.n > t.consecutive {
			t.drop()
		}
	}
	p := t.probability(t.cfg.Multiplier)
	t.rejecting.Store(p > 0)
	if throttling := p >= throttledAt || t.throttling && p > 0; throttling != t.throttling {
		now := time.Now()
		if t.cfg.OnChange != nil {
			t.changes.Add(pendingChange{ctx, ThrottleChange{t.cfg.Name, throttling, now, t.since, t.n, t.accepts}})
		}
		t.throttling, t.since = throttling, now
	}
	t.changes.Unlock(&t.mu, func(c pendingChange) { t.cfg.OnChange(c.ctx, c.ThrottleChange) })
}

// probability is the formula. mu is held.
func (t *Throttle) probability(k float64) float64 {
	if t.n < t.cfg.MinRequests {
		return 0
	}
	return max(0, (float64(t.n)-k*float64(t.accepts))/float64(t.n+1))
}

// expire forgets what has left the window. mu is held.
func (t *Throttle) expire() {
	oldest := t.now() - int64(t.cfg.Window/time.Second)
	for t.n > 0 && t.outcomes[t.first].second() < oldest {
		t.drop()
	}
}

// drop forgets the oldest outcome. mu is held.
func (t *Throttle) drop() {
	t.accepts -= int(t.outcomes[t.first] & 1)
	t.first = (t.first + 1) % maxOutcomes
	t.n--
}

func (o outcome) second() int64 { return int64(o >> 1) }

// now is in seconds since epoch, of the monotonic clock.
func (t *Throttle) now() int64 { return int64(time.Since(t.epoch) / time.Second) }
