package lua

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Client runs the scripts: by EVALSHA, or by FCALL where functions are used and
// allowed. A peek is sent with the read-only form of the command, so
// that a client which reads from replicas may do that. It is safe for
// concurrent use.
type Client struct {
	doer Doer
	// writable says that the server knows no read-only forms (before Redis 7).
	writable atomic.Bool

	clock Clock // of the servers to which Do sends

	functions atomic.Bool
	loading   sync.Mutex
	load      func(ctx context.Context, library string) error
	rejected  atomic.Pointer[error]
}

// Clock is what is known of the clock of a server. The zero value is for a server of which nothing is
// known. It is safe for concurrent use.
type Clock struct {
	// skew is how far it is ahead of that of this process, in µs: to a second, as far as commands with a
	// calendar have shown it.
	skew atomic.Int64
}

// at is the time for which a command is made: the one that it says, or that of the server.
func (c *Clock) at(now int64) int64 {
	if now == 0 {
		now = wall() + c.skew.Load()
	}
	return now
}

// heard notes what time it is by the clock of the server.
func (c *Clock) heard(now int64) {
	if d := now - c.at(0); d < -1_000_000 || d > 1_000_000 {
		c.skew.Store(now - wall())
	}
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
	if err := c.rejected.Load(); err != nil {
		return false, *err
	}
	return c.functions.Load(), nil
}

// The names of the commands, boxed once.
var (
	evalSHA   any = "evalsha"
	evalText  any = "eval"
	evalSHARO any = "evalsha_ro"
	evalRO    any = "eval_ro"
	fcall     any = "fcall"
	fcallRO   any = "fcall_ro"
)

// Command is one call of a script, or a plain command. Its type says what is asked, and
// holds the answer after Do. A Command is used once.
type Command interface {
	// request returns the script, its arguments, and whether it is a peek. Without a
	// script the arguments are those of a plain command.
	request(c *Clock) (s *Script, w *wire, peeks bool)
	// reply takes the answer.
	reply(v []int64) error
}

// run is one command on its way.
type run struct {
	s     *Script
	w     *wire
	peeks bool
	reads bool // it was sent in the form that only reads
	form  form
	done  bool
	err   error
}

// loaded is what came of loading the library.
type loaded struct {
	tried bool
	err   error
}

// form is how a script is called.
type form uint8

const (
	byName form = iota // EVALSHA
	byText             // EVAL
	asFunction
	afterLoad // as a function, once the library was loaded
)

// maxForms bounds in how many forms a command is tried: as a function, after loading,
// read-only by name, by name, by text.
const maxForms = 5

// Do is DoBy for servers whose clocks agree.
func (c *Client) Do(ctx context.Context, cmds []Command, errs []error) {
	c.DoBy(ctx, &c.clock, cmds, errs)
}

// DoBy runs commands, in one write where they are several, and sets the error of each. A
// command is sent again only after an answer which says that nothing was executed: the
// script or function is not known, or the form of the call is not. The clock is that of their server.
func (c *Client) DoBy(ctx context.Context, clock *Clock, cmds []Command, errs []error) {
	var room [1]run
	runs := room[:0]
	if len(cmds) > 1 {
		runs = make([]run, 0, len(cmds))
	}
	for _, cmd := range cmds {
		r := run{}
		r.s, r.w, r.peeks = cmd.request(clock)
		if r.s != nil && c.functions.Load() {
			r.form = asFunction
		}
		runs = append(runs, r)
	}
	for range maxForms {
		c.send(ctx, runs)
		again := false
		var lib loaded // once for all
		for i := range runs {
			r := &runs[i]
			if !r.done {
				r.done = r.err == nil || r.s == nil || !c.otherForm(ctx, r, &lib)
				again = again || !r.done
			}
		}
		if !again {
			break
		}
	}
	for i, cmd := range cmds {
		r := &runs[i]
		errs[i] = r.err
		if r.err == nil {
			errs[i] = cmd.reply(r.w.val())
			if c, ok := cmd.(interface{ calendarAt() int64 }); ok {
				if at := c.calendarAt(); at > 0 {
					clock.heard(at)
				}
			}
		}
		if r.err == nil || isReply(r.err) {
			r.w.free()
		}
	}
}

