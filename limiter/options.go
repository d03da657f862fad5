package limiter

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/chain"
	"github.com/holdfast-go/holdfast/internal/configerr"
	"github.com/holdfast-go/holdfast/internal/inprocess"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/options"
	"github.com/holdfast-go/holdfast/internal/redislink"
)

// Option is an option of New. A constructor takes the options that apply to it, and no
// others compile.
type Option interface{ options.Limiter }

// LocalOption is an option of NewLocal and of New.
type LocalOption interface {
	options.Limiter
	options.Local
}

// RedisOption is an option of everything that lives in Redis: of New, semaphore.New and
// sampled.New.
type RedisOption interface {
	options.Limiter
	options.Semaphore
	options.Sampled
}

// HooksOption is an option of New, NewLocal, semaphore.New and sampled.New.
type HooksOption interface {
	LocalOption
	RedisOption
}

type config = options.Config[DecisionInfo]

// newConfig returns what options make of the defaults.
func newConfig[O any](opts []O) (*config, error) {
	c := &config{MaxLocalKeys: inprocess.DefaultMaxKeys, KeyShards: 1, EqualShare: 0.5}
	return c, configerr.In(pkg, options.Apply(c, opts))
}

// tuningOf returns what is to be known of every limit.
func tuningOf(c *config) tuning { return tuning{c.KeyShards, c.Lease, c.LeaseAge, c.Headroom} }

// WithPrefix sets the first part of every Redis key, by default "holdfast".
// Limiters with one prefix and one algorithm share the state of equal keys, so
// give limits that mean different things different prefixes. While two are open on
// one client in one program, that is a rule: they must have the same limit,
// semaphores the same number of permits, and sampled limiters the same rate. The prefix
// must be 1 to 64 bytes without braces, percent signs, spaces and control bytes.
func WithPrefix(prefix string) RedisOption {
	rule := lua.CheckPrefix(prefix)
	return options.Set(func(c *config) { c.Link.Prefix = prefix }, configerr.Unless(rule == "", "prefix", prefix, rule))
}

// WithBudget bounds the time that one decision may spend on Redis, by default
// 50 ms; then the fallback decides. At least 1 ms, at most 1 minute. While the
// caller's context ends sooner, three quarters of what is left of it are the
// budget, so that there is time for an answer.
func WithBudget(d time.Duration) RedisOption {
	// Less is within the noise of a network; more is no protection.
	return options.Set(func(c *config) { c.Link.Budget = d },
		configerr.Unless(d >= time.Millisecond && d <= time.Minute, "budget", d, "must be between 1ms and 1m"))
}

// WithFallback sets what happens while Redis cannot decide, by default
// fallback.Local.
func WithFallback(p fallback.Policy) RedisOption {
	return options.Set(func(c *config) { c.Link.Policy = p },
		configerr.Unless(p.Valid(), "fallback", p, "must be Local, Open or Closed"))
}

// WithShare fixes the part of the limit that this process may use while Redis
// cannot decide: 1/n for one of n processes. In (0, 1]. A share of a burst is one unit at
// least; less than a unit of a window is one unit in some windows. By default a limiter's part
// follows WithEqualShare, from the number
// of processes alive with the same prefix, which they learn from a heartbeat in
// Redis while they make decisions there, and keep through an outage; see
// WithExpectedProcesses for a process that has never reached Redis. Of permits and of
// sampled limiters every process has the same part.
func WithShare(share float64) RedisOption {
	return options.Set(func(c *config) { c.Link.Share = share },
		configerr.Unless(share > 0 && share <= 1, "share", share, "must be above 0 and at most 1")) // also NaN
}

// WithEqualShare sets which part of a key's limit the processes share equally while Redis
// cannot decide, by default 0.5. The rest follows what Redis granted each of them of that
// key before. Above 0 and at most 1. With 1 every process has the same part, whatever the
// traffic was. A lower e leaves more of the limit usable where the traffic of a key is on
// few processes, and less where it moves to others or a key is new. Every process should
// use the same e. It has no effect with WithShare.
func WithEqualShare(e float64) Option {
	return options.Set(func(c *config) { c.EqualShare = e },
		configerr.Unless(e > 0 && e <= 1, "equal share", e, "must be above 0 and at most 1")) // also NaN
}

