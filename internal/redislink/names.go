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

// Claim takes the name of this link for a limiter, until Close; what says what it keeps, such as
// its algorithm. Another one with another limit may not have the same name: they would share
// their counts, so that what one admits counts against the other. Clients that cannot be
// compared are all different. The error is one of configuration. From then on the link is
// in use: the function of the user's begins to count, so that the first decision knows.
func (l *Link) Claim(what string, limit any) error {
	inUse.Lock()
	defer inUse.Unlock()
	if reflect.ValueOf(l.Client).Comparable() {
		if u := inUse.names[name{l.Client, l.Prefix, what}]; u != nil && u.limit != limit {
			return configerr.New("prefix", l.Prefix, "must not be that of an open limiter with the same client and another limit (%v), with which this one (%v) would share its counts: give each a prefix of its own by WithPrefix, or close the other one first", u.limit, limit)
		}
		l.join(what, limit)
	}
	l.askPeers()
	return nil
}

// Change takes another limit for all of the name, or another name.
func (l *Link) Change(what string, limit any) {
	inUse.Lock()
	defer inUse.Unlock()
	if l.name.client != nil {
		l.leave()
		l.join(what, limit)
	}
}

// keeps says what this link keeps, as it was claimed; it is "" of one without a name.
func (l *Link) keeps() string {
	inUse.Lock()
	defer inUse.Unlock()
	return l.name.what
}

// release gives the name up.
func (l *Link) release() {
	inUse.Lock()
	defer inUse.Unlock()
	l.leave()
}

// join takes a name. inUse is locked.
func (l *Link) join(what string, limit any) {
	l.name = name{l.Client, l.Prefix, what}
	u := inUse.names[l.name]
	if u == nil {
		u = new(use)
		inUse.names[l.name] = u
	}
	u.limit = limit
	u.open++
}

// leave is release with inUse locked.
func (l *Link) leave() {
	if u := inUse.names[l.name]; u != nil {
		if u.open--; u.open == 0 {
			delete(inUse.names, l.name)
		}
	}
	l.name = name{}
}
