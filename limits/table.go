package limits

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/configerr"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/redislink"
	"github.com/holdfast-go/holdfast/limiter"
)

const (
	pkg = "limits"
	// versionField holds how often the table was changed. No name has a percent sign.
	versionField = "%version"
	// MaxNames is how many names a table has at most: each process reads all of them in
	// each interval.
	MaxNames = 1000
)

// Table is a set of named limits in Redis. It is safe for concurrent use, runs no goroutine and
// needs no Close. Make one with New; the zero value is not usable.
type Table struct {
	rdb       redis.UniversalClient
	name, key string
}

// Option is an option of New.
type Option func(*tableConfig)

type tableConfig struct{ prefix string }

// WithPrefix sets the first part of the key in Redis, by default "holdfast". The rules are those
// of limiter.WithPrefix.
func WithPrefix(prefix string) Option { return func(c *tableConfig) { c.prefix = prefix } }

// New returns the table of a name, which must be 1 to 64 bytes without braces, percent signs,
// spaces and control bytes. It does not talk to Redis. The client stays the caller's. The error
// matches limiter.ErrInvalidConfig.
func New(rdb redis.UniversalClient, name string, opts ...Option) (*Table, error) {
	c := tableConfig{prefix: redislink.DefaultPrefix}
	if err := configerr.Apply(&c, opts); err != nil {
		return nil, configerr.In(pkg, err)
	}
	if configerr.IsNil(rdb) {
		return nil, configerr.In(pkg, configerr.New("client", "nil", "must be a go-redis client"))
	}
	if rule := lua.CheckPrefix(c.prefix); rule != "" {
		return nil, configerr.In(pkg, configerr.New("prefix", c.prefix, rule))
	}
	if err := checkName("table", name); err != nil {
		return nil, err
	}
	return &Table{rdb: rdb, name: name, key: lua.NewNamer(c.prefix).Limits(name)}, nil
}

// checkName rejects a name that is not one word in a key, a log line or a command line.
func checkName(field, name string) error {
	if rule := lua.CheckPrefix(name); rule != "" {
		return configerr.In(pkg, configerr.New(field, name, rule))
	}
	return nil
}

func checkLimit(name string, l limiter.Limit) error {
	if l == (limiter.Limit{}) {
		return configerr.In(pkg, configerr.New("limit", name, "must not be the zero Limit"))
	}
	if _, err := limiter.ParseLimit(l.String()); err != nil {
		return configerr.In(pkg, configerr.New("limit", name, "%v", err))
	}
	return nil
}

// Snapshot is what a table holds at one moment. The zero value is that of an empty one.
type Snapshot struct {
	// Version is how often Put and Remove have changed the table; 0 is never. It is lower
	// than before when Redis has lost changes, as in a failover.
	Version int64
	// Limits are those that can be used, Rejected why others cannot be, both by name.
	Limits   map[string]limiter.Limit
	Rejected map[string]error
}

// Read returns what the table holds. The error is that of the client.
func (t *Table) Read(ctx context.Context) (Snapshot, error) {
	cmd := readOnce{redis.NewMapStringStringCmd(ctx, "hgetall", t.key)}
	_ = t.rdb.Process(ctx, cmd)
	fields, err := cmd.Result()
	if err != nil {
		return Snapshot{}, err
	}
	s := Snapshot{Limits: map[string]limiter.Limit{}, Rejected: map[string]error{}}
	s.Version, _ = strconv.ParseInt(fields[versionField], 10, 64)
	delete(fields, versionField)
	for name, text := range fields {
		l, err := limiter.ParseLimit(text)
		if err = cmp.Or(checkName("name", name), err); err != nil {
			s.Rejected[name] = err
		} else {
			s.Limits[name] = l
		}
	}
	return s, nil
}

// readOnce is a command that the client does not send again: the next interval does.
type readOnce struct{ *redis.MapStringStringCmd }

// NoRetry is go-redis's switch for that.
func (readOnce) NoRetry() bool { return true }

// Put sets the limit of a name, for all processes that watch the table, and returns the version
// of the table. Of two that set the same name, the later one wins; those that set different names do
// not disturb each other. The error matches limiter.ErrInvalidConfig if the name or the limit breaks
// a rule, or the table has MaxNames names; otherwise it is that of the client, and the limit may
// have been set.
func (t *Table) Put(ctx context.Context, name string, l limiter.Limit) (version int64, err error) {
	if err := checkName("name", name); err != nil {
		return 0, err
	}
	if err := checkLimit(name, l); err != nil {
		return 0, err
	}
	known, err := t.rdb.HExists(ctx, t.key, name).Result()
	if err != nil {
		return 0, err
	}
	if !known {
		n, err := t.rdb.HLen(ctx, t.key).Result()
		if err != nil {
			return 0, err
		}
		if n > MaxNames { // the version is one of them
			return 0, configerr.In(pkg, configerr.New("name", name, "must be one of those in the table, which has %d, or fewer than these", MaxNames))
		}
	}
	return t.change(ctx, func(p redis.Pipeliner) { p.HSet(ctx, t.key, name, l.String()) })
}

// Remove removes a name, so that each process uses the limit of the program again, and returns
// the version of the table. A name that is not there is removed already: nothing changes, and
// the version is 0.
func (t *Table) Remove(ctx context.Context, name string) (version int64, err error) {
	if name == versionField {
		return 0, checkName("name", name)
	}
	if known, err := t.rdb.HExists(ctx, t.key, name).Result(); err != nil || !known {
		return 0, err
	}
	return t.change(ctx, func(p redis.Pipeliner) { p.HDel(ctx, t.key, name) })
}

// change changes the table and its version together.
func (t *Table) change(ctx context.Context, do func(redis.Pipeliner)) (int64, error) {
	var version *redis.IntCmd
	_, err := t.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		do(p)
		version = p.HIncrBy(ctx, t.key, versionField, 1)
		return nil
	})
	if err != nil {
		// That of a command says why a transaction was not executed.
		return 0, fmt.Errorf("%s: changing the table %q: %w", pkg, t.name, cmp.Or(version.Err(), err))
	}
	return version.Val(), nil
}

// gone reports that a table which had a version has none.
func (s Snapshot) gone(before int64) bool {
	return s.Version == 0 && before > 0 && len(s.Limits)+len(s.Rejected) == 0
}
