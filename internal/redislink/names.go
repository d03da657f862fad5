package redislink

import (
	"reflect"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/configerr"
)

// name is what limiters share their counts by: a client, a prefix, and what they keep
// there.
type name struct {
	client redis.UniversalClient
	prefix string
	what   string
}

// inUse has the names of this program's open limiters, with their limits. A name is
// forgotten, and its client let go, when the last one is closed.
var inUse = struct {
	sync.Mutex
	names map[name]*use
}{names: make(map[name]*use)}

// use is how many limiters use a name, and the limit that was set last.
type use struct {
	limit any
	open  int
}

// Name is the name that a limiter has until it releases it. It is safe for concurrent
// use.
type Name struct {
	name name
	use  *use // nil without a name
}

// claim takes a name for a limiter; what says what it keeps, such as its algorithm. Another one with another limit may not have the same name: they would share
// their counts, so that what one admits counts against the other. Clients that cannot be
// compared are all different. The error is one of configuration.
func claim(client redis.UniversalClient, prefix, what string, limit any) (*Name, error) {
	n := &Name{name: name{client, prefix, what}}
	if !reflect.ValueOf(client).Comparable() {
		return n, nil
	}
	inUse.Lock()
	defer inUse.Unlock()
	if u := inUse.names[n.name]; u != nil && u.limit != limit {
		return nil, configerr.New("prefix", prefix, "is that of an open limiter with the same client and %v, with which %v would share its counts: give each a prefix of its own by WithPrefix", u.limit, limit)
	}
	n.join(limit)
	return n, nil
}

// join is claim with the lock held.
func (n *Name) join(limit any) {
	n.use = inUse.names[n.name]
	if n.use == nil {
		n.use = new(use)
		inUse.names[n.name] = n.use
	}
	n.use.limit = limit
	n.use.open++
}

// Change takes another limit for all of the name, or another name.
func (n *Name) Change(what string, limit any) {
	inUse.Lock()
	defer inUse.Unlock()
	if n.use == nil {
		return
	}
	n.leave()
	n.name.what = what
	n.join(limit)
}

// Release gives the name up.
func (n *Name) Release() {
	inUse.Lock()
	defer inUse.Unlock()
	if n.use != nil {
		n.leave()
		n.name, n.use = name{}, nil
	}
}

// leave is Release with the lock held.
func (n *Name) leave() {
	if n.use.open--; n.use.open == 0 {
		delete(inUse.names, n.name)
	}
}
