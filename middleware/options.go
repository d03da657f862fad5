package middleware

import (
	"context"
	"net/http"
	"reflect"
	"strings"

	"github.com/dunglas/httpsfv"

	"github.com/holdfast-go/holdfast/internal/chain"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/semaphore"
)

// Option tunes a middleware.
type Option func(*config)

// Headers says which headers responses carry.
type Headers uint8

// The headers.
const (
	// RateLimit is RateLimit and RateLimit-Policy.
	RateLimit Headers = 1 << iota
	// XRateLimit is X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset.
	XRateLimit
	// RetryAfter is Retry-After, on refusals.
	RetryAfter

	// AllHeaders are sent by default.
	AllHeaders = RateLimit | XRateLimit | RetryAfter
)

// Missing says what a request gets that has no key.
type Missing uint8

// What a request without a key gets.
const (
	// MissingBadRequest refuses it with 400, the default.
	MissingBadRequest Missing = iota
	// MissingUnauthorized refuses it with 401 and the challenge of WithChallenge.
	MissingUnauthorized
	// MissingShared lets all of them share one key.
	MissingShared
)

func (m Missing) status() int {
	if m == MissingUnauthorized {
		return http.StatusUnauthorized
	}
	return http.StatusBadRequest
}

// decider is an Allower that takes a limit per call.
type decider interface {
	Decide(ctx context.Context, key string, n int, opts ...limiter.CallOption) (limiter.Result, error)
}

type config struct {
	allower   limiter.Allower
	key       Key
	multi     *limiter.Multi
	tiered    decider
	tier      func(*http.Request) limiter.Limit
	cost      func(*http.Request) int
	skip      func(*http.Request) bool
	shadow    bool
	headers   Headers
	missing   Missing
	challenge string
	name      string
	slots     semaphore.Acquirer
	slotsName string
	hook      func(*http.Request, Decision)
	responder func(http.ResponseWriter, *http.Request, Decision)
	policies  *policies
}

// WithPolicy names the limit in RateLimit, by default "default". The parts of a Multi
// have their own names. It must not be empty, and be printable ASCII.
func WithPolicy(name string) Option { return func(c *config) { c.name = name } }

// WithTier sets the limit of each request, as by limiter.UseLimit: of the plan that
// its customer has, say. The zero Limit is the limiter's own, which is what an unknown
// tier should get. The Allower must be a Limiter or a Local.
func WithTier(limit func(*http.Request) limiter.Limit) Option {
	return func(c *config) { c.tier = limit }
}

// WithCost sets the cost of each request, by default 1. A cost of 0 is always served;
// one that is negative, or above the limit, is answered with 400.
func WithCost(cost func(*http.Request) int) Option { return func(c *config) { c.cost = cost } }

// WithSkip serves requests without asking for them, such as health checks.
func WithSkip(skip func(*http.Request) bool) Option { return func(c *config) { c.skip = skip } }

// WithShadow asks and reports, but refuses nothing and announces nothing: to see what
// a limit would do.
func WithShadow() Option { return func(c *config) { c.shadow = true } }

// WithHeaders sets which headers are sent, by default all of them.
func WithHeaders(h Headers) Option { return func(c *config) { c.headers = h } }

// WithMissingKey sets what a request without a key gets, by default 400.
func WithMissingKey(m Missing) Option { return func(c *config) { c.missing = m } }

// WithChallenge sets the WWW-Authenticate of a 401 for a missing key: what clients have to
// send, such as Bearer realm="things". By default it is Basic or Bearer with the policy
// as realm where the key is BasicAuthUser, or an APIKey that reads Authorization; with
// other keys MissingUnauthorized needs one. It must be printable ASCII.
func WithChallenge(challenge string) Option { return func(c *config) { c.challenge = challenge } }

// WithConcurrency also bounds how many requests of a key are served at once; name is
// its policy's. One beyond that gets 429.
func WithConcurrency(slots semaphore.Acquirer, name string) Option {
	return func(c *config) { c.slots, c.slotsName = slots, name }
}

// WithHook adds a function that is called once for each request that is asked for,
// before it is served or refused. It must be safe for concurrent use and return soon.
// Given several times, all are called, in order.
func WithHook(hook func(*http.Request, Decision)) Option {
	return func(c *config) { c.hook = chain.Two(c.hook, hook) }
}

// WithResponder sets what answers the requests that are refused. The headers are set
// already; it writes the status, which is Decision.Status, and the body.
func WithResponder(respond func(http.ResponseWriter, *http.Request, Decision)) Option {
	return func(c *config) { c.responder = respond }
}

func newConfig(allower limiter.Allower, key Key, opts []Option) (*config, error) {
	c := &config{allower: allower, key: key, headers: AllHeaders, name: "default", slotsName: "concurrency"}
	for _, o := range opts {
		if o == nil {
			return nil, configError("option", "nil", "must not be nil")
		}
		o(c)
	}
	if isNil(allower) {
		return nil, configError("allower", "nil", "must not be nil")
	}
	c.multi, _ = allower.(*limiter.Multi)
	c.tiered, _ = allower.(decider)
	switch {
	case key.err != nil:
		return nil, key.err
	case key.of == nil:
		return nil, configError("key", "the zero value", "must be made by one of the functions that return a Key")
	case c.tier != nil && (c.tiered == nil || c.multi != nil):
		return nil, configError("tier", "a function", "needs a limiter that takes a limit per call, such as limiter.Limiter")
	case c.headers > AllHeaders:
		return nil, configError("headers", uint8(c.headers), "must be made of the constants")
	case c.slots != nil && isNil(c.slots):
		return nil, configError("semaphore", "nil", "must not be nil")
	case c.missing > MissingShared:
		return nil, configError("missing key", uint8(c.missing), "must be one of the constants")
	}
	for _, name := range []string{c.name, c.slotsName} {
		if _, err := httpsfv.Marshal(httpsfv.NewItem(name)); err != nil || name == "" {
			return nil, configError("policy", name, "must be printable ASCII and not empty")
		}
	}
	if c.challenge == "" && key.scheme != "" {
		realm, _ := httpsfv.Marshal(httpsfv.NewItem(c.name))
		c.challenge = key.scheme + " realm=" + realm // quoted strings are the same in both
	}
	switch {
	case c.missing == MissingUnauthorized && c.challenge == "":
		return nil, configError("challenge", "empty", "must not be empty where a missing key is a 401, as the key has no scheme of its own")
	case strings.ContainsFunc(c.challenge, func(r rune) bool { return r < ' ' || r > '~' }):
		return nil, configError("challenge", c.challenge, "must be printable ASCII")
	}
	c.policies = newPolicies()
	return c, nil
}

func isNil(v any) bool {
	if v == nil {
		return true
	}
	r := reflect.ValueOf(v)
	return r.Kind() == reflect.Pointer && r.IsNil()
}