// wall is the time of this process, by which it chooses the windows of a calendar to send.
func wall() int64 { return time.Now().UnixMicro() }

// otherForm chooses the form in which a command is sent again after an answer which says
// that nothing was executed, if there is one.
func (c *Client) otherForm(ctx context.Context, r *run, lib *loaded) bool {
	switch {
	case r.form == asFunction && isReply(r.err) && strings.Contains(r.err.Error(), "Function not found"):
		if !lib.tried {
			c.loading.Lock()
			lib.tried, lib.err = true, c.load(ctx, Library)
			c.loading.Unlock()
		}
		err := lib.err
		if err == nil {
			r.form = afterLoad
			return true
		}
		r.err = fmt.Errorf("%w: %w", errLoad, err)
		fallthrough
	case r.form == asFunction || r.form == afterLoad:
		if !functionsRejected(r.err) {
			return false
		}
		c.giveUp(r.err)
		r.form = byName
		return true
	case r.reads && readOnlyUnknown(r.err):
		c.writable.Store(true)
		return true
	case r.form == byName && redis.HasErrorPrefix(r.err, "NOSCRIPT"):
		r.form = byText // which also loads it on the node that lacks it
		return true
	}
	return false
}

// send makes one attempt at those that are not done.
func (c *Client) send(ctx context.Context, runs []run) {
	if len(runs) == 1 {
		if r := &runs[0]; !r.done {
			r.err = foreign(c.doer.Process(ctx, c.cmd(ctx, r)))
		}
		return
	}
	sent := make([]redis.Cmder, len(runs))
	_, err := c.doer.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range runs {
			if r := &runs[i]; !r.done {
				sent[i] = c.cmd(ctx, r)
				_ = p.Process(ctx, sent[i]) // queues
			}
		}
		return nil
	})
	reported := false
	for i := range runs {
		if sent[i] != nil {
			runs[i].err = foreign(sent[i].Err())
			reported = reported || runs[i].err != nil
		}
	}
	if err == nil || reported {
		return
	}
	for i := range runs { // a hook's error, of which the commands do not know
		if sent[i] != nil {
			runs[i].err = err
		}
	}
}

// cmd makes the command of a run, in its form.
func (c *Client) cmd(ctx context.Context, r *run) redis.Cmder {
	w := r.w
	if r.s == nil {
		w.plain = redis.NewIntCmd(ctx, w.args...)
		return w.plain
	}
	switch r.form {
	case asFunction, afterLoad:
		w.args[0], w.args[1] = fcall, r.s.name
		if r.peeks {
			w.args[0], w.args[1] = fcallRO, r.s.name+"_ro"
		}
	case byText:
		w.args[0], w.args[1] = evalText, r.s.src
		if r.reads = r.peeks && !c.writable.Load(); r.reads {
			w.args[0] = evalRO
		}
	default:
		w.args[0], w.args[1] = evalSHA, r.s.sha
		if r.reads = r.peeks && !c.writable.Load(); r.reads {
			w.args[0] = evalSHARO
		}
	}
	if w.gate.by != nil {
		w.gate.script, w.gate.sha = w.args[1], nil
		if r.form == byName {
			w.gate.sha = r.s.bytes
		}
		w.args[1] = &w.gate
	}
	w.cmd = *redis.NewIntSliceCmd(ctx, w.args...)
	return once{&w.cmd}
}

func (c *Client) giveUp(err error) {
	if c.functions.Swap(false) {
		c.rejected.Store(&err)
	}
}

func unknownCommand(err error) bool {
	return isReply(err) && strings.Contains(strings.ToLower(err.Error()), "unknown command")
}

// readOnlyUnknown reports that there are no scripts that only read: before Redis 7, or,
// in miniredis, none that asks for the time.
func readOnlyUnknown(err error) bool {
	return unknownCommand(err) || isReply(err) && strings.Contains(err.Error(), "Write commands are not allowed in read-only scripts")
}
