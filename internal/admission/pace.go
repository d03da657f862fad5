package admission

import (
	"sync"
	"time"
)

// What adaptive pacing does, after the client-side limiter of AWS's SDKs: a
// 429 cuts the rate to adaptiveCut of what was sent; after it the rate grows by
// a constant, adaptiveGrowth of the rate at the cut per second.
const (
	adaptiveCut    = 0.7
	adaptiveGrowth = 0.05
	// adaptiveMin, requests per second, is where cutting ends: a host that
	// answers nothing but 429 is still asked sometimes.
	adaptiveMin = 0.5
	// adaptiveSettle is the time that a cut takes to show: a server that counts
	// by windows goes on rejecting until the current one ends.
	adaptiveSettle = time.Second
	// adaptiveOver is the multiple of the rate at the cut at which pacing ends.
	// It takes 26 s of growth, without another 429, to get there.
	adaptiveOver = 2.0
	// maxPaces bounds the keys that are paced at once.
	maxPaces = 1 << 14
)

// pace is the adaptive rate of one key, made with its epoch. Until the first
// throttling it only counts. It is safe for concurrent use.
type pace struct {
	mu    sync.Mutex
	epoch time.Time // what the times below count from

	// How many were sent in the current second and in the one before it.
	second    int64
	sent, was float64

	on    bool
	rate  float64       // per second
	cutAt float64       // the rate at the last cut
	cut   time.Duration // when that was
	grown time.Duration // until when growth has been added
	next  time.Duration // the first free turn
}

// newPaces returns the bounded map of them by key.
func newPaces(max int) *Table[pace] {
	return NewTable(max, func(p *pace) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.grow(time.Since(p.epoch))
		return p.on
	})
}

// delay returns how long a request must wait for its turn, and takes the turn
// if that is at most most.
func (p *pace) delay(most time.Duration) (d time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Since(p.epoch)
	p.grow(now)
	if p.on {
		p.next = max(p.next, now)
		if d = p.next - now; d > most {
			return d, false
		}
		p.next += time.Duration(float64(time.Second) / p.rate)
	}
	return d, true
}

// start counts a request as sent and returns when that was.
func (p *pace) start() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Since(p.epoch)
	p.count(now)
	p.sent++
	return now
}

// throttled cuts the rate after a 429 to a request that was sent at sent. What
// was sent before the last cut, or within adaptiveSettle of it, describes the
// same excess: it cuts once.
func (p *pace) throttled(sent time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Since(p.epoch)
	p.grow(now)
	if p.on && sent <= p.cut+adaptiveSettle {
		return
	}
	p.count(now)
	rate := max(p.was, p.sent)
	if p.on {
		rate = min(rate, p.rate) // an idle client has no use for its rate
	}
	p.cutAt = rate
	p.rate = max(adaptiveMin, rate*adaptiveCut)
	p.on, p.cut, p.grown = true, now, now
}

// grow adds what has grown since, and ends pacing that no longer matters.
func (p *pace) grow(now time.Duration) {
	if !p.on {
		return
	}
	// A slow host grows by adaptiveMin, or it would never.
	p.rate += max(adaptiveMin, p.cutAt) * adaptiveGrowth * (now - p.grown).Seconds()
	p.grown = now
	if p.rate >= adaptiveOver*max(adaptiveMin, p.cutAt) {
		p.on, p.next = false, 0
	}
}

// count moves on to the current second.
func (p *pace) count(now time.Duration) {
	second := int64(now / time.Second)
	switch second - p.second {
	case 0:
	case 1:
		p.was, p.sent = p.sent, 0
	default:
		p.was, p.sent = 0, 0
	}
	p.second = second
}
