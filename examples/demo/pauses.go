package main

import (
	"net/http"
	"sync"
	"time"
)

// shortestPause is what counts as one: asking the limiter takes less.
const shortestPause = 20 * time.Millisecond

// pause is a time in which a worker had a request and did not send it.
type pause struct {
	Worker int     `json:"worker"`
	From   float64 `json:"from"` // Unix time in milliseconds
	Until  float64 `json:"until"`
}

// pauses measures those of all workers of a fleet.
type pauses struct {
	mu    sync.Mutex
	began []time.Time // of each worker's running pause; zero while there is none
	shown []time.Time // until when that one was reported
	ended []pause
}

func newPauses(workers int) *pauses {
	return &pauses{began: make([]time.Time, workers), shown: make([]time.Time, workers)}
}

// begin is called when a worker has something to send, end when it is sent or given up.
func (p *pauses) begin(worker int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.began[worker], p.shown[worker] = now, now
}

func (p *pauses) end(worker int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.report(worker, time.Now())
	p.began[worker] = time.Time{}
}

// report notes what of the worker's pause is new.
func (p *pauses) report(worker int, now time.Time) {
	if began := p.began[worker]; !began.IsZero() && now.Sub(began) >= shortestPause {
		p.ended = append(p.ended, pause{worker, unixMs(p.shown[worker]), unixMs(now)})
		p.shown[worker] = now
	}
}

// cut returns the pauses since the last cut, those that go on up to now.
func (p *pauses) cut(now time.Time) []pause {
	p.mu.Lock()
	defer p.mu.Unlock()
	for worker := range p.began {
		p.report(worker, now)
	}
	out := p.ended
	p.ended = nil
	return out
}

// sends is a worker's way to the third party: a pause ends where a request leaves, and
// begins with a rejection.
type sends struct {
	http.RoundTripper
	pauses *pauses
	worker int
}

func (s sends) RoundTrip(r *http.Request) (*http.Response, error) {
	s.pauses.end(s.worker)
	resp, err := s.RoundTripper.RoundTrip(r)
	if err == nil && resp.StatusCode == http.StatusTooManyRequests {
		s.pauses.begin(s.worker)
	}
	return resp, err
}
