package limiter

import (
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lua"
)

// The defaults of the options.
const (
	DefaultBudget      = 50 * time.Millisecond
	DefaultPrefix      = "holdfast"
	DefaultMaxInFlight = 128
	DefaultSlotTTL     = 15 * time.Second
	DefaultInterval    = time.Second
	DefaultTopKeys     = 1000
)

// Option tunes a limiter.
type Option func(*config)

type config struct {
	prefix      string
	budget      time.Duration
	policy      fallback.Policy
	share       float64 // 0 is learnt
	shareSet    bool
	leaseSet    bool
	reserveSet  bool
	slotTTL     time.Duration
	slotTTLSet  bool
	interval    time.Duration
	intervalSet bool
	topKeys     int
	topKeysSet  bool
	budgetSet   bool
	process     string
	functions   bool
	maxKeys     int
	maxInFlight int
	askAgain    bool
	tuning
	breaker breaker.Settings
	logger  *slog.Logger
	hooks   Hooks
}

// Options makes one option of several, applied in order.
func Options(opts ...Option) Option {
	return func(c *config) {
		for _, o := range opts {
			o(c)
		}
	}
}

// WithPrefix sets the first part of every Redis key, by default "holdfast".
// Limiters with one prefix and one algorithm share the state of equal keys, so
// give limits that mean different things different prefixes. While two are open on
// one client in one program, that is a rule: they must have the same limit, and so
// must those of NewConcurrency the same max, and those of NewSampled the same rate. It
// must be 1 to 64 bytes without braces, percent signs, spaces and control bytes.
func WithPrefix(prefix string) Option { return func(c *config) { c.prefix = prefix } }

// WithBudget bounds the time that one decision may spend on Redis, by default
// 50 ms; then the fallback decides. At least 1 ms, at most 1 minute. While the
// caller's context ends sooner, three quarters of what is left of it are the
// budget, so that there is time for an answer.
func WithBudget(d time.Duration) Option {
	return func(c *config) { c.budget, c.budgetSet = d, true }
}

// WithFallback sets what happens while Redis cannot decide, by default
// fallback.Local.
func WithFallback(p fallback.Policy) Option { return func(c *config) { c.policy = p } }

// WithShare fixes the part of the limit that this process may use while Redis
// cannot decide: 1/n for one of n processes. In (0, 1]. A share never rounds a
// limit below one unit. By default the share is 1 divided by the number of
// processes alive with the same prefix, which they learn from a heartbeat in
// Redis while they make decisions there, and keep through an outage; a process
// that has never reached Redis takes itself for the only one.
func WithShare(share float64) Option {
	return func(c *config) { c.share, c.shareSet = share, true }
}

// WithProcess names this process among those that share the prefix, by default
// at random. Limiters of one program that stand for several processes need
// different names.
func WithProcess(id string) Option { return func(c *config) { c.process = id } }

// WithFunctions uses Redis Functions (Redis 7 or later): the library "holdfast"
// is loaded where it is missing, and decisions are made by FCALL, so that the
// limiter's user needs no right to run arbitrary scripts once it is loaded.
// Where functions are not known or not permitted, EVALSHA is used and Health
// says why.
func WithFunctions() Option { return func(c *config) { c.functions = true } }

// WithMaxLocalKeys bounds how many keys the in-process limiters remember, by
// default 100,000, at about 250 bytes each; the sliding window log needs 16 more
// for each time at which it admitted something within the window.
func WithMaxLocalKeys(n int) Option { return func(c *config) { c.maxKeys = n } }

// WithMaxInFlight bounds how many calls to Redis may be without an answer at
// once, for each server, by default 128. Few are while Redis answers: decisions
// that arrive meanwhile share the next call, and wait for it within their
// budget.
func WithMaxInFlight(n int) Option { return func(c *config) { c.maxInFlight = n } }

// WithoutDenialCache asks Redis every time. By default a cost that Redis denied
// to a key is denied in this process until it could be admitted, but for at most
// 1 s, without asking again: what another process gives back or resets, and what
// Redis loses, is seen that much later. At most 4096 denials are remembered.
func WithoutDenialCache() Option { return func(c *config) { c.askAgain = true } }

