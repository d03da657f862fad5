package main

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"
	ulule "github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/holdfast-go/holdfast/limiter"
)

// decider decides one unit of a key.
type decider func(ctx context.Context, key string) (allowed bool, err error)

// contender is made for a limit per second, which is its burst too.
type contender struct {
	name string
	make func(addr, prefix string, limit int) (decide decider, closeIt func(), err error)
	// bursts is how many times the limit it may admit at once, if not once: two
	// aligned windows can pass around their border.
	bursts float64
}

// plainScript is the least that a script must do: the plain clients', and others'
// that bring no limiter of their own.
const plainScript = `
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local tat = tonumber(redis.call('GET', KEYS[1]) or now)
if tat < now then tat = now end
local interval, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local next_ = tat + interval
if next_ - burst * interval > now then return {0, next_ - burst * interval - now} end
redis.call('SET', KEYS[1], string.format('%.0f', next_), 'PX', math.ceil((next_ - now) / 1000) + 1)
return {1, 0}`

// errLocal counts a decision that Redis did not make as an error.
var errLocal = errors.New("not decided by Redis")

// holdfast is ours, under a limit made for n per second, on a client that keeps to deadlines.
func holdfast(name string, of func(n int) limiter.Limit, opts ...func(n int) limiter.Option) contender {
	return holdfastOn(name, redis.Options{ContextTimeoutEnabled: true}, of, opts...)
}

func holdfastOn(name string, client redis.Options, of func(n int) limiter.Limit, opts ...func(n int) limiter.Option) contender {
	return contender{name: name, make: func(addr, prefix string, limit int) (decider, func(), error) {
		client.Addr = addr
		rdb := redis.NewClient(&client)
		// A budget that a machine which everything shares can keep to: this
		// measures Redis, not the fallback.
		all := []limiter.Option{limiter.WithPrefix(prefix), limiter.WithBudget(time.Second)}
		for _, o := range opts {
			all = append(all, o(limit))
		}
		lim, err := limiter.New(rdb, of(limit), all...)
		if err != nil {
			return nil, nil, errors.Join(err, rdb.Close())
		}
		return func(ctx context.Context, key string) (bool, error) {
			res, err := lim.Allow(ctx, key)
			if err == nil && res.Source == limiter.SourceLocal {
				err = errLocal
			}
			return res.Allowed, err
		}, func() { lim.Close(); rdb.Close() }, nil
	}}
}

func gcra(n int) limiter.Limit { return limiter.GCRA(limiter.PerSecond(n), n) }

const plainName = "plain EVALSHA, go-redis"

var contenders = []contender{
	{name: plainName, make: func(addr, prefix string, limit int) (decider, func(), error) {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		return scripted(rdb, prefix, limit), func() { rdb.Close() }, nil
	}},
	holdfast("Holdfast", gcra),
	holdfastOn("Holdfast, default client", redis.Options{}, gcra),
	holdfast("Holdfast, leases", gcra, func(n int) limiter.Option {
		return limiter.WithLease(min(n/4, 20_000), 100*time.Millisecond)
	}),
	{name: "redis_rate", make: func(addr, prefix string, limit int) (decider, func(), error) {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		lim, rate := redis_rate.NewLimiter(rdb), redis_rate.PerSecond(limit)
		return func(ctx context.Context, key string) (bool, error) {
			res, err := lim.Allow(ctx, prefix+key, rate)
			return err == nil && res.Allowed > 0, err
		}, func() { rdb.Close() }, nil
	}},
	{name: "throttled", make: func(addr, prefix string, limit int) (decider, func(), error) {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		store, err := goredisstore.NewCtx(rdb, prefix)
		if err != nil {
			return nil, nil, err
		}
		lim, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerSec(limit), MaxBurst: limit - 1})
		if err != nil {
			return nil, nil, err
		}
		return func(ctx context.Context, key string) (bool, error) {
			limited, _, err := lim.RateLimitCtx(ctx, key, 1)
			return err == nil && !limited, err
		}, func() { rdb.Close() }, nil
	}},
	{name: "ulule/limiter", bursts: 2, make: func(addr, prefix string, limit int) (decider, func(), error) {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		store, err := ululeredis.NewStoreWithOptions(rdb, ulule.StoreOptions{Prefix: prefix})
		if err != nil {
			return nil, nil, err
		}
		lim := ulule.New(store, ulule.Rate{Period: time.Second, Limit: int64(limit)})
		return func(ctx context.Context, key string) (bool, error) {
			res, err := lim.Get(ctx, key)
			return err == nil && !res.Reached, err
		}, func() { rdb.Close() }, nil
	}},
	{name: "plain, go-redis AutoPipeline", make: func(addr, prefix string, limit int) (decider, func(), error) {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		pipe, err := rdb.AutoPipeline()
		if err != nil {
			return nil, nil, err
		}
		return scripted(pipe, prefix, limit), func() { rdb.Close() }, nil
	}},
	{name: "plain, rueidis", make: func(addr, prefix string, limit int) (decider, func(), error) {
		c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true})
		if err != nil {
			return nil, nil, err
		}
		script := rueidis.NewLuaScript(plainScript)
		args := []string{strconv.FormatFloat(1e6/float64(limit), 'f', -1, 64), strconv.Itoa(limit)}
		return func(ctx context.Context, key string) (bool, error) {
			v, err := script.Exec(ctx, c, []string{prefix + key}, args).AsIntSlice()
			return err == nil && v[0] == 1, err
		}, c.Close, nil
	}},
}

