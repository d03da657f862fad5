package redislink

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
)

// TestVerdict: what a call says of the server is what the worst of its commands says, and among failures the one
// that takes most to be over; if none failed, what the best of its answers proves.
func TestVerdict(t *testing.T) {
	gcra := args(t, algo.GCRA)
	timeout := &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
	reset := &net.OpError{Op: "read", Err: io.EOF}
	ok := func(peeks bool, admitted int64) *command {
		c := &command{what: decisions, peeks: peeks, items: 1, decide: lua.Decide{Items: []lua.Item{{Params: *gcra, Cost: 1, Admitted: admitted}}}}
		if peeks {
			c.decide.Items[0].Cost = 0
		}
		return c
	}
	failed := func(class breaker.Class, err error, peeks bool) *command {
		c := ok(peeks, 0)
		c.class, c.err = class, err
		return c
	}
	parts := func(of ...outcome) *command {
		c := ok(false, 0)
		c.items, c.apart = len(of), of
		return c
	}
	bug, denied := errors.New("bug"), errors.New("not permitted")
	oom := rejection("OOM command not allowed")
	for name, c := range map[string]struct {
		commands []*command
		cluster  bool
		class    breaker.Class
		proof    breaker.Proof
		err      error
	}{
		"a charge":                 {[]*command{ok(false, 1)}, false, breaker.ClassOK, breaker.ProofWrite, nil},
		"a denial":                 {[]*command{ok(false, 0)}, false, breaker.ClassOK, breaker.ProofRun, nil},
		"a peek":                   {[]*command{ok(true, 0)}, false, breaker.ClassOK, breaker.ProofRead, nil},
		"a peek and a charge":      {[]*command{ok(true, 0), ok(false, 1), ok(true, 0)}, false, breaker.ClassOK, breaker.ProofWrite, nil},
		"a peek and a denial":      {[]*command{ok(true, 0), ok(false, 0)}, false, breaker.ClassOK, breaker.ProofRun, nil},
		"a bug":                    {[]*command{ok(false, 1), failed(breaker.ClassBug, bug, false)}, false, breaker.ClassBug, breaker.ProofRun, bug},
		"a bug of a peek":          {[]*command{failed(breaker.ClassBug, bug, true), ok(false, 1)}, false, breaker.ClassBug, breaker.ProofRead, bug},
		"the last of two":          {[]*command{failed(breaker.ClassBug, bug, false), failed(breaker.ClassPermission, denied, false)}, false, breaker.ClassPermission, breaker.ProofRun, denied},
		"a failure counts more":    {[]*command{failed(breaker.ClassSlow, timeout, false), failed(breaker.ClassBug, bug, false)}, false, breaker.ClassSlow, breaker.ProofRun, timeout},
		"also if it comes later":   {[]*command{failed(breaker.ClassBug, bug, false), failed(breaker.ClassSlow, timeout, true)}, false, breaker.ClassSlow, breaker.ProofRead, timeout},
		"connections":              {[]*command{failed(breaker.ClassUnavailable, reset, false)}, false, breaker.ClassUnavailable, breaker.ProofRead, reset},
		"of one of several":        {[]*command{failed(breaker.ClassUnavailable, reset, false)}, true, breaker.ClassUnavailable, breaker.ProofRun, reset},
		"no answer":                {[]*command{failed(breaker.ClassUnavailable, timeout, false)}, false, breaker.ClassUnavailable, breaker.ProofRun, timeout},
		"no answer to a peek":      {[]*command{failed(breaker.ClassUnavailable, timeout, true)}, true, breaker.ClassUnavailable, breaker.ProofRead, timeout},
		"rejected writes":          {[]*command{failed(breaker.ClassReadOnly, oom, false)}, false, breaker.ClassReadOnly, breaker.ProofRun, oom},
		"what takes most":          {[]*command{failed(breaker.ClassSlow, timeout, true), failed(breaker.ClassReadOnly, oom, false)}, false, breaker.ClassReadOnly, breaker.ProofRun, oom},
		"the first of these":       {[]*command{failed(breaker.ClassReadOnly, oom, false), failed(breaker.ClassSlow, timeout, false)}, false, breaker.ClassReadOnly, breaker.ProofRun, oom},
		"not what takes less":      {[]*command{failed(breaker.ClassReadOnly, oom, false), failed(breaker.ClassSlow, timeout, true)}, false, breaker.ClassReadOnly, breaker.ProofRun, oom},
		"what was not sent":        {[]*command{failed(breaker.ClassUnavailable, reset, true), failed(breaker.ClassUnavailable, &unsentError{timeout}, false)}, false, breaker.ClassUnavailable, breaker.ProofRead, reset},
		"apart":                    {[]*command{parts(outcome{}, outcome{})}, false, breaker.ClassOK, breaker.ProofRun, nil},
		"apart, and one fails":     {[]*command{parts(outcome{}, outcome{breaker.ClassSlow, timeout}, outcome{})}, false, breaker.ClassSlow, breaker.ProofRun, timeout},
		"apart, and none was sent": {[]*command{parts(outcome{breaker.ClassUnavailable, errUnsent}), ok(false, 1)}, false, breaker.ClassOK, breaker.ProofWrite, nil},
	} {
		f := newFlight(&wire{plain: !c.cluster})
		f.commands, f.used = append(c.commands, failed(breaker.ClassSlow, timeout, false)), len(c.commands) // one of before
		if class, proof, err := f.verdict(); class != c.class || proof != c.proof || err != c.err {
			t.Errorf("%s: %v, %v, %v; want %v, %v, %v", name, class, proof, err, c.class, c.proof, c.err)
		}
	}
}

