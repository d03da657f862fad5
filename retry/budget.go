package retry

import (
	"cmp"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// The defaults of [BudgetSettings].
const (
	DefaultBudgetRatio  = 0.2
	DefaultBudgetWindow = 10 * time.Second
	DefaultBudgetFloor  = 10
)

// BudgetSettings tunes a [Budget]. Zero fields have their defaults.
type BudgetSettings struct {
	// Ratio is how many retries each success of the last Window pays for, by
	// default 0.2. More than 0 and at most 10; negative is none, only the floor.
	Ratio float64
	// Window is for how long a success counts, by default 10 s. From 1 s to 1 h.
	Window time.Duration
	// Floor is how many retries per second are allowed in any case, by default
	// 10; it is what a client with little traffic lives on. At most 1,000,000;
	// negative is none.
	Floor float64
}

// Budget bounds the load that retries add: within any Window, at most Ratio
// retries per success, and Floor per second besides. Share one among all calls
// to the same server. Make it with [NewBudget]; the zero value must not be
// used. It is safe for concurrent use and runs no goroutine. A nil Budget
// allows every retry.
//
// Successes pay, not requests. When a server answers no request, nothing is paid
// in, and what retries add shrinks to the floor within one Window, however
// many requests are made. A budget paid by requests adds its ratio for as long
// as the outage lasts, and a server that needs less than that to be overloaded
// does not recover. For the idea see Finagle's RetryBudget, and "Handling
// Overload" in Site Reliability Engineering, O'Reilly 2016.
type Budget struct {
	ratio float64
	width time.Duration // of a bucket
	epoch time.Time
	floor *rate.Limiter // nil is none

	mu      sync.Mutex
	at      int64 // the bucket of now
	buckets [budgetBuckets]bucket
	sum     bucket
}

// budgetBuckets is how finely the window moves.
const budgetBuckets = 10

// bucket counts in one tenth of the window, and all of it in sum.
type bucket struct{ paid, spent int }

// NewBudget returns a budget with only its floor to spend. The error
// matches [ErrInvalidConfig].
func NewBudget(s BudgetSettings) (*Budget, error) {
	s.Ratio = cmp.Or(s.Ratio, DefaultBudgetRatio)
	s.Window = cmp.Or(s.Window, DefaultBudgetWindow)
	s.Floor = cmp.Or(s.Floor, DefaultBudgetFloor)
	switch {
	case !(s.Ratio <= 10): // also rejects NaN
		return nil, invalid("BudgetSettings.Ratio", s.Ratio, "must be at most 10")
	case s.Window < time.Second || s.Window > time.Hour:
		return nil, invalid("BudgetSettings.Window", s.Window, "must be from 1s to 1h")
	case !(s.Floor <= 1e6):
		return nil, invalid("BudgetSettings.Floor", s.Floor, "must be at most 1000000")
	}
	b := &Budget{ratio: max(0, s.Ratio), width: s.Window / budgetBuckets, epoch: time.Now()}
	if s.Floor > 0 {
		// One second's worth at once, not a window's: a client that starts into
		// an outage must not double its load for the first seconds.
		b.floor = rate.NewLimiter(rate.Limit(s.Floor), max(1, int(s.Floor)))
	}
	return b, nil
}

// Deposit pays for one success.
func (b *Budget) Deposit() {
	if b == nil {
		return
	}
	b.mu.Lock()
	b.advance()
	b.buckets[b.at%budgetBuckets].paid++
	b.sum.paid++
	b.mu.Unlock()
}

// Withdraw takes one retry from the budget. If it reports false there is
// nothing left, and there should be no retry.
func (b *Budget) Withdraw() bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	b.advance()
	ok := float64(b.sum.spent+1) <= b.ratio*float64(b.sum.paid)
	if ok {
		b.buckets[b.at%budgetBuckets].spent++
		b.sum.spent++
	}
	b.mu.Unlock()
	// What the floor pays for is not charged to the successes.
	return ok || b.floor != nil && b.floor.Allow()
}

// advance forgets what has left the window. mu is held.
func (b *Budget) advance() {
	now := int64(time.Since(b.epoch) / b.width)
	switch n := now - b.at; {
	case n <= 0:
		return
	case n >= budgetBuckets:
		b.buckets, b.sum = [budgetBuckets]bucket{}, bucket{}
	default:
		for i := b.at + 1; i <= now; i++ {
			old := &b.buckets[i%budgetBuckets]
			b.sum.paid -= old.paid
			b.sum.spent -= old.spent
			*old = bucket{}
		}
	}
	b.at = now
}
