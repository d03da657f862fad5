package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/examples/internal/demo"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
)

// fault is what is wrong with Redis.
type fault string

// The faults.
const (
	healthy fault = "none"
	killed  fault = "killed"
	frozen  fault = "frozen"
	slow    fault = "slow"
)

// The actions, as requests name them.
const (
	actionKill    = "kill"
	actionFreeze  = "freeze"
	actionSlow    = "slow"
	actionFlush   = "flush-scripts"
	actionRestore = "restore"
)

// held is a delay that only a change of the proxy's mode ends.
const held = time.Hour

// outage does to the demonstration's Redis what the buttons say. All limiters talk to
// it through a proxy. What is ours is killed and frozen itself; in front of a foreign
// server the proxy behaves as if, and the server is left alone.
type outage struct {
	srv   *demo.Redis
	proxy *faultproxy.Proxy
	// Options are those of a client that goes through the proxy.
	options redis.Options
	slowBy  time.Duration
	// changed and emptied are called after what has happened.
	changed, emptied func()

	doing sync.Mutex // one action at a time
	mu    sync.Mutex
	now   fault
}

func newOutage(srv *demo.Redis, slowBy time.Duration, changed, emptied func()) (*outage, error) {
	if srv.Options.Network == "unix" {
		return nil, fmt.Errorf("REDIS_URL is %s: must be a TCP address, since a proxy goes in front of it", srv.Options.Addr)
	}
	proxy, err := faultproxy.New(srv.Options.Addr)
	if err != nil {
		return nil, err
	}
	o := &outage{srv: srv, proxy: proxy, options: *srv.Options, slowBy: slowBy, changed: changed, emptied: emptied, now: healthy}
	o.options.Addr = proxy.Addr()
	return o, nil
}

// client is one more connection to Redis through the proxy.
func (o *outage) client() *redis.Client {
	own := o.options
	return redis.NewClient(&own)
}

func (o *outage) fault() fault {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.now
}

func (o *outage) set(f fault) {
	o.mu.Lock()
	o.now = f
	o.mu.Unlock()
	o.changed()
}

func (o *outage) foreign() bool { return o.srv.Kind == demo.Foreign }

// whyNoFlush is why the button is off; empty when it is not.
func (o *outage) whyNoFlush() string {
	if o.foreign() {
		return "Scripts belong to the whole server, and this one is not the page's to change."
	}
	return ""
}

// act does what a button says.
func (o *outage) act(action string) error {
	o.doing.Lock()
	defer o.doing.Unlock()
	now := o.fault()
	if now == killed && action != actionKill && action != actionRestore {
		return broken(http.StatusConflict, "action", quoted(action), "cannot be done while Redis is killed; restore it first")
	}
	switch action {
	case actionKill:
		return o.kill(now)
	case actionFreeze:
		return o.freeze()
	case actionSlow:
		if err := o.thaw(); err != nil {
			return err
		}
		o.proxy.Set(faultproxy.Mode{ReplyDelay: o.slowBy})
		o.set(slow)
		return nil
	case actionFlush:
		return o.flush(now)
	case actionRestore:
		return o.restore(now)
	}
	return badField("action", quoted(action), "must be one of kill, freeze, slow, flush-scripts, restore")
}

func (o *outage) kill(now fault) error {
	if now == killed {
		return nil
	}
	if o.foreign() {
		o.proxy.Set(faultproxy.Mode{Refuse: true})
		o.proxy.Reset()
	} else {
		if err := o.srv.Kill(); err != nil {
			return err
		}
		o.proxy.Pass()
		o.emptied()
	}
	o.set(killed)
	return nil
}

func (o *outage) freeze() error {
	if o.srv.Freeze != nil {
		o.proxy.Pass()
		if err := o.srv.Freeze(); err != nil {
			return err
		}
	} else {
		// Nothing is lost, and nothing comes: as with a process that is stopped.
		o.proxy.Set(faultproxy.Mode{Delay: held, ReplyDelay: held})
	}
	o.set(frozen)
	return nil
}

// thaw ends a freeze of the process itself; it does no harm to one that runs.
func (o *outage) thaw() error {
	if o.srv.Thaw == nil {
		return nil
	}
	return o.srv.Thaw()
}

func (o *outage) restore(now fault) error {
	if now == killed && !o.foreign() {
		if err := o.srv.Restart(); err != nil {
			return err
		}
	} else if err := o.thaw(); err != nil {
		// It ended by itself.
		if err := o.srv.Restart(); err != nil {
			return err
		}
	}
	o.proxy.Pass()
	o.set(healthy)
	return nil
}

// flush removes all scripts from a server that is ours: the next decision sends its
// own again.
func (o *outage) flush(now fault) error {
	if why := o.whyNoFlush(); why != "" {
		return broken(http.StatusConflict, "action", quoted(actionFlush), "is never done to the server of REDIS_URL")
	}
	if now == frozen {
		return broken(http.StatusConflict, "action", quoted(actionFlush), "cannot be done while Redis is frozen; restore it first")
	}
	own := *o.srv.Options
	rdb := redis.NewClient(&own)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	return errors.Join(rdb.ScriptFlush(ctx).Err(), rdb.Close())
}

// release ends what would hold up those who close: a Redis that says nothing.
func (o *outage) release() error {
	o.doing.Lock()
	defer o.doing.Unlock()
	now := o.fault()
	if now == healthy || now == killed {
		return nil
	}
	return o.restore(now)
}

func (o *outage) close() { o.proxy.Close() }
