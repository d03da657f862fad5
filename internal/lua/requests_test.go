package lua_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
)

// said returns the arguments of a command as they are sent, from the number of keys on; a plain command is sent as it is.
func said(t *testing.T, cmd lua.Command) (out []string) {
	t.Helper()
	a := &answers{to: func(string, int) error { return errors.New("timeout") }} // after an answer they would be used again
	_ = lua.NewClient(a.client(t)).One(t.Context(), cmd)
	args := a.args[0]
	if args[0] == "evalsha" || args[0] == "evalsha_ro" {
		args = args[2:]
	}
	for _, arg := range args {
		switch arg := arg.(type) {
		case *string:
			out = append(out, *arg)
		case *int64:
			out = append(out, fmt.Sprint(*arg))
		case []byte:
			out = append(out, string(arg))
		default:
			out = append(out, fmt.Sprint(arg))
		}
	}
	return out
}

// TestWhatIsSent: the keys and arguments of the commands that are no decision.
func TestWhatIsSent(t *testing.T) {
	n := lua.NewNamer("p")
	leaver := func(queued bool) lua.PermitItem {
		return lua.PermitItem{Leave: &lua.Leaver{ID: "left", Key: "l", Caller: "c", Queued: queued}}
	}
	ask := lua.PermitItem{Ask: &lua.PermitAsk{ID: "asked", Key: "a", Most: 5, Keep: 1, TTL: 2, Patience: 3, Wait: true, Callers: []string{"x", "y"}}}
	for i, c := range []struct {
		of   lua.Command
		want []string
	}{
		{&lua.Beat{Now: 1, Key: "k", ID: "id", Life: 2, Longer: 3, Since: 4, Patience: 5}, []string{"1", "k", "1", "id", "2", "3", "4", "5"}},
		{&lua.Beat{Now: 1, Key: "k", Back: "b", ID: "id"}, []string{"2", "k", "b", "1", "id", "0", "0", "0", "0"}},
		{&lua.Report{Now: 1, Names: n, Process: 12, Life: 3, Asked: []lua.Asked{{ID: "x", Rate: 7}}}, []string{"3", "p:v1:sampled:{all}", "p:v1:sampled:{all}:p", "p:v1:sampled:{all}:12", "1", "12", "3", "x", "7"}},
		{&lua.Bury{Now: 1, Names: n, Process: 12}, []string{"3", "p:v1:sampled:{all}", "p:v1:sampled:{all}:p", "p:v1:sampled:{all}:12", "1", "12", "1", "500"}},
		{&lua.Bury{Now: 1, Names: n, Process: 12, Leaves: true}, []string{"3", "p:v1:sampled:{all}", "p:v1:sampled:{all}:p", "p:v1:sampled:{all}:12", "1", "12", "0", "500"}},
		{&lua.Publish{Now: 1, Names: n, Process: "x", Life: 2, Text: []byte("text")}, []string{"2", "p:v1:published:{all}", "p:v1:published:{all}:t", "1", "x", "2", "text"}},
		{&lua.Unblock{Keys: n.KeysOf(algo.GCRA, "k")}, []string{"1", "p:v2:gcra:{k}", "0"}},
		{&lua.KeepPermits{Now: 1, TTL: 2, Of: []lua.Holders{{Key: "a", Callers: []string{"x", "y"}}, {Key: "b"}}}, []string{"2", "a", "b", "1", "2", "2", "x", "y", "0"}},
		{lua.LeavePermits("k", "x", "y"), []string{"zrem", "k", "hx", "qx", "wx", "hy", "qy", "wy"}},
		{&lua.Permits{Now: 1, Nonce: "n", Items: []lua.PermitItem{leaver(false)}}, []string{"zrem", "l", "hc"}}, {&lua.Permits{Now: 1, Nonce: "n", Items: []lua.PermitItem{leaver(true)}}, []string{"1", "l", "1", "n", "1", "c", "1"}},
		{&lua.Permits{Now: 1, Nonce: "n", Items: []lua.PermitItem{leaver(false), leaver(false)}}, []string{"2", "l", "l", "1", "n", "2", "c", "0", "c", "0"}},
		{&lua.Permits{Now: 1, Nonce: "n", Items: []lua.PermitItem{ask, leaver(false)}}, []string{"2", "l", "a", "1", "n", "1", "c", "0", "-", "5", "1", "2", "3", "1", "0", "0", "2", "x", "y"}},
	} {
		if got := said(t, c.of); !slices.Equal(got, c.want) {
			t.Errorf("%d: %v, want %v", i, got, c.want)
		}
	}
	for _, item := range []lua.PermitItem{ask, leaver(true)} {
		if want := map[bool]string{true: "asked", false: "left"}[item.Ask != nil]; item.ID() != want {
			t.Errorf("%q, want %q", item.ID(), want)
		}
	}
}

