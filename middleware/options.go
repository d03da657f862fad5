package middleware

import (
	"context"
	"net/http"

	"github.com/dunglas/httpsfv"

	"github.com/holdfast-go/holdfast/internal/chain"
	"github.com/holdfast-go/holdfast/internal/configerr"
	"github.com/holdfast-go/holdfast/internal/enum"
	"github.com/holdfast-go/holdfast/internal/inbound"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/semaphore"
)

// Option tunes a middleware.
type Option func(*config)

// Missing says what a request gets that has no key.
type Missing uint8

// What a request without a key gets.
const (
	// MissingBadRequest rejects it with 400, the default.
	MissingBadRequest Missing = Missing(inbound.MissingRejected)
	// MissingUnauthorized rejects it with 401 and the challenge of WithChallenge.
	MissingUnauthorized Missing = Missing(inbound.MissingUnauthenticated)
	// MissingShared lets all of them share one key.
	MissingShared Missing = Missing(inbound.MissingShared)
)

var missing = [...]string{"bad-request", "unauthorized", "shared"}

// String returns the name in lower-case words.
func (m Missing) String() string { return enum.Name(missing[:], m, "missing key") }

// MarshalText returns what String does, for JSON and logs.
func (m Missing) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

type config struct {
	rules     inbound.Rules[*http.Request]
	skip      func(*http.Request) bool
	shadow    bool
	headers   Headers
	challenge string
	counted   func(status int) bool
	hook      func(context.Context, Decision)
	responder func(http.ResponseWriter, *http.Request, Decision)
	policies  *policies
}

// withContext adds a context to the parameters of f; nil stays nil.
func withContext[T any](f func(*http.Request) T) func(context.Context, *http.Request) T {
	if f == nil {
		return nil
	}
	return func(_ context.Context, r *http.Request) T { return f(r) }
}

// WithPolicy names the limit in RateLimit, by default "default". The parts of a Multi
// have their own names. It must not be empty, and be printable ASCII.
func WithPolicy(name string) Option { return func(c *config) { c.rules.Policy = name } }

// WithTier sets the limit of each request, as an option of limiter.Limiter.Allow does: of
// the plan that its customer has, say. The zero Limit is the limiter's own, which is what an unknown
// tier should get. For a Limiter there is one function. For a Multi there is one for each part,
// in the order of the parts; nil is the part's own limit.
func WithTier(limit ...func(*http.Request) limiter.Limit) Option {
	return func(c *config) {
		c.rules.Tiers = nil
		for _, of := range limit {
			c.rules.Tiers = append(c.rules.Tiers, withContext(of))
		}
	}
}

// WithCounted counts only some requests: those whose response has a status for which counted
// returns true. Every request takes its cost before it is served, and what is not counted is given back when
// it was served: by that many requests at once the limit is never exceeded. For logins, count
// http.StatusUnauthorized; around another middleware, whatever is not http.StatusTooManyRequests, so
// that what the inner one rejects takes nothing from the outer one.
//
// A request whose handler panics is counted. What is given back takes another call to Redis
// before the end of the request, within the limiter's budget. The Allower must be a Limiter or a Multi. The handler gets a
// ResponseWriter of this package, with which Flush, Hijack and http.ResponseController work.
func WithCounted(counted func(status int) bool) Option {
	return func(c *config) { c.counted, c.rules.Reserves = counted, counted != nil }
}

// WithCost sets the cost of each request, by default 1. A cost of 0 is always served;
// one that is negative, or above the limit, is answered with 400.
func WithCost(cost func(*http.Request) int) Option {
	return func(c *config) { c.rules.Cost = withContext(cost) }
}

// WithSkip skips rate limiting for requests such as health checks.
func WithSkip(skip func(*http.Request) bool) Option { return func(c *config) { c.skip = skip } }

// WithShadow decides and reports, but rejects nothing and sets no headers: to see what a
// limit would do.
func WithShadow() Option { return func(c *config) { c.shadow = true } }

// WithHeaders sets which headers are sent, by default DefaultHeaders.
func WithHeaders(h Headers) Option { return func(c *config) { c.headers = h } }

// WithMissingKey sets what a request without a key gets, by default 400.
func WithMissingKey(m Missing) Option {
	return func(c *config) { c.rules.Missing = inbound.Missing(m) }
}

// WithChallenge sets the WWW-Authenticate of a 401 for a missing key: what clients have to
// send, such as Bearer realm="things". By default it is Basic or Bearer with the policy
// as realm where the key is BasicAuthUser, or an APIKey that reads Authorization; with
// other keys MissingUnauthorized needs one. It must be printable ASCII.
func WithChallenge(challenge string) Option { return func(c *config) { c.challenge = challenge } }

// WithConcurrency also bounds how many requests of a key are served at once; name is
// its policy's. One beyond that gets 429, and what it took of the limit stays taken, except
// where [WithCounted] does not count a 429.
func WithConcurrency(sem semaphore.Acquirer, name string) Option {
	return func(c *config) { c.rules.Semaphore, c.rules.SemaphorePolicy = sem, name }
}

// WithHook adds a function that is called once for each request that is decided on,
// before it is served or rejected, with the request's context. It must be safe for concurrent use and return soon.
// Given several times, all are called, in order.
func WithHook(hook func(context.Context, Decision)) Option {
	return func(c *config) { c.hook = chain.Two(c.hook, hook) }
}

// WithResponder sets what answers the requests that are rejected. The headers are set
// already; it writes the status, which is Decision.Status, and the body.
func WithResponder(respond func(http.ResponseWriter, *http.Request, Decision)) Option {
	return func(c *config) { c.responder = respond }
}

func newConfig(allower limiter.Allower, key Key, opts []Option) (*config, error) {
	c := &config{rules: inbound.New(allower, key.key), headers: DefaultHeaders, policies: new(policies)}
	if err := configerr.Apply(c, opts); err != nil {
		return nil, err
	}
	if err := c.rules.Check(); err != nil {
		return nil, err
	}
	if c.challenge == "" && key.scheme != "" {
		realm, _ := httpsfv.Marshal(httpsfv.NewItem(c.rules.Policy))
		c.challenge = key.scheme + " realm=" + realm // quoted strings are the same in both
	}
	switch {
	case c.headers > DefaultHeaders|RateLimitDraft6:
		return nil, configerr.New("headers", uint8(c.headers), "must be made of the constants")
	case c.rules.Missing == inbound.MissingUnauthenticated && c.challenge == "":
		return nil, configerr.New("challenge", "empty", "must not be empty where a missing key is a 401, as the key has no scheme of its own")
	case c.challenge != "" && !inbound.Printable(c.challenge):
		return nil, configerr.New("challenge", c.challenge, "must be printable ASCII")
	}
	return c, nil
}
