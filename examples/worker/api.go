package main

import (
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/limiter"
)

// api is the service of a third party. It rejects what is beyond its limit, is out
// of order for half a second now and then, and counts, by the Idempotency-Key,
// how often it did each job.
type api struct {
	limit  *limiter.Limiter
	server *http.Server
	url    string
	start  time.Time

	mu       sync.Mutex
	seen     map[string]int // jobs done, by key
	rejected int
}

// The API is out of order once in each of these.
const (
	apiEvery = 5 * time.Second
	apiDown  = 500 * time.Millisecond
)

func startAPI(limit limiter.Limit) (*api, error) {
	lim, err := limiter.NewLocal(limit)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	a := &api{limit: lim, url: "http://" + l.Addr().String(), start: time.Now(), seen: make(map[string]int)}
	a.server = &http.Server{Handler: a, ReadHeaderTimeout: time.Minute}
	go func() { _ = a.server.Serve(l) }()
	return a, nil
}

func (a *api) close() {
	_ = a.server.Close()
	_ = a.limit.Close()
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if age := time.Since(a.start) % apiEvery; age > apiEvery-apiDown {
		a.reject(w, http.StatusServiceUnavailable)
		return
	}
	if res, err := a.limit.Allow(r.Context(), "everyone"); err != nil || !res.Allowed {
		a.reject(w, http.StatusTooManyRequests)
		return
	}
	a.mu.Lock()
	a.seen[r.Header.Get("Idempotency-Key")]++
	a.mu.Unlock()
	w.WriteHeader(http.StatusCreated)
}

func (a *api) reject(w http.ResponseWriter, status int) {
	a.mu.Lock()
	a.rejected++
	a.mu.Unlock()
	w.Header().Set("Retry-After", "1")
	w.WriteHeader(status)
}