// WithExpectedProcesses sets how many processes this one assumes that there are, until
// Redis or WithPeerCount has given a number. By default 10, at least 1. The first decision
// without Redis before that logs a warning, and Health says that the share is assumed. If
// the number is too high, a part of the limit is not used. Of a key that Redis has granted none
// of, each claims its part of what WithEqualShare shares equally, so beyond twice the number, by default, the
// limit is exceeded: 40 processes that expect 10 admit twice the limit. At most 1,000,000. It has no
// effect with WithShare.
func WithExpectedProcesses(n int) RedisOption {
	return options.Set(func(c *config) { c.Link.Expected = n },
		configerr.Unless(n >= 1 && n <= redislink.MaxProcesses, "expected processes", n, "must be 1 to %d", redislink.MaxProcesses))
}

// WithPeerCount asks count how many processes share the limit, this one included, every
// two seconds while there are decisions: also during an outage of Redis, and before Redis
// has been reached. The larger number of count's and of the heartbeat's is used. An error,
// and a number that is not between 1 and 1,000,000, leave the last good one; a number that
// is lower is taken over when it has been lower for three seconds. Health has the last error.
// With WithShare it has no effect, and count is never called.
//
// The constructor calls count for the first time, and does not wait for it. Until it has
// answered, WithExpectedProcesses holds: set both.
//
// count is called in the background, by one goroutine at a time, and must return when its
// context ends: after 5 s, or when the limiter is closed, which waits for it. See
// PeersFromDNS.
func WithPeerCount(count func(context.Context) (int, error)) RedisOption {
	return options.Set(func(c *config) { c.Link.PeerCount = count },
		configerr.Unless(count != nil, "peer count", "nil", "must be a function"))
}

// WithProcess names this process among those that share the prefix, by default
// at random. Limiters of one program that stand for several processes need
// different names: without them those of one prefix and limit count as one process, and each
// of them uses its share. It must be 1 to 64 bytes.
func WithProcess(id string) RedisOption {
	return options.Set(func(c *config) { c.Link.Process = id },
		configerr.Unless(id != "" && len(id) <= 64, "process", id, "must be 1 to 64 bytes"))
}

// WithFunctions uses Redis Functions (Redis 7 or later): the library "holdfast"
// is loaded where it is missing, and decisions are made by FCALL, so that the
// limiter's user needs no right to run arbitrary scripts once it is loaded.
// Where functions are not known or not permitted, EVALSHA is used and Health
// says why.
func WithFunctions() RedisOption {
	return options.Set(func(c *config) { c.Link.Functions = true }, nil)
}

// WithBreaker sets when the circuit breakers open and for how long. Fields left
// zero have the defaults of breaker.Settings, except these: OpenMax is 5 s,
// SlowCall half of the budget (all of it for a sampled limiter, as no caller waits for its
// reports; the time that a new connection takes does not count), ProbeTimeout a quarter more
// than the budget. A call that was not answered in seven eighths of the budget is slow whatever
// SlowCall says, so it cannot be turned off: a longer one leaves only that rule. A probe of a
// decision takes two round trips within the budget: with a SlowCall of more than half of it, a
// server whose answers take longer than that half does not return after an outage.
func WithBreaker(s breaker.Settings) RedisOption {
	return options.Set(func(c *config) { c.Link.Breaker = s }, nil)
}

// WithLogger sets where changes of state are logged, by default and for nil slog.Default.
// Nothing is logged per decision.
func WithLogger(l *slog.Logger) RedisOption {
	return options.Set(func(c *config) { c.Link.Logger = l }, nil)
}

// WithHooks adds functions to be called when something happens. Given several times,
// all are called, in order.
func WithHooks(h Hooks) HooksOption {
	return options.Set(func(c *config) {
		c.Decision, c.Link.OnChange = chain.Two(c.Decision, h.Decision), chain.Two(c.Link.OnChange, h.BreakerChange)
		if h.Call != nil {
			c.Link.OnCall = chain.Two(c.Link.OnCall, func(ctx context.Context, info redislink.Call) { h.Call(ctx, CallInfo(info)) })
		}
	}, nil)
}

