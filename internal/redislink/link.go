package redislink

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/lua"
)

// Config is what a link needs to know.
type Config struct {
	Client redis.UniversalClient
	// Name is that of the breakers, before the server's address.
	Name        string
	Budget      time.Duration
	MaxInFlight int // calls per server
	Breaker     breaker.Settings
	Functions   bool

	// OnCall, if set, is called after each call, OnChange for each change of a breaker's
	// state, OnPermission once when the ACL refuses a call, and OnEval once when functions
	// cannot be used.
	OnCall       func(server string, class breaker.Class, err error, took time.Duration)
	OnChange     func(breaker.Change)
	OnPermission func(error)
	OnEval       func(error)
}

// Link is a client with its servers. It is safe for concurrent use.
type Link struct {
	Background *Background

	cfg     Config
	fair    time.Duration // an answer that took longer is slow
	plain   bool          // there is one server, as far as the client knows
	started time.Time
	lua     *lua.Client
	servers *servers
	slots   *slotMap // of a cluster
	nonces  nonces

	denied, evalOnly sync.Once
	closing          sync.Once
	closed           chan struct{}
}

// New returns a link. The error is one of the breaker's settings.
func New(c Config) (*Link, error) {
	l := &Link{
		cfg: c, Background: newBackground(), started: time.Now(),
		lua: lua.NewClient(c.Client), closed: make(chan struct{}),
	}
	l.nonces.init()
	_, l.plain = c.Client.(*redis.Client)
	if c.Functions {
		l.lua.UseFunctions(c.Client)
	}
	var err error
	if l.servers, err = newServers(l); err != nil {
		return nil, err
	}
	l.fair = min(c.Budget, l.servers.settings.SlowCall)
	return l, nil
}

// Now is the time since New, by a clock that never steps.
func (l *Link) Now() time.Duration { return time.Since(l.started) }

// Since is when t was, by the clock of Now. t must come from time.Now.
func (l *Link) Since(t time.Time) time.Duration { return t.Sub(l.started) }

// Nonce returns a string that no other call of any process has.
func (l *Link) Nonce() string { return string(l.nonces.next(nil)) }

// Server returns the server of an encoded id.
func (l *Link) Server(id string) *Server { return l.servers.forID(id) }

// Servers returns those seen so far.
func (l *Link) Servers() []*Server { return l.servers.list() }

// Functions reports whether functions are in use, and if not, why they were given up.
func (l *Link) Functions() (bool, error) { return l.lua.Functions() }

// Closed is closed when Close begins.
func (l *Link) Closed() <-chan struct{} { return l.closed }

// IsClosed reports that Close has begun.
func (l *Link) IsClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}

// Do makes a request within the budget, and says what came of it. When the class is
// breaker.ClassOK, o holds the answer and belongs to the caller again; otherwise o must
// not be used any more.
func (l *Link) Do(ctx context.Context, srv *Server, o *Op, budget time.Duration) (breaker.Class, error) {
	class, err := srv.queue.do(ctx, o, budget)
	l.watch(class != breaker.ClassOK)
	return class, err
}

// Last is Do for what Close has to say.
func (l *Link) Last(o *Op) (breaker.Class, error) {
	o.last = true
	return l.Do(context.Background(), l.Server(o.ID), o, l.cfg.Budget)
}

// called notes a call that has ended.
func (l *Link) called(srv *Server, class breaker.Class, err error, took time.Duration) {
	if l.cfg.OnCall != nil {
		l.cfg.OnCall(srv.Name, class, err, took)
	}
	if class == breaker.ClassPermission {
		l.denied.Do(func() { l.cfg.OnPermission(err) })
	}
	if l.cfg.Functions {
		if inUse, why := l.lua.Functions(); !inUse {
			l.evalOnly.Do(func() { l.cfg.OnEval(why) })
		}
	}
}

// Close ends what runs in the background and waits for calls under way. last may make
// requests by Last.
func (l *Link) Close(last func()) {
	l.closing.Do(func() {
		close(l.closed)
		l.Background.close()
		for _, srv := range l.servers.list() {
			srv.queue.stop()
		}
		last()
		for _, srv := range l.servers.list() {
			srv.queue.drain()
		}
	})
}
