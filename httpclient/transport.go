package httpclient

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/holdfast-go/holdfast/internal/cooldown"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/retry"
)

// Transport is an [http.RoundTripper] that sends requests through another one,
// and with it keeps limits, retries, and leaves servers alone that ask for it.
// Make one with [New]; the zero value is not usable and a Transport must not be
// copied. It is safe for concurrent use, runs no goroutine between requests,
// and needs no closing. What it learns about hosts is its own: use one for all
// clients of a process.
type Transport struct {
	base  http.RoundTripper
	cfg   config
	hosts *hosts
	gates *cooldown.Gates
	paces *cooldown.Table[pace] // nil is not adaptive
	block blocker               // nil if the limiter can't
}

// blocker is what limiters implement that can deny a key for the whole fleet.
type blocker interface {
	Block(ctx context.Context, key string, d time.Duration, opts ...limiter.CallOption) error
}

// New returns a Transport that sends through base; nil is
// [http.DefaultTransport]. The error is a [*ConfigError].
func New(base http.RoundTripper, opts ...Option) (*Transport, error) {
	if base == nil {
		base = http.DefaultTransport
	}
	cfg := defaults()
	for _, o := range opts {
		if o != nil {
			o(&cfg)
		}
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.logger == nil {
		cfg.logger = slog.Default()
	}
	t := &Transport{base: base, cfg: cfg}
	if s := t.cfg.throttle; s != nil {
		also := s.OnChange
		s.OnChange = func(c retry.ThrottleChange) { t.throttleChanged(c, also) }
	}
	t.hosts = newHosts(cfg.maxHosts, t.cfg.throttle, cfg.budget)
	t.gates = cooldown.NewGates(cfg.maxGates)
	if cfg.adaptive {
		t.paces = newPaces(cfg.maxPaces)
	}
	t.block, _ = cfg.limiter.(blocker)
	return t, nil
}

// NewClient returns a client that sends through a new Transport on
// [http.DefaultTransport]. It has no Timeout: set one, or use contexts; it
// includes the waits. The error is a [*ConfigError].
func NewClient(opts ...Option) (*http.Client, error) {
	t, err := New(nil, opts...)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: t}, nil
}

// CloseIdleConnections closes the idle connections of the base, if it can.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// throttleChanged tells whoever wants to know that a host fails, or no longer
// does: an outage is one line when it begins and one when it is over.
func (t *Transport) throttleChanged(c retry.ThrottleChange, also func(retry.ThrottleChange)) {
	if c.Throttling {
		t.cfg.logger.Warn("holdfast: host fails; throttling it", "host", c.Name, "since", c.Since, "requests", c.Requests, "accepts", c.Accepts)
	} else {
		t.cfg.logger.Info("holdfast: host answers again", "host", c.Name, "since", c.Since, "outage", c.At.Sub(c.Since))
	}
	if f := t.cfg.hooks.ThrottleChange; f != nil {
		f(c)
	}
	if also != nil {
		also(c)
	}
}

// key returns what the request's limit and cooldown belong to.
func (t *Transport) key(req *http.Request, c Call, host string) string {
	switch {
	case c.Key != "":
		return c.Key
	case t.cfg.key != nil:
		return t.cfg.key(req)
	default:
		return host
	}
}
