package redislink

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/lua"
)

// Link is a client with its servers. It is safe for concurrent use.
type Link struct {
	Background *Background
	// Names makes the keys.
	Names *lua.Namer

	cfg     Config
	fair    time.Duration // an answer that took longer is slow
	plain   bool          // there is one server, as far as the client knows
	started time.Time
	lua     *lua.Client
	servers *servers
	slots   *slotMap // of a cluster
	nonces  nonces
	pools   pools
	fleet   *fleet

	denied, evalOnly sync.Once
	closing          sync.Once
	closed           chan struct{}
}

// New returns a link. It does not talk to Redis. The error is an *algo.FieldError, or one
// of the breaker's settings.
func New(c Config) (*Link, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	l := &Link{
		cfg: c, Background: newBackground(), Names: lua.NewNamer(c.Prefix), fleet: newFleet(c.Prefix, c.Process),
		started: time.Now(), lua: lua.NewClient(c.Client), closed: make(chan struct{}),
	}
	l.nonces.init()
	l.pools.init()
	_, l.plain = c.Client.(*redis.Client)
	if c.Functions {
		l.lua.UseFunctions(c.Client)
	}
	if l.servers, err = newServers(l); err != nil {
		return nil, err
	}
	l.fair = min(c.Budget, l.servers.settings.SlowCall)
	return l, nil
}

// Client is the client that the link was made with.
func (l *Link) Client() redis.UniversalClient { return l.cfg.Client }

// Prefix is the first part of every key.
func (l *Link) Prefix() string { return l.cfg.Prefix }

// Budget is the time that a request may take.
func (l *Link) Budget() time.Duration { return l.cfg.Budget }

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

// FunctionsError is why functions are not in use although the Config asks for them; nil
// when they are, or are not asked for.
func (l *Link) FunctionsError() error {
	if !l.cfg.Functions {
		return nil
	}
	_, err := l.lua.Functions()
	return err
}

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

// do sends commands. A hook of the client's that panics would end the program from here,
// where no caller can recover: it is an error of the commands, which may have been executed.
func (l *Link) do(ctx context.Context, cmds []lua.Command, errs []error) {
	defer func() {
		if v := recover(); v != nil {
			for i := range errs {
				if errs[i] == nil {
					errs[i] = fmt.Errorf("the redis client panicked: %v", v)
				}
			}
		}
	}()
	l.lua.Do(ctx, cmds, errs)
}

// called notes a call that has ended.
func (l *Link) called(srv *Server, class breaker.Class, err error, took time.Duration) {
	if l.cfg.OnCall != nil {
		l.cfg.OnCall(Call{srv.Name, class, err, took})
	}
	if class == breaker.ClassPermission {
		l.logPermission(err)
	}
	if l.cfg.Functions {
		if inUse, why := l.lua.Functions(); !inUse {
			l.logEval(why)
		}
	}
}

// Close ends what runs in the background, waits for calls under way, and deregisters the
// process. Before that, last may make requests by Last.
func (l *Link) Close(last func()) {
	l.closing.Do(func() {
		close(l.closed)
		l.Background.close()
		for _, srv := range l.servers.list() {
			srv.queue.stop()
		}
		last()
		l.deregister()
		for _, srv := range l.servers.list() {
			srv.queue.drain()
		}
	})
}
