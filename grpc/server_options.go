package holdfastgrpc

import (
	"context"

	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast/internal/chain"
	"github.com/holdfast-go/holdfast/internal/configerr"
	"github.com/holdfast-go/holdfast/internal/enum"
	"github.com/holdfast-go/holdfast/internal/inbound"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/semaphore"
)

// ServerOption tunes a [Server].
type ServerOption func(*serverConfig)

// Missing says what a call gets that has no key.
type Missing uint8

// What a call without a key gets.
const (
	// MissingInvalidArgument rejects it with codes.InvalidArgument, the default.
	MissingInvalidArgument Missing = Missing(inbound.MissingRejected)
	// MissingUnauthenticated rejects it with codes.Unauthenticated.
	MissingUnauthenticated Missing = Missing(inbound.MissingUnauthenticated)
	// MissingShared lets all of them share one key.
	MissingShared Missing = Missing(inbound.MissingShared)
)

var missing = [...]string{"invalid-argument", "unauthenticated", "shared"}

// String returns the name in lower-case words.
func (m Missing) String() string { return enum.Name(missing[:], m, "missing key") }

// MarshalText returns what String does, for JSON and logs.
func (m Missing) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

type serverConfig struct {
	rules   inbound.Rules[RPC]
	skip    func(context.Context, RPC) bool
	shadow  bool
	counted func(codes.Code) bool
	hook    func(context.Context, Decision)
}

// WithPolicy names the limit in rejections, by default "default". The parts of a Multi
// have their own names. It must not be empty, and be printable ASCII.
func WithPolicy(name string) ServerOption { return func(c *serverConfig) { c.rules.Policy = name } }

// WithTier sets the limit of each call, as an option of limiter.Limiter.Allow does: of the
// plan that its customer has, say. The zero Limit is the limiter's own, which is what an unknown tier
// should get. For a Limiter there is one function. For a Multi there is one for each part, in the
// order of the parts; nil is the part's own limit. They must be safe for concurrent use.
func WithTier(limit ...func(context.Context, RPC) limiter.Limit) ServerOption {
	return func(c *serverConfig) { c.rules.Tiers = limit }
}

// WithCounted counts only some calls: those that end with a code for which counted returns true.
// Every call takes its cost before it is served, and what is not counted is given back when it was
// served: by that many calls at once the limit is never exceeded. For logins, count
// codes.Unauthenticated; around another interceptor that limits, whatever is not
// codes.ResourceExhausted, so that what the inner one rejects takes nothing from the outer one.
//
// A call whose handler panics is counted. What is given back takes another call to Redis before
// the end of the call, within the limiter's budget. The Allower must be a Limiter or a Multi.
// counted must be safe for concurrent use.
func WithCounted(counted func(codes.Code) bool) ServerOption {
	return func(c *serverConfig) { c.counted, c.rules.Reserves = counted, counted != nil }
}

// WithCost sets the cost of each call in units, by default 1: of the items in its
// request, say. A cost of 0 is always served; one that is negative, or above the limit,
// is rejected with codes.InvalidArgument. cost must be safe for concurrent use.
func WithCost(cost func(context.Context, RPC) int) ServerOption {
	return func(c *serverConfig) { c.rules.Cost = cost }
}

// WithSkip skips rate limiting for calls such as health checks. skip must be safe for
// concurrent use.
func WithSkip(skip func(context.Context, RPC) bool) ServerOption {
	return func(c *serverConfig) { c.skip = skip }
}

// WithShadow decides and reports, but rejects nothing: to see what a limit would do.
func WithShadow() ServerOption { return func(c *serverConfig) { c.shadow = true } }

// WithMissingKey sets what a call without a key gets, by default
// codes.InvalidArgument.
func WithMissingKey(m Missing) ServerOption {
	return func(c *serverConfig) { c.rules.Missing = inbound.Missing(m) }
}

// WithConcurrency also bounds how many calls of a key are served at once; name is its
// policy's. A call, or stream, holds its permit until its handler has returned, also by a
// panic. One beyond that gets codes.ResourceExhausted, and what it took of the limit stays
// taken, except where [WithCounted] does not count that code.
func WithConcurrency(sem semaphore.Acquirer, name string) ServerOption {
	return func(c *serverConfig) { c.rules.Semaphore, c.rules.SemaphorePolicy = sem, name }
}

// WithHook adds a function that is called once for each call that is decided on, before
// it is served or rejected, with the call's context. It must be safe for concurrent use and return soon. Given
// several times, all are called, in order.
func WithHook(hook func(context.Context, Decision)) ServerOption {
	return func(c *serverConfig) { c.hook = chain.Two(c.hook, hook) }
}

func newServerConfig(allower limiter.Allower, key Key, opts []ServerOption) (*serverConfig, error) {
	c := &serverConfig{rules: inbound.New(allower, key.key)}
	if err := configerr.Apply(c, opts); err != nil {
		return nil, err
	}
	return c, c.rules.Check()
}
