package limiter

import (
	"fmt"
	"reflect"
	"sync"

	"github.com/redis/go-redis/v9"
)

// name is what limiters share their counts by: a client, a prefix, and what they keep
// there.
type name struct {
	client redis.UniversalClient
	prefix string
	what   string // an algorithm, or "slots" or "sampled"
}

// names are those of the limiters of this program that are open, with their limits. A
// name is forgotten, and its client let go, when the last one is closed.
var names = struct {
	sync.Mutex
	inUse map[name]*use
}{inUse: make(map[name]*use)}

// use is how many limiters use a name, and the limit that was set last.
type use struct {
	limit any
	open  int
}

// claimed is the name that a limiter has until it releases it.
type claimed struct {
	name name
	use  *use // nil without a name
}

// claim takes a name for a limiter. Another one with another limit may not have it:
// they would share their counts, so that what one admits counts against the other.
// Clients that cannot be compared are all different.
func claim(l *link, what string, limit any) (*claimed, error) {
	c := &claimed{name: name{l.rdb, l.prefix, what}}
	if !reflect.ValueOf(l.rdb).Comparable() {
		return c, nil
	}
	names.Lock()
	defer names.Unlock()
	if u := names.inUse[c.name]; u != nil && u.limit != limit {
		return nil, &ConfigError{"prefix", l.prefix, fmt.Sprintf("is that of an open limiter with the same client and %v, with which %v would share its counts: give each a prefix of its own by WithPrefix", u.limit, limit)}
	}
	c.join(limit)
	return c, nil
}

// join is claim with the lock held.
func (c *claimed) join(limit any) {
	c.use = names.inUse[c.name]
	if c.use == nil {
		c.use = new(use)
		names.inUse[c.name] = c.use
	}
	c.use.limit = limit
	c.use.open++
}

// change takes another limit for all of the name, or another name.
func (c *claimed) change(what string, limit any) {
	names.Lock()
	defer names.Unlock()
	if c.use == nil {
		return
	}
	c.leave()
	c.name.what = what
	c.join(limit)
}

// release gives the name up.
func (c *claimed) release() {
	names.Lock()
	defer names.Unlock()
	if c.use != nil {
		c.leave()
		c.name, c.use = name{}, nil
	}
}

// leave is release with the lock held.
func (c *claimed) leave() {
	if c.use.open--; c.use.open == 0 {
		delete(names.inUse, c.name)
	}
}