// inProcess are ours where the answer is in the process, at a limit that they
// don't reach.
var inProcess = []contender{
	{name: plainName, make: contenders[0].make},
	holdfast("Holdfast, leases", gcra, func(n int) limiter.Option { return limiter.WithLease(n/100, 100*time.Millisecond) }),
	{name: "Holdfast, without Redis", make: func(_, _ string, limit int) (decider, func(), error) {
		lim, err := limiter.NewLocal(gcra(limit))
		if err != nil {
			return nil, nil, err
		}
		return func(ctx context.Context, key string) (bool, error) {
			res, err := lim.Allow(ctx, key)
			return res.Allowed, err
		}, func() { lim.Close() }, nil
	}},
}

// scripted runs the plain script.
func scripted(rdb redis.Scripter, prefix string, limit int) decider {
	script := redis.NewScript(plainScript)
	interval := 1e6 / float64(limit)
	return func(ctx context.Context, key string) (bool, error) {
		v, err := script.Run(ctx, rdb, []string{prefix + key}, interval, limit).Int64Slice()
		return err == nil && v[0] == 1, err
	}
}

// algorithms are ours by each.
var algorithms = []contender{
	{name: plainName, make: contenders[0].make},
	holdfast("fixed window", func(n int) limiter.Limit { return limiter.FixedWindow(limiter.PerSecond(n)) }),
	holdfast("sliding window log", func(n int) limiter.Limit { return limiter.SlidingWindowLog(limiter.PerSecond(n)) }),
	holdfast("sliding window counter", func(n int) limiter.Limit { return limiter.SlidingWindowCounter(limiter.PerSecond(n)) }),
	holdfast("token bucket", func(n int) limiter.Limit { return limiter.TokenBucket(limiter.PerSecond(n), n) }),
	holdfast("leaky bucket", func(n int) limiter.Limit { return limiter.LeakyBucket(limiter.PerSecond(n), n) }),
	holdfast("leaky bucket shaping", func(n int) limiter.Limit { return limiter.LeakyBucketShaping(limiter.PerSecond(n), n) }),
	holdfast("gcra", gcra),
}

// far are those that are measured with a Redis that is not near.
var far = []string{plainName, "Holdfast", "redis_rate", "plain, go-redis AutoPipeline", "plain, rueidis"}

// near or far: who takes part in a load.
func (l load) of(list []contender) (out []contender) {
	for _, c := range list {
		if l.away == 0 || slices.Contains(far, c.name) {
			out = append(out, c)
		}
	}
	return out
}

// matching are the contenders whose name contains only, and the plain one.
func matching(list []contender, only string) (out []contender) {
	for i, c := range list {
		if i == 0 || strings.Contains(c.name, only) {
			out = append(out, c)
		}
	}
	return out
}