// WithCriticalHeadroom keeps the last part f of the limit for calls that are marked with
// Critical; others are denied as if the limit ended before it. Above 0 and below
// 1. The part is one of the burst, or of the window's units, rounded up. The rate is not
// divided, so others may use all of it while there is no
// critical call, but what is left of a bucket never falls below the headroom for them.
// The limit must leave at least one unit to both. Every process should use the same
// headroom. It holds in the fallback too, except in shares of a single unit.
func WithCriticalHeadroom(f float64) LocalOption { return options.Headroom[DecisionInfo](f) }

// WithLimitFor sets the limit of each key: of the plan that its customer has, say. The zero
// Limit is the limiter's own, which is what an unknown key should get. A limit of the call itself
// comes first. The function is called at most once for each decision, with the
// call's context, by many goroutines at once, and must return at once: look the key up in memory.
// A Wait asks again by the limit of that moment: of New at the latest every 10 s, of NewLocal when the time
// is over that its last denial said. A cost beyond a limit that became lower ends it with
// ErrCostExceedsLimit.
// What Allow says of a limit in the options holds for its limits too. A Multi asks the
// functions of its parts, each with the key of the part. By default every key has the
// limiter's limit.
func WithLimitFor(of func(ctx context.Context, key string) Limit) LocalOption {
	return options.Set(func(c *config) { c.LimitFor = of }, configerr.Unless(of != nil, "limit for", "nil", "must not be nil"))
}

// WithMaxLocalKeys bounds how many keys the in-process limiters remember, by
// default 100,000, at least 1, at about 200 bytes each, 280 of a window in an outage; the sliding window log needs 16 more
// for each time at which it admitted something within the window. With Redis, a limiter has such
// keys in an outage; else it notes what Redis said of up to 32,768 keys, in at most 2 MB.
func WithMaxLocalKeys(n int) LocalOption { return options.LocalKeys[DecisionInfo](n) }

// WithoutDenialCache asks Redis every time. By default a cost that Redis denied
// to a key, or for which it said that nothing is left when it admitted the one before, is denied in this
// process until it could be admitted, for at most 1 s, without asking again: what another process gives back or resets, and what
// Redis loses, is seen that much later. At most 4096 denials are remembered.
func WithoutDenialCache() Option {
	return options.Set(func(c *config) { c.AskAgain = true }, nil)
}

// WithKeyShards splits every key into n parts, by default 1 and at most 64, that
// a cluster keeps in different slots: for keys too hot for one node. Each part has
// its exact part of the limit, so the limit is never exceeded. The parts take
// turns; when one denies, a second one is asked, and those of which it is known
// from a moment ago that they deny are passed over. A key may still be denied a
// little early, while parts that were not asked have room, and a cost can be at
// most the part's burst. Remaining is that of the part. Every process must use
// the same n. While Redis cannot decide, the process has a share of each part, and so one unit of
// each at least. It cannot be used with LeakyBucketShaping.
func WithKeyShards(n int) Option {
	return options.Set(func(c *config) { c.KeyShards = n },
		configerr.Unless(n >= 1 && n <= lua.MaxParts, "key shards", n, "must be 1 to %d", lua.MaxParts))
}

// WithLease takes up to k units of a key in one call and spends them in this
// process without asking, for at most maxAge; more are fetched before they are
// used up. What is not spent by then, and when the limiter is closed, goes back to
// the key, as far as that admits no more than if it had not been taken.
//
// The limit is never exceeded. For that, buckets and GCRA hold back what the rate
// produces in maxAge, so the burst must be at least k and that; the sliding
// window log counts the units of the window and maxAge; and aligned windows end every
// lease. What a process holds is lost to the others. When the process dies, the units are lost
// until they drain or the window ends. A Block, or a Reset, by another process takes effect
// when the lease is over. Remaining includes what is held.
//
// Every process must use the same options. By default there are no leases. They
// cannot be used with LeakyBucketShaping. A limit of a call that has no room for
// k is asked for call by call. k must be at least 1, and maxAge from 1 ms to 1 h.
func WithLease(k int, maxAge time.Duration) Option {
	return options.Set(func(c *config) { c.Lease, c.LeaseAge = k, maxAge },
		cmp.Or(configerr.Unless(k >= 1, "lease", k, "must be at least 1 unit"),
			configerr.Unless(maxAge >= time.Millisecond && maxAge <= time.Hour, "lease age", maxAge, "must be between 1ms and 1h")))
}