// WithKeyShards splits every key into n parts, by default 1 and at most 64, that
// a cluster keeps in different slots: for keys too hot for one node. Each part has
// its exact part of the limit, so the limit is never exceeded. The parts take
// turns; when one denies, a second one is asked, and those of which it is known
// from a moment ago that they deny are passed over. A key may still be denied a
// little early, while parts that were not asked have room, and a cost can be at
// most the part's burst. Remaining is that of the part. Every process must use
// the same n. While Redis cannot decide, each part is at least one unit. It
// cannot be used with LeakyBucketShaping.
func WithKeyShards(n int) Option { return func(c *config) { c.keyShards = n } }

// WithLease takes up to k units of a key in one call and spends them in this
// process without asking, for at most maxAge; more are fetched before they are
// used up. What is not spent by then, and when the limiter is closed, goes back to
// the key, as far as that admits no more than if it had not been taken.
//
// The limit is never exceeded. For that, buckets and GCRA hold back what the rate
// produces in maxAge, so the burst must be at least k and that; the sliding
// window log looks back for the window and maxAge; and aligned windows end every
// lease. What a process holds is lost to the others, for ever when it dies, until
// it drains or the window ends. A Block, or a Reset, by another process is heeded
// when the lease is over. Remaining includes what is held.
//
// Every process must use the same options. By default there are no leases. They
// cannot be used with LeakyBucketShaping. A limit of UseLimit that has no room for
// k is asked for call by call.
func WithLease(k int, maxAge time.Duration) Option {
	return func(c *config) { c.lease, c.leaseAge, c.leaseSet = k, maxAge, true }
}

// WithCriticalHeadroom keeps the last part f of the limit for calls that are marked with
// Critical; others are denied as if the limit ended before it. Above 0 and below
// 1. The part is one of the burst, or of the window's units, rounded up; the rate
// is not divided, so others may use all of it while there is no critical call, but
// what is left of a bucket never falls below the reserve for them. The limit must
// leave at least one unit to both. Every process should use the same reserve. It
// holds in the fallback too, except in shares of a single unit.
func WithCriticalHeadroom(f float64) Option {
	return func(c *config) { c.reserve, c.reserveSet = f, true }
}

// WithSlotTTL sets after which time Redis frees a slot of a Concurrency whose
// process is not heard of any more, by default 15 s: at least 100 ms and at most
// 1 h. Slots that are held are kept by a heartbeat every third of it.
func WithSlotTTL(d time.Duration) Option {
	return func(c *config) { c.slotTTL, c.slotTTLSet = d, true }
}

// WithInterval sets how often a process of a Sampled reports, by default 1 s: at
// least 100 ms and at most 1 min. A shorter one follows sooner and counts less in
// each interval, which makes it less exact.
func WithInterval(d time.Duration) Option {
	return func(c *config) { c.interval, c.intervalSet = d, true }
}

// WithTopKeys sets how many keys a process of a Sampled follows, by default 1000: at
// least 1 and at most 100,000. Each costs Redis about 0.7 µs per process and
// interval, in reports of 500.
func WithTopKeys(n int) Option {
	return func(c *config) { c.topKeys, c.topKeysSet = n, true }
}

// WithBreaker sets when the circuit breakers open and for how long. Fields left
// zero have the defaults of breaker.Settings, but for these: OpenMax is 5 s,
// SlowCall half of the budget, ProbeTimeout a little more than the budget.
func WithBreaker(s breaker.Settings) Option { return func(c *config) { c.breaker = s } }

// WithLogger sets where changes of state are logged, by default slog.Default.
// Nothing is logged per decision.
func WithLogger(l *slog.Logger) Option { return func(c *config) { c.logger = l } }

// WithHooks adds functions to be called when something happens. Given several times,
// all are called, in order.
func WithHooks(h Hooks) Option { return func(c *config) { c.hooks = c.hooks.and(h) } }

func newConfig(opts []Option) (config, error) {
	c := config{
		prefix:      DefaultPrefix,
		budget:      DefaultBudget,
		process:     processID,
		maxKeys:     fallback.DefaultMaxKeys,
		maxInFlight: DefaultMaxInFlight,
		slotTTL:     DefaultSlotTTL,
		interval:    DefaultInterval,
		topKeys:     DefaultTopKeys,
		tuning:      tuning{keyShards: 1},
	}
	for _, o := range opts {
		if o == nil {
			return c, &ConfigError{"option", "nil", "must not be nil"}
		}
		o(&c)
	}
	if c.logger == nil {
		c.logger = slog.Default()
	}
	return c, c.validate()
}

