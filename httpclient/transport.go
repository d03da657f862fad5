package httpclient

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/holdfast-go/holdfast/internal/admission"
	"github.com/holdfast-go/holdfast/internal/configerr"
	"github.com/holdfast-go/holdfast/internal/discovery"
)

// Transport is an [http.RoundTripper] that sends requests through another one,
// and with it keeps limits, retries, and leaves servers alone that ask for it.
// Make one with [New]; the zero value is not usable and a Transport must not be
// copied. It is safe for concurrent use and runs no goroutine between requests.
// It needs no Close, except with [WithDiscovery]. What it learns about hosts is its
// own: use one for all clients of a process.
type Transport struct {
	base      http.RoundTripper
	cfg       *config
	routes    *routes
	scopes    func(host, key string, req any) []string // of routes
	repeated  *repeated
	admission *admission.Client
	discovery *discovery.Discovery // nil without WithDiscovery
}

// New returns a Transport that sends through base; nil is
// [http.DefaultTransport]. The error matches limiter.ErrInvalidConfig.
func New(base http.RoundTripper, opts ...Option) (*Transport, error) {
	if base == nil {
		base = http.DefaultTransport
	}
	cfg, err := newConfig(opts)
	if err != nil {
		return nil, configerr.In(pkg, err)
	}
	cfg.admission.OnThrottle = cfg.hooks.ThrottleChange
	adm, err := admission.New(cfg.admission)
	if err != nil {
		return nil, configerr.In(pkg, err)
	}
	t := &Transport{base: base, cfg: cfg, admission: adm, routes: newRoutes(), repeated: newRepeated()}
	t.scopes = t.routes.scopesOf // once: a func of each request would take memory
	if cfg.discovery == nil {
		return t, nil
	}
	if t.discovery, err = cfg.discovery(); err != nil {
		return nil, ofDiscovery(err)
	}
	return t, nil
}

// NewClient returns a client that sends through a new Transport on
// [http.DefaultTransport]. It has no Timeout: set one, or use contexts; it
// includes the waits. The error matches limiter.ErrInvalidConfig.
func NewClient(opts ...Option) (*http.Client, error) {
	t, err := New(nil, opts...)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: t}, nil
}

// RoundTrip sends the request, as often as it takes and the options allow. It
// keeps the contract of [http.RoundTripper]: it does not modify the request, it
// closes its body on every path, and it follows no redirects.
//
// If there is a response, the last one is returned with a nil error and its
// body unread, also when a retry was called for but not possible; [GaveUp] then
// says why. If nothing could be sent, there is a response in place of the server's
// while the key cools down, see [WithCooldownErrors], and else the error is an
// [*Error]; otherwise it is that of the last attempt. When the request's context,
// or its Cancel channel, ends a wait, the error matches context.Canceled or
// context.DeadlineExceeded.
// A wait that the deadline does not allow is not begun.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req == nil {
		return nil, errors.New("httpclient: nil request")
	}
	call := callOf(req.Context())
	switch err := configerr.In(pkg, call.validate()); {
	case req.URL == nil:
		closeBody(req)
		return nil, errors.New("httpclient: nil Request.URL")
	case err != nil:
		closeBody(req)
		return nil, err
	}
	name := hostOf(req.URL)
	x := exchange{
		adm:    admission.Begin(req.Context(), t.admission, name, t.cfg.keyOf(req, call, name)),
		cfg:    t.cfg,
		base:   t.base,
		routes: t.routes,
		orig:   req,
		req:    req,
		call:   call,

		discovery: t.discovery,
	}
	x.adm.Scopes, x.adm.Of = t.scopes, req
	if t.discovery != nil {
		x.adm.Learnt = t.discovery
	}
	x.adm.Canceled = req.Cancel //nolint:staticcheck // it is how Client.Timeout reaches a RoundTripper
	if f := t.cfg.hooks.Wait; f != nil {
		x.adm.OnWait = func(w admission.Wait) {
			f(req.Context(), WaitInfo{req, w.For, w.Why, w.Source})
		}
	}
	x.adm.Cost = max(1, call.Cost)
	if call.Attempts > 0 {
		x.adm.Attempts = call.Attempts
	} else if x.outer = repeatedAbove(req.Header); req.Response == nil && t.repeated.before(req.Header) { // redirects have the first request's key
		x.outer = outerAll
	}
	x.adm.Allow.Until = validUntil(req)
	if call.MaxWait > 0 {
		x.adm.Allow.Each = call.MaxWait
	}
	if t.cfg.bodyBuffer > 0 && x.adm.Attempts > 1 && x.outer != outerAll {
		var err error
		if x.req, err = buffered(req, t.cfg.bodyBuffer); err != nil {
			return nil, fmt.Errorf("httpclient: reading the request's body: %w", err)
		}
	}
	return x.run()
}

// CloseIdleConnections closes the idle connections of the base, if it can.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// hostOf returns the name of a URL's host: lower case, with the port unless it
// is the scheme's own.
func hostOf(u *url.URL) string {
	return strings.TrimSuffix(strings.ToLower(u.Host), ports[u.Scheme])
}

var ports = map[string]string{"https": ":443", "http": ":80"}
