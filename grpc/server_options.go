package holdfastgrpc

import (
	"context"

	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast/internal/chain"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/semaphore"
)

// ServerOption tunes a [Server].
type ServerOption func(*serverConfig)

// Missing says what a call gets that has no key.
type Missing uint8

// What a call without a key gets.
const (
	// MissingInvalidArgument refuses it with codes.InvalidArgument, the default.
	MissingInvalidArgument Missing = iota
	// MissingUnauthenticated refuses it with codes.Unauthenticated.
	MissingUnauthenticated
	// MissingShared lets all of them share one key.
	MissingShared
)

func (m Missing) code() codes.Code {
	if m == MissingUnauthenticated {
		return codes.Unauthenticated
	}
	return codes.InvalidArgument
}

// decider is an Allower that takes a limit per call.
type decider interface {
	Decide(ctx context.Context, key string, n int, opts ...limiter.CallOption) (limiter.Result, error)
}

type serverConfig struct {
	allower   limiter.Allower
	key       Key
	multi     *limiter.Multi
	tiered    decider
	tier      func(context.Context, RPC) limiter.Limit
	cost      func(context.Context, RPC) int
	skip      func(context.Context, RPC) bool
	shadow    bool
	missing   Missing
	name      string
	slots     semaphore.Acquirer
	slotsName string
	hook      func(context.Context, Decision)
}

// WithPolicy names the limit in refusals, by default "default". The parts of a Multi
// have their own names. It must not be empty, and be printable ASCII.
func WithPolicy(name string) ServerOption { return func(c *serverConfig) { c.name = name } }

// WithTier sets the limit of each call, as by limiter.UseLimit: of the plan that its
// customer has, say. The zero Limit is the limiter's own, which is what an unknown tier
// should get. The Allower must be a Limiter or a Local. limit must be safe for
// concurrent use.
func WithTier(limit func(context.Context, RPC) limiter.Limit) ServerOption {
	return func(c *serverConfig) { c.tier = limit }
}

// WithCost sets the cost of each call in units, by default 1: of the items in its
// request, say. A cost of 0 is always served; one that is negative, or above the limit,
// is refused with codes.InvalidArgument. cost must be safe for concurrent use.
func WithCost(cost func(context.Context, RPC) int) ServerOption {
	return func(c *serverConfig) { c.cost = cost }
}

// WithSkip serves calls without asking for them, such as health checks. skip must be
// safe for concurrent use.
func WithSkip(skip func(context.Context, RPC) bool) ServerOption {
	return func(c *serverConfig) { c.skip = skip }
}

// WithShadow asks and reports, but refuses nothing: to see what a limit would do.
func WithShadow() ServerOption { return func(c *serverConfig) { c.shadow = true } }

// WithMissingKey sets what a call without a key gets, by default
// codes.InvalidArgument.
func WithMissingKey(m Missing) ServerOption { return func(c *serverConfig) { c.missing = m } }

// WithConcurrency also bounds how many calls of a key are served at once; name is its
// policy's. A call, or stream, holds its slot until its handler has returned, also by a
// panic. One beyond that gets codes.ResourceExhausted.
func WithConcurrency(slots semaphore.Acquirer, name string) ServerOption {
	return func(c *serverConfig) { c.slots, c.slotsName = slots, name }
}

// WithHook adds a function that is called once for each call that is asked for, before
// it is served or refused. It must be safe for concurrent use and return soon. Given
// several times, all are called, in order.
func WithHook(hook func(context.Context, Decision)) ServerOption {
	return func(c *serverConfig) { c.hook = chain.Two(c.hook, hook) }
}

func newServerConfig(allower limiter.Allower, key Key, opts []ServerOption) (*serverConfig, error) {
	c := &serverConfig{allower: allower, key: key, name: "default", slotsName: "concurrency"}
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
	case c.tier != nil && c.tiered == nil:
		return nil, configError("tier", "a function", "needs a limiter that takes a limit per call, such as limiter.Limiter")
	case c.slots != nil && isNil(c.slots):
		return nil, configError("semaphore", "nil", "must not be nil")
	case c.missing > MissingShared:
		return nil, configError("missing key", uint8(c.missing), "must be one of the constants")
	}
	for _, name := range []string{c.name, c.slotsName} {
		if !printable(name) {
			return nil, configError("policy", name, "must be printable ASCII and not empty")
		}
	}
	return c, nil
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return s != ""
}
