package httpclient

import (
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/admission"
	"github.com/holdfast-go/holdfast/internal/configerr"
	"github.com/holdfast-go/holdfast/internal/discovery"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/retry"
)

// Option tunes a [Transport].
type Option func(*config)

type config struct {
	admission      admission.Settings
	key            func(*http.Request) string
	format         func(host string) retry.ResetFormat
	classifier     func(*http.Response, error) retry.Verdict
	attemptTimeout time.Duration
	bodyBuffer     int64
	hooks          Hooks
	providers      []retry.Provider
	cooldownErrors bool
	discovery      func() (*discovery.Discovery, error)
}

// WithLimiter paces requests by l, under the key of [WithKey], before each
// attempt. By default nothing paces them. If l has a method
// Block(context.Context, string, time.Duration, ...limiter.Limit) error, as
// the limiters of package limiter have, it is called for every cooldown: with a
// distributed one the whole fleet then cools down. Such a limiter is also asked, at a
// cost of 0, for the keys of quotas that a server counts apart: see [CooldownInfo].
//
// With limiter.LeakyBucketShaping, a request takes no place in the queue for which it cannot
// wait. A limiter of your own that asks one of package limiter must hand on the context that
// it receives, which says how long that is. What one that returns a Delay of its own making has
// charged for a request that cannot wait for it stays charged.
func WithLimiter(l limiter.Allower) Option { return func(c *config) { c.admission.Limiter = l } }

// WithKey sets what shares a limit and a cooldown, by default the URL's host,
// with its port unless it is the scheme's own. Quotas usually belong to
// credentials: then host + credential is the better key, and as keys may end up
// in Redis and in errors, a hash of the credential better still. A request for
// which key returns "" is neither paced nor cooled down; retries, throttle and
// budget apply to it as to all. key must be safe for concurrent use and must
// not change the request.
func WithKey(key func(*http.Request) string) Option { return func(c *config) { c.key = key } }

// WithClassifier lets f overrule what an attempt's outcome means, for servers
// with ways of their own: a 400 that is a rejection by quota, a 500 that no retry
// repairs. f gets the response, whose status is 400 or above and whose body it
// must leave alone, or the error of the base; certificates that do not verify,
// bodies of requests that fail and callers who have gone are not asked about. [retry.Default] leaves it to the
// transport. The throttle is not concerned: see [WithThrottle]. f must be safe
// for concurrent use.
func WithClassifier(f func(resp *http.Response, err error) retry.Verdict) Option {
	return func(c *config) { c.classifier = f }
}

// WithProvider also reads the bodies of responses for rejections that nothing else shows,
// such as those in a 200, of servers that the providers stand for. Given several times, all
// count. A response of such a server, up to [retry.MaxBody], is then held back until its body has
// come, for at most half a second; it stays whole. By default, only the body of a 429 in
// JSON is read, to tell whether it ever ends.
func WithProvider(p ...retry.Provider) Option {
	return func(c *config) { c.providers = append(slices.Clip(c.providers), p...) }
}

// WithResetFormat sets what the number in X-RateLimit-Reset and its like means
// on a host (lower case, with the port unless it is the scheme's own), where
// guessing by its size is not good enough. f must be safe for concurrent use.
func WithResetFormat(f func(host string) retry.ResetFormat) Option {
	return func(c *config) { c.format = f }
}

// WithAttempts sets how often a request is tried in all, by default 3; 1 is
// without retries. At most 100. A request that the layer above repeats by itself is tried
// once: see [retry.OuterRetries] and the package's documentation.
func WithAttempts(n int) Option { return func(c *config) { c.admission.Attempts = n } }

// WithBackoff sets the waits between attempts when the server does not name
// them, by default 500 ms doubling up to 20 s with full jitter.
func WithBackoff(b retry.Backoff) Option { return func(c *config) { c.admission.Backoff = b } }

// WithMaxWait caps a single wait, by default 2 minutes. When more is asked for,
// the last response is returned at once. At most 1 hour; 0 never waits.
func WithMaxWait(d time.Duration) Option { return func(c *config) { c.admission.MaxWait = d } }

// WithMaxTotalWait caps the sum of a request's waits, for whatever reason, by
// default 5 minutes. At most 24 hours.
func WithMaxTotalWait(d time.Duration) Option { return func(c *config) { c.admission.MaxTotal = d } }

// WithBudget bounds retries, over all hosts and all that share b. By default
// each host has a budget of its own: retries up to 20 % of the requests that
// succeeded in the last 10 s, and 10 per second in any case.
func WithBudget(b *retry.Budget) Option { return func(c *config) { c.admission.Budget = b } }

