package lua

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Client runs the scripts: by EVALSHA, or by FCALL where functions are used and
// allowed. What only looks is sent with the read-only form of the command, so
// that a client which reads from replicas may do that. It is safe for
// concurrent use.
type Client struct {
	doer Doer
	// writable says that the server knows no read-only forms (before Redis 7).
	writable atomic.Bool

	functions atomic.Bool
	loading   sync.Mutex
	load      func(ctx context.Context, library string) error
	refused   atomic.Pointer[error]
}

// NewClient returns a client that uses EVALSHA.
func NewClient(doer Doer) *Client { return &Client{doer: doer} }

// UseFunctions makes c use FCALL, and load the library where it is missing, for
// as long as the servers allow that.
func (c *Client) UseFunctions(rdb redis.UniversalClient) {
	c.load = func(ctx context.Context, library string) error { return loadEverywhere(ctx, rdb, library) }
	c.functions.Store(true)
}

// Functions reports whether FCALL is in use, and if not, the error for which it
// was given up.
func (c *Client) Functions() (bool, error) {
	if err := c.refused.Load(); err != nil {
		return false, *err
	}
	return c.functions.Load(), nil
}

// Doer returns what sends the commands.
func (c *Client) Doer() Doer { return c.doer }

// The names of the commands, boxed once.
var (
	evalSHA   any = "evalsha"
	evalText  any = "eval"
	evalSHARO any = "evalsha_ro"
	evalRO    any = "eval_ro"
)

// run sends w, which it takes.
func (c *Client) run(ctx context.Context, s *Script, w *wire, looks bool) ([]int64, error) {
	v, err := c.try(ctx, s, w, looks)
	if err == nil || isReply(err) {
		w.free()
	}
	return v, err
}

func (c *Client) try(ctx context.Context, s *Script, w *wire, looks bool) ([]int64, error) {
	if c.functions.Load() {
		v, err := c.call(ctx, s, w, looks)
		if err == nil || !functionsRefused(err) {
			return v, err
		}
		c.giveUp(err)
	}
	if looks && !c.writable.Load() {
		v, err := eval(ctx, c.doer, s, w, evalSHARO, evalRO)
		if err == nil || !readOnlyUnknown(err) {
			return v, err
		}
		c.writable.Store(true)
	}
	return eval(ctx, c.doer, s, w, evalSHA, evalText)
}

// eval runs a script by its name; and once more by its text, which also loads it
// on the node that lacks it, when Redis says that it did not execute anything
// because it does not know the script.
func eval(ctx context.Context, rdb Doer, s *Script, w *wire, byName, byText any) ([]int64, error) {
	w.args[0], w.args[1] = byName, s.boxed
	v, err := send(ctx, rdb, w)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		w.args[0], w.args[1] = byText, s.src
		v, err = send(ctx, rdb, w)
	}
	return v, err
}

// call runs a script as a function, after loading the library if it is missing.
func (c *Client) call(ctx context.Context, s *Script, w *wire, looks bool) ([]int64, error) {
	w.args[0], w.args[1] = "fcall", s.name
	if looks {
		w.args[0], w.args[1] = "fcall_ro", s.name+"_ro"
	}
	v, err := send(ctx, c.doer, w)
	if err == nil || !functionMissing(err) {
		return v, err
	}
	c.loading.Lock()
	err = c.load(ctx, Library)
	c.loading.Unlock()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errLoad, err)
	}
	return send(ctx, c.doer, w)
}

func (c *Client) giveUp(err error) {
	if c.functions.Swap(false) {
		c.refused.Store(&err)
	}
}

func functionMissing(err error) bool {
	return isReply(err) && strings.Contains(err.Error(), "Function not found")
}

func unknownCommand(err error) bool {
	return isReply(err) && strings.Contains(strings.ToLower(err.Error()), "unknown command")
}

// readOnlyUnknown reports that there are no scripts that only read: before Redis 7, or,
// in miniredis, none that asks for the time.
func readOnlyUnknown(err error) bool {
	return unknownCommand(err) || isReply(err) && strings.Contains(err.Error(), "Write commands are not allowed in read-only scripts")
}