// TestAlikeItemsAreSaidOnce: what is asked for in the same way shares the words for that, and how many ask is said where several
// do.
func TestAlikeItemsAreSaidOnce(t *testing.T) {
	item := func(key string, change func(*lua.Item)) lua.Item {
		p := algo.Params{Kind: algo.FixedWindow, Cap: 10, Num: 10, Den: 3_600_000_000}
		it := lua.Item{Keys: lua.NewNamer("p").KeysOf(algo.FixedWindow, key), Params: lua.NewArgs(p), Cost: 1}
		if change != nil {
			change(&it)
		}
		return it
	}
	cost := func(it *lua.Item) { it.Cost = 2 }
	larger := func(it *lua.Item) {
		it.Params = lua.NewArgs(algo.Params{Kind: algo.FixedWindow, Cap: 20, Num: 20, Den: 3_600_000_000})
	}
	const limit = 5 // arguments
	for i, c := range []struct {
		items          []lua.Item
		repeats        bool
		several, apart int // arguments beside those of keys and limits, and limits
	}{
		{[]lua.Item{item("a", nil), item("b", nil), item("c", nil)}, false, 0, 1}, {[]lua.Item{item("a", nil), item("b", cost), item("c", nil)}, false, 0, 3}, {[]lua.Item{item("a", nil), item("b", larger)}, false, 0, 2},
		{[]lua.Item{item("a", func(it *lua.Item) { it.Cost, it.Age = -1, 1 }), item("b", func(it *lua.Item) { it.Cost, it.Age = -1, 2 })}, false, 0, 2},
		{[]lua.Item{item("a", func(it *lua.Item) { it.Count = 1 }), item("b", nil)}, false, 0, 1}, {[]lua.Item{item("a", func(it *lua.Item) { it.Count = 2 }), item("b", nil)}, false, 2, 1},
		{[]lua.Item{item("a", nil), item("a", nil)}, true, 3, 1},
	} {
		got := said(t, &lua.Decide{Now: 1, Nonce: "n", Items: c.items, Repeats: c.repeats})
		if want := 1 + len(c.items) + 2 + c.several + c.apart*limit; len(got) != want {
			t.Errorf("%d: %d arguments, want %d: %v", i, len(got), want, got)
		}
	}
	for i, c := range []struct {
		items []lua.Item
		apart int
	}{
		{[]lua.Item{item("a", nil), item("b", cost), item("c", nil), item("d", cost)}, 2}, {[]lua.Item{item("a", nil), item("b", cost), item("c", nil), item("d", nil)}, 4},
		{[]lua.Item{item("a", nil), item("b", nil), item("c", larger), item("d", nil)}, 4},
	} {
		got := said(t, &lua.DecideAll{Now: 1, Nonce: "n", Of: 2, Items: c.items})
		if want := 1 + len(c.items) + 3 + c.apart*(1+limit); len(got) != want {
			t.Errorf("all, %d: %d arguments, want %d: %v", i, len(got), want, got)
		}
	}
}

// TestClockOfTheServer: after an answer that the windows of a calendar are those of another time, the next call has those of the
// time that the server says.
func TestClockOfTheServer(t *testing.T) {
	const day = 24 * 3600 * 1_000_000
	days := &algo.Calendar{
		Number: func(now int64) int64 { return now / day }, Start: func(number int64) int64 { return number * day }, Least: 16 * 3600 * 1_000_000,
	}
	p := lua.NewArgs(algo.Params{Kind: algo.FixedWindow, Cap: 10, Num: 10, Den: 16 * 3600 * 1_000_000, Calendar: days})
	server := time.Now().UnixMicro() + 400*day
	const markElsewhen = 5
	a := &answers{to: func(string, int) error { return nil }, val: func() []int64 { return []int64{server, 0, 1, markElsewhen, 0} }}
	client := lua.NewClient(a.client(t))
	for i, want := range []int64{time.Now().UnixMicro(), server, server} {
		err := client.One(t.Context(), &lua.Decide{Nonce: "n", Items: []lua.Item{{Keys: lua.NewNamer("p").KeysOf(algo.FixedWindow, "k"), Params: p, Cost: 1}}})
		if elsewhen, ok := errors.AsType[*lua.ClockError](err); !ok || elsewhen.Now != server {
			t.Fatalf("%d: %v", i, err)
		}
		// A day may have ended since.
		if text := fmt.Sprint(a.args[i]); !strings.Contains(text, days.List(want)) && !strings.Contains(text, days.List(want+day)) {
			t.Errorf("call %d has not the windows around %v: %s", i, time.UnixMicro(want), text)
		}
	}
}
