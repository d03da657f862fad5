package main

import (
	"context"
	"strconv"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/limiter"
)

// contender decides one unit of a key. It is made for a limit per second, which
// is its burst too.
type contender struct {
	name string
	make func(addr, prefix string, limit int) (decide func(ctx context.Context, key string) error, closeIt func(), err error)
}

// gcra is the least that a script must do: the plain client's, and others' that
// bring no limiter of their own.
const gcra = `
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local tat = tonumber(redis.call('GET', KEYS[1]) or now)
if tat < now then tat = now end
local interval, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local next_ = tat + interval
if next_ - burst * interval > now then return {0, next_ - burst * interval - now} end
redis.call('SET', KEYS[1], string.format('%.0f', next_), 'PX', math.ceil((next_ - now) / 1000) + 1)
return {1, 0}`

var contenders = []contender{
	{"plain EVALSHA, go-redis", func(addr, prefix string, limit int) (func(context.Context, string) error, func(), error) {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		script := redis.NewScript(gcra)
		interval := 1e6 / float64(limit)
		return func(ctx context.Context, key string) error {
			return script.Run(ctx, rdb, []string{prefix + key}, interval, limit).Err()
		}, func() { rdb.Close() }, nil
	}},
	{"Holdfast", func(addr, prefix string, limit int) (func(context.Context, string) error, func(), error) {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		lim, err := limiter.New(rdb, limiter.GCRA(limiter.PerSecond(limit), limit), limiter.WithPrefix(prefix))
		if err != nil {
			return nil, nil, err
		}
		return func(ctx context.Context, key string) error {
			res, err := lim.Allow(ctx, key)
			if err == nil && res.Source == limiter.SourceLocal {
				return errLocal
			}
			return err
		}, func() { lim.Close(); rdb.Close() }, nil
	}},
	{"redis_rate", func(addr, prefix string, limit int) (func(context.Context, string) error, func(), error) {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		lim := redis_rate.NewLimiter(rdb)
		rate := redis_rate.PerSecond(limit)
		return func(ctx context.Context, key string) error {
			_, err := lim.Allow(ctx, prefix+key, rate)
			return err
		}, func() { rdb.Close() }, nil
	}},
	{"the plain script, rueidis", func(addr, prefix string, limit int) (func(context.Context, string) error, func(), error) {
		c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true})
		if err != nil {
			return nil, nil, err
		}
		script := rueidis.NewLuaScript(gcra)
		args := []string{strconv.FormatFloat(1e6/float64(limit), 'f', -1, 64), strconv.Itoa(limit)}
		return func(ctx context.Context, key string) error {
			return script.Exec(ctx, c, []string{prefix + key}, args).Error()
		}, c.Close, nil
	}},
}