// validate names the first field that breaks a rule.
func (c *config) validate() error {
	if rule := lua.CheckPrefix(c.prefix); rule != "" {
		return &ConfigError{"prefix", c.prefix, rule}
	}
	switch {
	case c.budget < time.Millisecond || c.budget > time.Minute:
		// Less is within the noise of a network; more is no protection.
		return &ConfigError{"budget", c.budget, "must be between 1ms and 1m"}
	case !c.policy.Valid():
		return &ConfigError{"fallback", c.policy, "must be Local, Open or Closed"}
	case c.shareSet && (math.IsNaN(c.share) || c.share <= 0 || c.share > 1):
		return &ConfigError{"share", c.share, "must be above 0 and at most 1"}
	case c.shareSet && c.policy != fallback.Local:
		return &ConfigError{"share", c.share, "has a meaning only with the fallback Local; leave it out or change the fallback, which is " + c.policy.String()}
	case c.process == "" || len(c.process) > 64:
		return &ConfigError{"process", c.process, "must be 1 to 64 bytes"}
	case c.maxKeys < 1:
		return &ConfigError{"max local keys", c.maxKeys, "must be at least 1"}
	case c.keyShards < 1 || c.keyShards > maxKeyShards:
		return &ConfigError{"key shards", c.keyShards, fmt.Sprintf("must be 1 to %d", maxKeyShards)}
	case c.leaseSet && c.lease < 1:
		return &ConfigError{"lease", c.lease, "must be at least 1 unit"}
	case c.leaseSet && (c.leaseAge < time.Millisecond || c.leaseAge > time.Hour):
		return &ConfigError{"lease age", c.leaseAge, "must be between 1ms and 1h"}
	case c.reserveSet && !(c.reserve > 0 && c.reserve < 1):
		return &ConfigError{"reserve", c.reserve, "must be above 0 and below 1"}
	case c.slotTTLSet && (c.slotTTL < 100*time.Millisecond || c.slotTTL > time.Hour):
		return &ConfigError{"slot TTL", c.slotTTL, "must be between 100ms and 1h"}
	case c.interval < 100*time.Millisecond || c.interval > time.Minute:
		return &ConfigError{"interval", c.interval, "must be between 100ms and 1m"}
	case c.topKeys < 1 || c.topKeys > 100_000:
		return &ConfigError{"top keys", c.topKeys, "must be 1 to 100,000"}
	case c.maxInFlight < 1:
		return &ConfigError{"max in flight", c.maxInFlight, "must be at least 1"}
	}
	return nil
}

// only refuses options that are those of another constructor than the one named.
func (c *config) only(constructor string) error {
	const rule = "has a meaning only for "
	switch {
	case c.slotTTLSet && constructor != "NewConcurrency":
		return &ConfigError{"slot TTL", c.slotTTL, rule + "NewConcurrency"}
	case c.intervalSet && constructor != "NewSampled":
		return &ConfigError{"interval", c.interval, rule + "NewSampled"}
	case c.topKeysSet && constructor != "NewSampled":
		return &ConfigError{"top keys", c.topKeys, rule + "NewSampled"}
	}
	return nil
}

// fits refuses a budget that the client's own timeouts would cut short, where
// they cannot be changed for the limiter alone.
func (c *config) fits(rdb redis.UniversalClient) error {
	var read, write time.Duration
	switch client := rdb.(type) {
	case *redis.ClusterClient:
		read, write = client.Options().ReadTimeout, client.Options().WriteTimeout
	case *redis.Ring:
		read, write = client.Options().ReadTimeout, client.Options().WriteTimeout
	}
	name, d := "ReadTimeout", read
	if write > 0 && (write < read || read <= 0) {
		name, d = "WriteTimeout", write
	}
	if c.budgetSet && d > 0 && d < c.budget {
		return &ConfigError{"budget", c.budget, fmt.Sprintf("is longer than the client's %s of %v, which ends calls sooner: raise that, or lower the budget", name, d)}
	}
	return nil
}

// CallOption changes one call.
type CallOption struct{ limit Limit }

// UseLimit decides this call by another limit than the limiter's own: a tier, or
// a limit that changes at run time. The state of the key is kept where that is
// meaningful: counts and tokens stay, and a smaller burst cuts them off. A
// window of another length, and another algorithm, start afresh.
func UseLimit(l Limit) CallOption { return CallOption{limit: l} }
