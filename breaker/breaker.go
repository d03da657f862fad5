package breaker

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/holdfast-go/holdfast/internal/chain"
	"github.com/holdfast-go/holdfast/internal/configerr"
)

// Breaker is a circuit breaker for one Redis server. Make it with [New]; the
// zero value is not usable and a Breaker must not be copied. All methods are
// safe for concurrent use.
type Breaker struct {
	cfg   Settings
	epoch time.Time // what gate counts from, on the monotonic clock

	// gate is the time in ns since epoch before which Acquire rejects without
	// a lock: the end of the open time, or the deadline of the probe in flight.
	// 0 is an open gate. It is written with mu held.
	gate atomic.Int64

	// mu guards all below, and serialises cb together with it: gobreaker calls
	// onStateChange within its own lock, so nothing distinguishes the two later.
	mu          sync.Mutex
	cb          *gobreaker.TwoStepCircuitBreaker[struct{}]
	state       State
	since       time.Time
	phase       time.Time // when it was last closed, or stopped being closed
	generation  uint64    // transitions so far
	probe       *admitted // the probe in flight; only when half-open
	last        Class     // the last failure
	consecutive uint32    // failures since the last success or transition
	failed      time.Time // when a call failed that only an answer of need shows to be over
	need        Proof
	opens       uint64
	openFor     time.Duration // of the last open
	streak      uint          // opens without a healthy time in between, less one
	changes     chain.Queue[Change]
	reported    []*admitted // that have reported, to be used again
}

// admitted is one call. done is nil once it has reported.
type admitted struct {
	b          *Breaker
	use        uint64 // raised when it reports: older tickets are void
	generation uint64
	done       func(error)
}

// The results that gobreaker receives. It uses errors only to classify results.
var (
	errFailure = errors.New("failure")
	errNeutral = errors.New("neutral")
)

// New returns a closed breaker. Zero fields of s take their defaults. The error
// for a value out of range names the field, the value and the rule.
func New(s Settings) (*Breaker, error) {
	s = s.withDefaults()
	if err := s.validate(); err != nil {
		return nil, configerr.In("breaker", err)
	}
	now := time.Now()
	b := &Breaker{cfg: s, epoch: now, since: now, phase: now}
	bucket := s.Window / buckets
	b.cb = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests:  1,
		Interval:     bucket * buckets, // an exact multiple, or gobreaker adds a bucket
		BucketPeriod: bucket,
		// The gate decides how long to stay open. This timer has always
		// run out when the gate lets someone ask.
		Timeout:       time.Nanosecond,
		ReadyToTrip:   b.readyToTrip,
		IsSuccessful:  func(err error) bool { return err == nil },
		IsExcluded:    func(err error) bool { return err == errNeutral }, //nolint:errorlint // it is not wrapped
		OnStateChange: b.onStateChange,
	})
	return b, nil
}

// Acquire asks whether Redis may be called. If it may, report the outcome of
// the call with [Ticket.Done]. If not, do not call: answer from the fallback.
//
// While the breaker is open, or a probe is in flight, rejecting takes one atomic
// load and a reading of the clock, no lock, and allocates nothing. A ticket that
// is never reported does no harm: it is not counted, and if it was the probe it
// is given up after [Settings.ProbeTimeout].
func (b *Breaker) Acquire() (Ticket, bool) {
	if b.Rejects() {
		return Ticket{}, false
	}
	b.mu.Lock()
	t := b.admit()
	b.changes.Unlock(&b.mu, b.changed)
	if t == nil {
		return Ticket{}, false
	}
	return Ticket{t, t.use}, true
}

// Rejects reports whether [Breaker.Acquire] would reject now. It takes no ticket
// and no lock: for those who have something to lose between asking and calling.
func (b *Breaker) Rejects() bool {
	until := b.gate.Load()
	return until != 0 && b.now() < until
}

// admit is Acquire with mu held. It returns nil to reject.
func (b *Breaker) admit() *admitted {
	if until := b.gate.Load(); until != 0 {
		// Someone else became the probe while this caller waited for mu.
		if b.now() < until {
			return nil
		}
		// The probe is overdue: give it up. There is no timer to do it.
		if b.probe != nil {
			b.report(b.probe, ClassSlow, ProofRead) // what it asked for is not known
			return nil
		}
	}
	done, err := b.cb.Allow() // moves from open to half-open
	if err != nil {
		return nil
	}
	t := b.free()
	t.generation, t.done = b.generation, done
	if b.state == HalfOpen {
		b.probe = t
		b.gate.Store(b.now() + int64(b.cfg.ProbeTimeout))
	}
	return t
}