// TestProbesStop: a probe sends its commands one by one, up to the first one that shows that the server cannot be
// reached, or until its callers have left; an answer, also a rejection, does not end it.
func TestProbesStop(t *testing.T) {
	timeout := &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
	for name, c := range map[string]struct {
		first error
		left  bool
		sent  int
	}{
		"answered":        {nil, false, 4},
		"rejected":        {rejection("OOM command not allowed"), false, 4},
		"not permitted":   {rejection("NOPERM it may not"), false, 4},
		"reset":           {&net.OpError{Op: "read", Err: io.EOF}, false, 1},
		"no answer":       {timeout, false, 1},
		"late":            {context.DeadlineExceeded, false, 1},
		"its caller left": {nil, true, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := unused(t, 128)
			q := only(l)
			q.sameSlot = true // so that there are several commands
			for q.breaker.State() == breaker.Closed {
				p, _ := q.breaker.Acquire()
				p.Report(breaker.ClassUnavailable, breaker.ProofRun, 0)
			}
			time.Sleep(time.Minute)
			f := newFlight(l.wire)
			f.clock, f.sameSlot = &q.clock, true
			a := args(t, algo.GCRA)
			for _, id := range []string{"a", "b", "c"} {
				f.add(decision(a, id, 0))
			}
			f.callers = 3
			ticket, _ := q.breaker.Acquire()
			if !q.begin(f, ticket) || f.used != 4 || f.peeks { // with one that writes
				t.Fatalf("%s: %d commands", name, f.used)
			}
			if b, ok := f.commands[3].other.(*lua.Beat); !ok || b.Key != names.Probe("a") || b.Life != 1_000_000 {
				t.Errorf("%s: it writes %+v", name, f.commands[3].other)
			}
			sent := 0
			l.wire.lua = lua.NewClient(process(func(_ context.Context, cmd redis.Cmder) error {
				if sent++; sent > 1 {
					cmd.SetErr(rejection("NOPERM it may not"))
					return cmd.Err()
				}
				if c.left {
					close(f.gone)
				}
				if c.first != nil {
					cmd.SetErr(c.first)
				} else {
					cmd.(interface{ SetVal([]int64) }).SetVal(granted)
				}
				return c.first
			}))
			f.deadline = time.Now().Add(time.Minute)
			class, _ := f.send()
			if sent != c.sent {
				t.Errorf("%s: %d commands were sent, want %d", name, sent, c.sent)
			}
			for i, cmd := range f.commands[:f.used] {
				if NeverExecuted(cmd.err) != (i >= c.sent) && i > 0 && c.sent == 1 {
					t.Errorf("%s: command %d: %v", name, i, cmd.err)
				}
				if cause := errors.Unwrap(cmd.err); i >= c.sent && (cause == nil || c.first != nil && !errors.Is(cause, c.first)) {
					t.Errorf("%s: command %d was not sent because of %v", name, i, cause)
				}
			}
			if f.answered != (class == breaker.ClassOK) {
				t.Errorf("%s: answered %v, %v", name, f.answered, class)
			}
		})
	}
}

// process answers commands by a function.
type process func(context.Context, redis.Cmder) error

func (p process) Process(ctx context.Context, cmd redis.Cmder) error { return p(ctx, cmd) }

func (p process) Pipelined(ctx context.Context, fn func(redis.Pipeliner) error) ([]redis.Cmder, error) {
	all := new(pipe)
	_ = fn(all)
	var first error
	for _, cmd := range all.cmds {
		if err := p(ctx, cmd); err != nil && first == nil {
			first = err
		}
	}
	return all.cmds, first
}

