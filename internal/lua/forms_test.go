package lua_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
)

// answers is a hook in the place of a server: it answers each command as the test says, nil with a decision, and notes
// what was sent.
type answers struct {
	to   func(name string, nr int) error
	pipe error // of a hook, of which the commands of a pipeline do not know
	val  func() []int64
	sent []string
	args [][]any
}

func (a *answers) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a *answers) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		a.sent, a.args = append(a.sent, cmd.Name()), append(a.args, slices.Clone(cmd.Args()))
		err := a.to(cmd.Name(), len(a.sent))
		if cmd.SetErr(err); err == nil {
			if set, ok := cmd.(interface{ SetVal([]int64) }); ok {
				v := []int64{1, 9}
				if a.val != nil {
					v = a.val()
				}
				set.SetVal(v)
			}
		}
		return err
	}
}

func (a *answers) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) (err error) {
		if a.pipe != nil {
			return a.pipe
		}
		for _, cmd := range cmds {
			err = errors.Join(err, a.ProcessHook(nil)(ctx, cmd))
		}
		return err
	}
}

// client is one whose server is a hook.
func (a *answers) client(t *testing.T) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	t.Cleanup(func() { _ = rdb.Close() })
	rdb.AddHook(a)
	return rdb
}

// request is a decision of a cost, of which 0 is a peek; below 0 it is a plain command.
func request(cost int64) lua.Command {
	if cost < 0 {
		return lua.Plain{"zrem", "key", "member"}
	}
	p := lua.NewArgs(algo.Params{Kind: algo.FixedWindow, Cap: 10, Num: 10, Den: 3_600_000_000})
	return &lua.Decide{Nonce: "n", Items: []lua.Item{{Keys: lua.NewNamer("p").KeysOf(algo.FixedWindow, "k"), Params: p, Cost: cost}}}
}

// TestFormsOfACall: a command is sent again only where an answer says that nothing was executed, in the next form: by
// whom which form is understood is remembered.
func TestFormsOfACall(t *testing.T) {
	const noScript, unknown, missing, noPerm, loading = replyError("NOSCRIPT No matching script."), replyError("ERR Unknown Command 'x'"), replyError("ERR Function not found"), replyError("NOPERM no"), replyError("LOADING wait")
	const writes = replyError("ERR Write commands are not allowed in read-only scripts")
	broken := errors.New("unknown command, NOSCRIPT, Function not found")
	for _, c := range []struct {
		name      string
		functions bool
		cost      int64
		answers   map[string]error
		sent      string // the names
		err       error
		again     string // what a second call sends
	}{
		{"a charge", false, 1, nil, "evalsha", nil, "evalsha"}, {"a peek", false, 0, nil, "evalsha_ro", nil, "evalsha_ro"},
		{"a charge by text", false, 1, map[string]error{"evalsha": noScript}, "evalsha eval", nil, "evalsha eval"},
		{"a peek by text", false, 0, map[string]error{"evalsha_ro": noScript}, "evalsha_ro eval_ro", nil, "evalsha_ro eval_ro"},
		{"never a script", false, 1, map[string]error{"evalsha": noScript, "eval": noScript}, "evalsha eval", noScript, "evalsha eval"},
		{"no peeks", false, 0, map[string]error{"evalsha_ro": unknown}, "evalsha_ro evalsha", nil, "evalsha"},
		{"no peeks by text", false, 0, map[string]error{"evalsha_ro": noScript, "eval_ro": unknown}, "evalsha_ro eval_ro eval", nil, "evalsha"},
		{"no peeks that ask for the time", false, 0, map[string]error{"evalsha_ro": writes}, "evalsha_ro evalsha", nil, "evalsha"},
		{"no peeks and no script", false, 0, map[string]error{"evalsha_ro": unknown, "evalsha": noScript}, "evalsha_ro evalsha eval", nil, "evalsha eval"},
		{"no charges", false, 1, map[string]error{"evalsha": unknown}, "evalsha", unknown, "evalsha"},
		{"a peek while it loads", false, 0, map[string]error{"evalsha_ro": loading}, "evalsha_ro", loading, "evalsha_ro"},
		{"a peek that is not answered", false, 0, map[string]error{"evalsha_ro": broken}, "evalsha_ro", broken, "evalsha_ro"},
		{"a charge that is not answered", false, 1, map[string]error{"evalsha": broken}, "evalsha", broken, "evalsha"},
		{"a function", true, 1, nil, "fcall", nil, "fcall"}, {"a function that peeks", true, 0, nil, "fcall_ro", nil, "fcall_ro"},
		{"a function that is never there", true, 1, map[string]error{"fcall": missing}, "fcall function fcall", missing, "fcall function fcall"},
		{"a library that may not be loaded", true, 1, map[string]error{"fcall": missing, "function": noPerm}, "fcall function evalsha", nil, "evalsha"},
		{"a library that cannot be loaded now", true, 1, map[string]error{"fcall": missing, "function": loading}, "fcall function", loading, "fcall function"},
		{"a library on a server that is down", true, 1, map[string]error{"fcall": missing, "function": broken}, "fcall function fcall", missing, "fcall function fcall"},
		{"no functions", true, 0, map[string]error{"fcall_ro": unknown, "evalsha_ro": unknown, "evalsha": noScript}, "fcall_ro evalsha_ro evalsha eval", nil, "evalsha eval"},
		{"no right to functions", true, 1, map[string]error{"fcall": noPerm}, "fcall evalsha", nil, "evalsha"},
		{"a function while it loads", true, 1, map[string]error{"fcall": loading}, "fcall", loading, "fcall"},
		{"a function that is not answered", true, 1, map[string]error{"fcall": broken}, "fcall", broken, "fcall"},
		{"a plain command", true, -1, nil, "zrem", nil, "zrem"}, {"a plain command that fails", true, -1, map[string]error{"zrem": noScript}, "zrem", noScript, "zrem"},
	} {
		a := &answers{to: func(name string, _ int) error { return c.answers[name] }}
		rdb := a.client(t)
		client := lua.NewClient(rdb)
		if c.functions {
			client.UseFunctions(rdb)
		}
		if err := client.One(t.Context(), request(c.cost)); !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want %v", c.name, err, c.err)
		}
		if got := strings.Join(a.sent, " "); got != c.sent {
			t.Errorf("%s: sent %s, want %s", c.name, got, c.sent)
		}
		for _, args := range a.args {
			if what := fmt.Sprint(args[1]); strings.HasPrefix(args[0].(string), "eval_") != strings.Contains(what, "redis.call") && args[0] != "eval" && args[0] != "function" {
				t.Errorf("%s: %s of %.60q", c.name, args[0], what)
			} else if ro := args[0] == "fcall_ro"; args[0] == "fcall" && what != "hf1_fw" || ro && what != "hf1_fw_ro" {
				t.Errorf("%s: %s of %s", c.name, args[0], what)
			}
		}
		rejected := c.functions && !strings.HasPrefix(c.again, "fcall") && c.cost >= 0
		if uses, err := client.Functions(); uses != (c.functions && !rejected) || (err != nil) != rejected {
			t.Errorf("%s: functions %v, %v", c.name, uses, err)
		}
		a.sent = nil
		_ = client.One(t.Context(), request(c.cost))
		if got := strings.Join(a.sent, " "); got != c.again {
			t.Errorf("%s, again: sent %s, want %s", c.name, got, c.again)
		}
	}
}