// Ticket is the right to make one call. It may be copied; the copies are one
// ticket. The zero Ticket, which Acquire returns with false, does nothing.
type Ticket struct {
	t   *admitted
	use uint64
}

// Probe reports whether the call is the one that shows if Redis is back.
func (k Ticket) Probe() bool {
	if k.t == nil {
		return false
	}
	b := k.t.b
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.probe == k.t && k.t.use == k.use
}

// Done is Report for a call whose success proves everything.
func (k Ticket) Done(c Class, took time.Duration) { k.Report(c, ProofWrite, took) }

// Report reports how the call went and how long it took. For [ClassOK] proof is
// what the answer proves; for a failure what a success would have proven at
// least. A success that proves less than what has failed within the last
// [Settings.Window], or made the breaker open, is neutral.
//
// The first report counts, later ones are ignored, and so is one that comes
// after the breaker changed state, since it describes Redis as it was before. If the
// script had to be loaded and replayed, report once, the final outcome. took
// matters only for ClassOK, see [Settings.SlowCall]. Report is safe for
// concurrent use.
func (k Ticket) Report(c Class, proof Proof, took time.Duration) {
	t := k.t
	if t == nil {
		return
	}
	b := t.b
	if c == ClassOK && b.cfg.SlowCall > 0 && took > b.cfg.SlowCall {
		c = ClassSlow
	}
	b.mu.Lock()
	// gobreaker must not receive a result of the past: any result makes it read the
	// time and move from open to half-open.
	if t.use == k.use && t.generation == b.generation {
		if t == b.probe && !c.Failure() && b.now() >= b.gate.Load() {
			c = ClassSlow // too late, although no other call has given it up
		}
		b.report(t, c, proof)
		t.use++
		b.reported = append(b.reported, t)
	}
	b.changes.Unlock(&b.mu, b.changed)
}

// changed calls the hook.
func (b *Breaker) changed(ch Change) { b.cfg.OnChange(context.Background(), ch) }

// free returns a call of which no result can be reported. mu is held.
func (b *Breaker) free() *admitted {
	if n := len(b.reported); n > 0 {
		t := b.reported[n-1]
		b.reported = b.reported[:n-1]
		return t
	}
	return &admitted{b: b}
}

// report passes a result of the current generation on. mu is held.
func (b *Breaker) report(t *admitted, c Class, proof Proof) {
	if t == b.probe {
		b.probe = nil
		b.gate.Store(0) // the next caller is the probe, unless this one opens it again
	}
	switch {
	case c.Failure():
		b.doubt(c, proof)
		b.last = c
		b.consecutive++
		t.done(errFailure)
	case c == ClassOK && b.proven(proof):
		b.failed = time.Time{}
		b.consecutive = 0
		t.done(nil)
	default:
		t.done(errNeutral)
	}
}

// doubt notes what has failed: of failures close to each other the one that takes
// more to be over.
func (b *Breaker) doubt(c Class, asked Proof) {
	need := max(asked, ProofRun) // that a write would have followed is not known
	if c == ClassReadOnly {
		need = ProofWrite
	}
	now := time.Now()
	if !b.proven(need) {
		need = b.need
	}
	b.need, b.failed = need, now
}

// proven reports whether an answer shows that what has failed works again.
func (b *Breaker) proven(by Proof) bool {
	return b.failed.IsZero() || by <= b.need || b.state == Closed && time.Since(b.failed) > b.cfg.Window
}

// State returns the current state. The end of the open time does not change it:
// the first caller after that does.
func (b *Breaker) State() State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state
}

// Snapshot returns state and history, all of the same moment.
func (b *Breaker) Snapshot() Snapshot {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := Snapshot{State: b.state, Since: b.since, LastFailure: b.last, Opens: b.opens}
	if b.state == Open {
		s.OpenUntil = b.since.Add(b.openFor)
	}
	return s
}

// now is the time in ns since the breaker was made, on the monotonic clock.
func (b *Breaker) now() int64 {
	return int64(time.Since(b.epoch))
}
