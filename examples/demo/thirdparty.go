package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/middleware"
)

// The quota of the third party.
const (
	quota       = 12
	quotaWindow = 2 * time.Second
)

// thirdParty is the API of a third party: beyond its quota it answers 429 with Retry-After,
// and before that it says nothing of what is left.
type thirdParty struct {
	url    string
	server *http.Server
	quota  *limiter.Limiter

	mu      sync.Mutex
	current fleetSecond
}

func startThirdParty(l net.Listener) (*thirdParty, error) {
	lim, err := limiter.NewLocal(limiter.FixedWindow(limiter.Per(quota, quotaWindow)))
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	p := &thirdParty{quota: lim}
	limit, err := middleware.New(lim, middleware.Everyone(),
		middleware.WithHeaders(middleware.RetryAfter),
		middleware.WithHook(func(_ context.Context, d middleware.Decision) { p.count(d.Status == 0) }),
	)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	p.url = "http://" + l.Addr().String()
	p.server = &http.Server{ReadHeaderTimeout: time.Minute, Handler: limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	}))}
	go func() { _ = p.server.Serve(l) }()
	return p, nil
}

func (p *thirdParty) count(served bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if served {
		p.current.Served++
	} else {
		p.current.Refused++
	}
}

// cut ends the current second.
func (p *thirdParty) cut() fleetSecond {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.current
	p.current = fleetSecond{}
	return s
}

func (p *thirdParty) close() { _ = p.server.Close() }