// TestAllFormsOfACall: a command may be tried in five forms, one after the other.
func TestAllFormsOfACall(t *testing.T) {
	a := &answers{to: func(name string, nr int) error {
		return map[string]error{
			"fcall_ro1": replyError("ERR Function not found"), "fcall_ro3": replyError("NOPERM no"), "evalsha_ro4": replyError("ERR unknown command"), "evalsha5": replyError("NOSCRIPT no"),
		}[fmt.Sprint(name, nr)]
	}}
	rdb := a.client(t)
	client := lua.NewClient(rdb)
	client.UseFunctions(rdb)
	if err := client.One(t.Context(), request(0)); err != nil || strings.Join(a.sent, " ") != "fcall_ro function fcall_ro evalsha_ro evalsha eval" {
		t.Errorf("%v, %v", a.sent, err)
	}
}

// TestSeveralAtOnce: commands in one write have an answer each; the library is loaded once for all; and an error of a hook is
// that of all.
func TestSeveralAtOnce(t *testing.T) {
	loaded := false
	a := &answers{to: func(name string, nr int) error {
		switch {
		case name == "function":
			loaded = true
		case !loaded && name != "zrem":
			return replyError("ERR Function not found")
		case name == "fcall" && nr == 5:
			return replyError("LOADING wait")
		}
		return nil
	}}
	rdb := a.client(t)
	client, errs := lua.NewClient(rdb), make([]error, 3)
	client.UseFunctions(rdb)
	cmds := func() []lua.Command { return []lua.Command{request(1), request(-1), request(1)} }
	client.Do(t.Context(), cmds(), errs)
	if got := strings.Join(a.sent, " "); got != "fcall zrem fcall function fcall fcall" || errs[0] == nil || errs[1] != nil || errs[2] != nil {
		t.Errorf("%s: %v", got, errs)
	}
	a.pipe = errors.New("of a hook")
	client.Do(t.Context(), cmds(), errs)
	for i, err := range errs {
		if !errors.Is(err, a.pipe) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// TestUnansweredKeepsItsArguments: a command without an answer may still be read, by a client that has left it behind.
func TestUnansweredKeepsItsArguments(t *testing.T) {
	for _, fails := range []error{errors.New("timeout"), nil} {
		doer := &keeps{err: fails}
		_ = lua.NewClient(doer).One(t.Context(), request(1))
		if has := slices.ContainsFunc(doer.cmd.Args(), func(a any) bool { return fmt.Sprint(a) == "n" }); has != (fails != nil) {
			t.Errorf("%v: the arguments are there %v", fails, has)
		}
	}
}

// keeps is a client that keeps a command.
type keeps struct {
	lua.Doer
	cmd redis.Cmder
	err error
}

func (k *keeps) Process(_ context.Context, cmd redis.Cmder) error {
	k.cmd = cmd
	return k.err
}

// TestLearntReadsNothingElse: quotas are sent where they are to be saved.
func TestLearntReadsNothingElse(t *testing.T) {
	for life, want := range map[int64]int{0: 6, 1: 13} {
		a := &answers{to: func(string, int) error { return replyError("LOADING wait") }}
		_ = lua.NewClient(a.client(t)).One(t.Context(), &lua.Learnt{Key: "k", Life: life, Quotas: make([]lua.LearntQuota, 1)})
		if n := len(a.args[0]); n != want {
			t.Errorf("a life of %d: %d arguments", life, n)
		}
	}
}

// TestNoScriptIsSentTwice: the client is told that a script must not be sent again, which would charge again.
func TestNoScriptIsSentTwice(t *testing.T) {
	doer := &keeps{err: errors.New("timeout")}
	_ = lua.NewClient(doer).One(t.Context(), request(1))
	if once, ok := doer.cmd.(interface{ NoRetry() bool }); !ok || !once.NoRetry() {
		t.Errorf("%T may be sent again", doer.cmd)
	}
}

// TestForeignReplies: what cannot be read as a reply of the scripts is not ours; what says nothing of that is what it was.
func TestForeignReplies(t *testing.T) {
	_, number := strconv.Atoi("x")
	for err, foreign := range map[error]bool{redis.Nil: true, number: true, errors.New("redis: can't parse array reply"): true, errors.New("timeout"): false, replyError("ERR redis: can't parse"): false} {
		got := lua.NewClient(&keeps{err: err}).One(t.Context(), request(1))
		if reply, is := errors.AsType[*lua.ReplyError](got); is != foreign || is && reply.What != err.Error() || !is && !errors.Is(got, err) {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// TestAlikePermitsAreSaidOnce: what asks for permits in the same way, one after the other, shares the words for that.
func TestAlikePermitsAreSaidOnce(t *testing.T) {
	ask := func(most int64, change func(*lua.PermitAsk)) *lua.PermitAsk {
		a := &lua.PermitAsk{Key: "k", Most: most, Keep: 1, TTL: 2, Patience: 3, Callers: []string{"c"}}
		if change != nil {
			change(a)
		}
		return a
	}
	for i, c := range []struct {
		asks []*lua.PermitAsk
		said int
	}{
		{[]*lua.PermitAsk{ask(5, nil), ask(5, nil), ask(5, nil)}, 1}, {[]*lua.PermitAsk{ask(5, nil), ask(6, nil), ask(5, nil)}, 3}, {[]*lua.PermitAsk{ask(5, nil), ask(6, nil), ask(6, nil)}, 2},
		{[]*lua.PermitAsk{ask(5, nil), ask(5, func(a *lua.PermitAsk) { a.Keep++ })}, 2}, {[]*lua.PermitAsk{ask(5, nil), ask(5, func(a *lua.PermitAsk) { a.TTL++ })}, 2},
		{[]*lua.PermitAsk{ask(5, nil), ask(5, func(a *lua.PermitAsk) { a.Patience++ })}, 2}, {[]*lua.PermitAsk{ask(5, nil), ask(5, func(a *lua.PermitAsk) { a.Wait = true })}, 2},
		{[]*lua.PermitAsk{ask(5, nil), ask(5, func(a *lua.PermitAsk) { a.Critical = true })}, 2}, {[]*lua.PermitAsk{ask(5, nil), ask(5, func(a *lua.PermitAsk) { a.Again = true })}, 2},
		{[]*lua.PermitAsk{ask(5, nil), ask(5, func(a *lua.PermitAsk) { a.Callers = []string{"d", "e"} })}, 1},
	} {
		a, p := &answers{to: func(string, int) error { return replyError("LOADING wait") }}, &lua.Permits{Nonce: "n"}
		for _, ask := range c.asks {
			p.Items = append(p.Items, lua.PermitItem{Ask: ask})
		}
		_ = lua.NewClient(a.client(t)).One(t.Context(), p)
		said := 0
		for _, arg := range a.args[0] {
			if arg == any("-") {
				said++
			}
		}
		if said != c.said {
			t.Errorf("%d: said %d times, want %d", i, said, c.said)
		}
	}
}
