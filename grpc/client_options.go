package holdfastgrpc

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/internal/admission"
	"github.com/holdfast-go/holdfast/internal/configerr"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/retry"
)

// ClientOption tunes a [Client].
type ClientOption func(*clientConfig)

type clientConfig struct {
	admission  admission.Settings
	key        func(ctx context.Context, target, method string) string
	retryIf    func(method string, st *status.Status) bool
	hooks      Hooks
	idempotent map[string]bool // by the full names of methods
}

// WithLimiter paces calls by l, one unit each, under the key of [WithKey], before each
// attempt and before each stream is opened. By default nothing paces them. If l has a
// method Block(context.Context, string, time.Duration, ...limiter.Limit) error, as the
// limiters of package limiter have, it is called for every cooldown: with a distributed one the
// whole fleet then cools down.
//
// With limiter.LeakyBucketShaping, a call takes no place in the queue for which it cannot
// wait. A limiter of your own that asks one of package limiter must hand on the context that
// it receives, which says how long that is. What one that returns a Delay of its own making has
// charged for a call that cannot wait for it stays charged.
func WithLimiter(l limiter.Allower) ClientOption {
	return func(c *clientConfig) { c.admission.Limiter = l }
}

// WithKey sets what shares a limit and a cooldown, by default the target of the
// connection, as it was dialled. Quotas usually belong to credentials: then target +
// credential is the better key, and as keys may end up in Redis and in errors, a hash of
// the credential better still. A call for which key returns "" is neither paced nor
// cooled down; retries and budget apply to it as to all. key must be safe for concurrent
// use.
func WithKey(key func(ctx context.Context, target, method string) string) ClientOption {
	return func(c *clientConfig) { c.key = key }
}

// WithAttempts sets how often a call is tried in all, by default 3; 1 is without
// retries. At most 100.
func WithAttempts(n int) ClientOption { return func(c *clientConfig) { c.admission.Attempts = n } }

// WithBackoff sets the waits between attempts when the server does not name them, by
// default 500 ms doubling up to 20 s with full jitter.
func WithBackoff(b retry.Backoff) ClientOption {
	return func(c *clientConfig) { c.admission.Backoff = b }
}

// WithMaxWait caps a single wait, by default 2 minutes. When more is asked for, the last
// error is returned at once. At most 1 hour; 0 never waits.
func WithMaxWait(d time.Duration) ClientOption {
	return func(c *clientConfig) { c.admission.MaxWait = d }
}

// WithMaxTotalWait caps the sum of a call's waits, for whatever reason, by default 5
// minutes. At most 24 hours.
func WithMaxTotalWait(d time.Duration) ClientOption {
	return func(c *clientConfig) { c.admission.MaxTotal = d }
}

// WithBudget bounds retries, over all targets and all that share b. By default each
// target has a budget of its own: retries up to 20 % of the calls that succeeded in the
// last 10 s, and 10 per second in any case.
func WithBudget(b *retry.Budget) ClientOption {
	return func(c *clientConfig) { c.admission.Budget = b }
}

// WithThrottle tunes the throttle of each target, which is on by default: a target that
// fails more than two thirds of the time is sent only some of the calls, critical ones
// ([limiter.Critical]) last to be rejected; one that is down, one in 200 or, if that is
// more, 20 in two minutes. The others end at once, with [retry.HostFailing]. See [retry.Throttle]
// for how it is measured. codes.Unavailable, Internal and DataLoss are failures, and so is a
// deadline that ends a unary call after a second or more; codes.ResourceExhausted, Unknown,
// messages that cannot be encoded, and calls that their callers cancel say nothing about the target.
// Name is set by the client. OnChange is called too.
func WithThrottle(s retry.ThrottleSettings) ClientOption {
	return func(c *clientConfig) { c.admission.Throttle = &s }
}

// WithoutThrottle sends whatever a target does.
func WithoutThrottle() ClientOption { return func(c *clientConfig) { c.admission.Throttle = nil } }

// WithIdempotent names methods, as /package.Service/Method, for which it does no harm to
// do the work twice: they are tried again after any codes.Unavailable. Other methods are
// only where nothing was sent or the server named a wait. Given several times, the methods
// of all count.
func WithIdempotent(methods ...string) ClientOption {
	return func(c *clientConfig) {
		if c.idempotent == nil {
			c.idempotent = make(map[string]bool)
		}
		for _, m := range methods {
			c.idempotent[m] = true
		}
	}
}

// WithRetryIf sets which failures are worth another attempt, in place of the default:
// codes.Unavailable, as [WithIdempotent] says, and codes.ResourceExhausted with a wait.
// f alone then answers for what may have been served already. It is not asked when the
// server said not to retry. f must be safe for concurrent use.
func WithRetryIf(f func(method string, st *status.Status) bool) ClientOption {
	return func(c *clientConfig) { c.retryIf = f }
}

// WithHooks adds functions to be called when something happens. Given several times, all
// are called, in order.
func WithHooks(h Hooks) ClientOption { return func(c *clientConfig) { c.hooks = c.hooks.and(h) } }

// WithLogger sets where it is logged that keys begin to cool down and that targets begin and
// end to be throttled, by default slog.Default. Nothing is logged per call.
func WithLogger(l *slog.Logger) ClientOption { return func(c *clientConfig) { c.admission.Logger = l } }

func newClientConfig(opts []ClientOption) (*clientConfig, error) {
	c := &clientConfig{admission: admission.Defaults()}
	if err := configerr.Apply(c, opts); err != nil {
		return nil, err
	}
	for m := range c.idempotent {
		service, name, ok := strings.Cut(strings.TrimPrefix(m, "/"), "/")
		if !ok || m[0] != '/' || service == "" || name == "" || strings.Contains(name, "/") {
			return nil, configerr.New("idempotent method", m, "must be /package.Service/Method")
		}
	}
	return c, nil
}

// repeatable reports whether another attempt of a method does no harm where the server
// may have done the work: that it names a wait, or a rule of the user's, says so.
func (c *clientConfig) repeatable(method string, h hint) bool {
	return h.asked || c.retryIf != nil || c.idempotent[method]
}

// retryable reports whether the failure is one that retries are for. Without a wait,
// ResourceExhausted may also say that a message was too large, which does not change.
func (c *clientConfig) retryable(method string, st *status.Status, h hint) bool {
	if c.retryIf != nil && !h.never {
		return c.retryIf(method, st)
	}
	return st.Code() == codes.Unavailable || st.Code() == codes.ResourceExhausted && (h.asked || h.never)
}