// TestFlightsAreUsedAgain: a call that is over leaves nothing for the next one in its memory: no request, no answer,
// no end.
func TestFlightsAreUsedAgain(t *testing.T) {
	l := unused(t, 128)
	gcra, window := args(t, algo.GCRA), args(t, algo.FixedWindow)
	several := func() *Op {
		return &Op{ID: "c", All: []lua.Item{{Keys: names.KeysOf(algo.GCRA, "c"), Params: *gcra, Cost: 1}, {Keys: names.KeysOf(algo.FixedWindow, "c"), Params: *window, Cost: 1}}}
	}
	back := &Op{ID: "d", Taken: &lua.Taken{Keys: names.KeysOf(algo.GCRA, "d"), Params: *gcra, Units: 1}}
	f := newFlight(l.wire)
	f.clock = &only(l).clock
	for _, o := range append(permitOps(), decision(gcra, "a", 1), decision(gcra, "a", 2), decision(gcra, "b", 0), several(), back,
		&Op{ID: "e", Keep: &lua.Holders{Callers: []string{"x"}}, TTL: 7}, &Op{ID: "f", Command: &lua.Beat{Key: "k"}}) {
		if o.done == nil {
			o.ctx, o.deadline = context.Background(), time.Now().Add(time.Minute)
		}
		if !f.add(o) {
			t.Fatal("no place for ", o.ID)
		}
	}
	l.wire.lua = lua.NewClient(process(func(_ context.Context, cmd redis.Cmder) error {
		cmd.SetErr(rejection("CROSSSLOT"))
		return cmd.Err()
	}))
	f.own = true
	f.callers = len(f.ops)
	f.ticket, _ = only(l).breaker.Acquire()
	f.sent, f.deadline = time.Now(), time.Now().Add(time.Minute)
	f.answered = true
	f.written.Store(1)
	if _, err := f.send(); err == nil || !f.crossedSlots {
		t.Fatalf("%v, crossed slots %v", err, f.crossedSlots)
	}
	used := f.used
	for _, c := range f.commands[:used] { // as they are after answers
		c.decide.Out = append(c.decide.Out, algo.Decision{Remaining: 1})
		c.all.Out = append(c.all.Out, algo.Decision{Remaining: 1})
	}
	for i, o := range f.ops {
		f.answer(i, o)
	}
	f.answered = true
	f.clear()
	fresh := newFlight(l.wire)
	is, want := reflect.ValueOf(f).Elem(), reflect.ValueOf(fresh).Elem()
	for i := range is.NumField() {
		name, v := is.Type().Field(i).Name, is.Field(i)
		switch name {
		case "wire", "clock", "fly", "outdated", "gone", "sent", "callers", "commands", "waits":
			continue // of all calls, set when it begins, or looked at below
		case "last":
			if v.Len() != 0 {
				t.Errorf("%d last places are kept", v.Len())
			}
		case "ops", "cmds", "errs", "of":
			if v.Len() != 0 {
				t.Errorf("%d %s are kept", v.Len(), name)
			}
			for k := range v.Cap() {
				if held := v.Slice(0, v.Cap()).Index(k); name != "of" && !held.IsZero() {
					t.Errorf("%s hold %v", name, held)
				}
			}
		default:
			if !v.Equal(want.Field(i)) {
				t.Errorf("%s is %v", name, v)
			}
		}
	}
	for i, c := range f.commands[:used] {
		hold := func(what string, v reflect.Value) {
			if v.Len() != 0 {
				t.Errorf("command %d has %d %s", i, v.Len(), what)
			}
			for k := range v.Cap() {
				if held := v.Slice(0, v.Cap()).Index(k); !held.IsZero() {
					t.Errorf("command %d holds %s", i, what)
				}
			}
		}
		hold("decisions", reflect.ValueOf(c.decide.Items))
		hold("sets", reflect.ValueOf(c.all.Items))
		hold("give-backs", reflect.ValueOf(c.back.Items))
		hold("permits", reflect.ValueOf(c.permits.Items))
		if len(c.decide.Out) != 0 || len(c.all.Out) != 0 || len(c.nonce.text) != 0 {
			t.Errorf("command %d has %d and %d answers, and %q", i, len(c.decide.Out), len(c.all.Out), c.nonce.text)
		}
		c.decide.Items, c.all.Items, c.back.Items, c.permits.Items, c.decide.Out, c.all.Out, c.nonce.text = nil, nil, nil, nil, nil, nil, nil
		if !reflect.DeepEqual(c, new(command)) {
			t.Errorf("command %d is %+v", i, c)
		}
	}
}