// WithThrottle tunes the throttle of each host, which is on by default: a host
// that fails more than two thirds of the time is sent only some of the requests,
// critical ones ([limiter.Critical]) last to be rejected; one that is down, one
// in 200 or, if that is more, 20 in two minutes. The others end at once, with
// [retry.HostFailing]. See [retry.Throttle] for how it is measured. Transport errors,
// timeouts and statuses from 500 on are failures, except 501 and 505; 429,
// certificates that do not verify, bodies of requests that fail, callers who
// cancel, and deadlines of callers that end an attempt within a second say
// nothing about the host. Name is set by the transport. OnChange is called too.
func WithThrottle(s retry.ThrottleSettings) Option {
	return func(c *config) { c.admission.Throttle = &s }
}

// WithoutThrottle sends whatever a host does.
func WithoutThrottle() Option { return func(c *config) { c.admission.Throttle = nil } }

// WithAttemptTimeout bounds the time of an attempt until the response's headers
// have come; the body may take longer. By default there is no bound but the
// request's context and Client.Timeout. At least 1 ms; 0 is none.
func WithAttemptTimeout(d time.Duration) Option { return func(c *config) { c.attemptTimeout = d } }

// WithBodyBuffer reads a request's body of up to max bytes into memory before
// the first attempt, if it has no GetBody, so that it can be sent again. A
// longer one is sent as it comes, once. By default, 0, nothing is buffered.
// A request that is buffered has its length as its ContentLength, unless it has
// trailers. The reading ends with the request's context and Client.Timeout. It
// does not suit bodies that are written as the response is read. At most 1 GiB.
func WithBodyBuffer(max int64) Option { return func(c *config) { c.bodyBuffer = max } }

// WithAdaptive finds the rate for servers that answer 429 without saying when
// to come back: each key is paced from its first such response on, at 0.7 of
// what was sent in a second; the rate then grows by a twentieth of that per
// second, until it has doubled. By default it is off.
func WithAdaptive() Option { return func(c *config) { c.admission.Adaptive = true } }

// WithCooldownErrors returns an [*Error] for a request that is not sent because its key
// cools down. By default there is a response like the one by which the server asked for
// that, so that a caller that expects the server's errors, such as an SDK, finds them: its status
// (429 if it was no error), Retry-After with what is left, its X-RateLimit headers, a body
// of application/problem+json, and the header Holdfast-Not-Sent, by which it differs
// from an answer of the server. [GaveUp] has the Error of it.
//
// Only the process that received the server's response can make one like it. Other processes
// with the same limiter learn of the cooldown from the limiter: there, a request that cannot
// wait always ends with an *Error, whose reason is retry.Throttled.
func WithCooldownErrors() Option { return func(c *config) { c.cooldownErrors = true } }

// WithHooks adds functions to be called when something happens. Given several times,
// all are called, in order.
func WithHooks(h Hooks) Option { return func(c *config) { c.hooks = c.hooks.and(h) } }

// WithLogger sets where changes of state are logged: hosts that begin and end to
// be throttled, keys that begin to cool down. By default slog.Default. Nothing is
// logged per request.
func WithLogger(l *slog.Logger) Option { return func(c *config) { c.admission.Logger = l } }

func newConfig(opts []Option) (*config, error) {
	c := &config{admission: admission.Defaults()}
	if err := configerr.Apply(c, opts); err != nil {
		return nil, err
	}
	for _, p := range c.providers {
		if p < retry.GitHub || p > retry.GraphQL {
			return nil, configerr.New("provider", p, "must be retry.GitHub, retry.Shopify or retry.GraphQL")
		}
	}
	switch {
	case c.attemptTimeout != 0 && c.attemptTimeout < time.Millisecond: // a forgotten unit
		return nil, configerr.New("attempt timeout", c.attemptTimeout, "must be 0 or at least 1ms")
	case c.bodyBuffer < 0 || c.bodyBuffer > 1<<30:
		return nil, configerr.New("body buffer", c.bodyBuffer, "must be from 0 to 1073741824 bytes")
	}
	return c, nil
}

// keyOf returns what the request's limit and cooldown belong to.
func (c *config) keyOf(req *http.Request, call Call, host string) string {
	switch {
	case call.Key != "":
		return call.Key
	case c.key != nil:
		return c.key(req)
	default:
		return host
	}
}

// resetFormat returns how a host writes times in its quota headers.
func (c *config) resetFormat(host string) retry.ResetFormat {
	if c.format != nil {
		return c.format(host)
	}
	return retry.ResetGuess
}

// classify lets the user's classifier overrule ours. Successes and redirects
// are final for all: their bodies may have begun to stream.
func (c *config) classify(resp *http.Response, err error, ours retry.Verdict) retry.Verdict {
	if c.classifier == nil || resp != nil && resp.StatusCode < 400 {
		return ours
	}
	if v := c.classifier(resp, err); v == retry.Final || v == retry.Failed || v == retry.Rejected {
		return v
	}
	return ours
}
