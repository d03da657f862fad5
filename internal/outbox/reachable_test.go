package outbox

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/inprocess"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/redislink"
)

// answering is a client of a Redis that takes all that it is sent, or of one that cannot be dialled,
// and notes the keys of each command. Those of debts, give-backs and blocks begin with these words.
type answering struct {
	redis.UniversalClient
	mu       sync.Mutex
	down     bool
	hold     chan struct{} // if set, commands are not executed before it is closed
	commands [][]string
}

// several are commands that are sent together.
type several struct {
	redis.Pipeliner
	commands []redis.Cmder
}

func (s *several) Process(_ context.Context, cmd redis.Cmder) error {
	s.commands = append(s.commands, cmd)
	return nil
}

func (a *answering) Pipelined(ctx context.Context, fn func(redis.Pipeliner) error) ([]redis.Cmder, error) {
	s := new(several)
	_ = fn(s)
	for _, cmd := range s.commands {
		_ = a.Process(ctx, cmd)
	}
	return s.commands, nil
}

func (a *answering) Process(_ context.Context, cmd redis.Cmder) error {
	if a.hold != nil {
		<-a.hold
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	args := cmd.Args()
	if args[0] != "evalsha" {
		return nil
	}
	var ids []string
	reply := []int64{}
	for _, arg := range args[3 : 3+args[2].(int)] {
		name, id, _ := strings.Cut(*arg.(*string), "{")
		if id = strings.TrimSuffix(id, "}"); strings.Contains(name, "probe") {
			id = "heartbeat"
		}
		ids = append(ids, id)
		switch {
		case strings.HasPrefix(id, "debt"):
			if len(reply) == 0 {
				reply = append(reply, time.Now().UnixMicro())
			}
			reply = append(reply, 500)
		case strings.HasPrefix(id, "block"):
			reply = append(reply, 1e9)
		case strings.HasPrefix(id, "back"):
			reply = append(reply, 1)
		default: // a heartbeat, or that of a probe: of two processes this one is back
			reply = []int64{2, 1, 0, 0}
		}
	}
	a.commands = append(a.commands, ids)
	if a.down {
		cmd.SetErr(errDial)
	} else {
		cmd.(interface{ SetVal([]int64) }).SetVal(reply)
	}
	return cmd.Err()
}

// lose loses the server, or brings it back, and forgets the commands.
func (a *answering) lose(down bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.down, a.commands = down, nil
}

// ids are those that begin with a word, of all commands.
func (a *answering) ids(word string) (all []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, ids := range a.commands {
		for _, id := range ids {
			if strings.HasPrefix(id, word) {
				all = append(all, id)
			}
		}
	}
	return all
}

// reachable returns an outbox of a Redis that answers, with debts of two calls and a bit more,
// units to be given back and a block.
func reachable(t *testing.T, kind algo.Kind, set breaker.Settings) (*Outbox, *redislink.Link, *inprocess.Store, *answering) {
	t.Helper()
	a := new(answering)
	link, err := redislink.New(redislink.Config{Client: a, Prefix: "p", Budget: 50 * time.Millisecond, Breaker: set})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { link.Close(func() {}) })
	local := inprocess.NewStore(1000)
	b := New(link, local)
	p := limit(t, kind)
	for i := range debts {
		local.Take(fmt.Sprint("debt", i), &p, 7, &p, nil)
	}
	for i := range credits {
		b.keep(taken(t, link, fmt.Sprint("back", i), 1))
	}
	local.Block("block", limit(t, algo.GCRA), 1e9)
	return b, link, local, a
}

const debts, credits = 2*callKeys + 2, callKeys + 2

// stays are settings of a breaker that stays closed.
var stays = breaker.Settings{MinRequests: 1e6, ConsecutiveFailures: 1e6}

// TestAllIsSent: a Redis that answers is sent all of it, each once.
func TestAllIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, local, a := reachable(t, algo.FixedWindow, stays)
		for range 2 { // the second time there is nothing
			b.Reconcile(t.Context())
			for word, want := range map[string]int{"debt": debts, "back": credits, "block": 1} {
				got := a.ids(word)
				slices.Sort(got)
				if len(got) != want || len(slices.Compact(got)) != want {
					t.Errorf("%d of %s were sent, want %d", len(got), word, want)
				}
			}
		}
		if local.Owed() != 0 || b.waiting.Load() != 0 || local.UnsentAny() || b.Reconciled() != debts {
			t.Errorf("%d are owed, %d wait, a block: %v, %d reconciled", local.Owed(), b.waiting.Load(), local.UnsentAny(), b.Reconciled())
		}
	})
}

// TestWhatADecisionSends: a denial does not show that Redis takes writes, but units that wait to be given back
// may be why it denies. A charge shows that it takes everything.
func TestWhatADecisionSends(t *testing.T) {
	for charged, want := range map[bool]map[string]int{
		false: {"debt": 0, "back": credits, "block": 0},
		true:  {"debt": debts, "back": credits, "block": 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			b, _, _, a := reachable(t, algo.FixedWindow, stays)
			b.Decided(charged)
			time.Sleep(spread)
			synctest.Wait()
			for word, n := range want {
				if got := len(a.ids(word)); got != n {
					t.Errorf("charged is %v: %d of %s were sent, want %d", charged, got, word, n)
				}
			}
		})
	}
}

// TestNothingIsSentAfterTheEnd: of a context, or of a link.
func TestNothingIsSentAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, link, local, a := reachable(t, algo.FixedWindow, stays)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		b.Reconcile(ctx)
		if len(a.commands) != 0 || local.Owed() != debts || b.waiting.Load() != credits || !local.UnsentAny() {
			t.Errorf("%d commands; %d are owed, %d wait, a block: %v", len(a.commands), local.Owed(), b.waiting.Load(), local.UnsentAny())
		}
		link.Background.Close()
		b.Send()
		if b.sending.Load() {
			t.Error("sending for ever")
		}
		b.Close()
		if n := len(a.ids("back")); n != credits || b.waiting.Load() != 0 {
			t.Errorf("Close gave %d units back, %d wait", n, b.waiting.Load())
		}
	})
}

// TestFailureEndsTheTurn: a Redis that takes nothing is not sent the rest, all of which stays.
func TestFailureEndsTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, local, a := reachable(t, algo.FixedWindow, stays)
		a.lose(true)
		b.Reconcile(t.Context())
		if n := len(a.ids("debt")); n == 0 || n > callKeys || local.Owed() != debts {
			t.Errorf("%d debts were sent, %d are owed", n, local.Owed())
		}
		if n := len(a.ids("back")); n == 0 || n > callKeys || b.waiting.Load() != credits {
			t.Errorf("%d units were sent, %d wait", n, b.waiting.Load())
		}
	})
}

// TestBucketsWaitForTheReturn: while a Redis that answers makes no decisions yet, it receives the
// use of windows, and not of that of buckets, which it would refill meanwhile.
func TestBucketsWaitForTheReturn(t *testing.T) {
	for kind, want := range map[algo.Kind]int{algo.FixedWindow: debts, algo.GCRA: 0} {
		synctest.Test(t, func(t *testing.T) {
			b, link, _, a := reachable(t, kind, breaker.Settings{})
			srv := link.Server("debt")
			link.OnReturn(func(context.Context) {})
			link.Counted(2) // who is alone returns at once
			args := lua.NewArgs(limit(t, algo.FixedWindow))
			charge := func() {
				_ = link.Ask(t.Context(), srv, &redislink.Op{ID: "debt", Args: &args, Keys: link.Names.KeysOf(algo.FixedWindow, "debt"), Cost: 1}, link.Budget)
			}
			a.lose(true)
			for range 20 {
				charge()
			}
			a.lose(false)
			for range 20 {
				if srv.Answers() {
					break
				}
				time.Sleep(time.Second)
				charge()
			}
			if !srv.Answers() || !srv.Away() {
				t.Fatalf("answers: %v, away: %v", srv.Answers(), srv.Away())
			}
			a.lose(false)
			b.Reconcile(t.Context())
			if n := len(a.ids("debt")); n != want {
				t.Errorf("%v: %d debts were sent, want %d", kind, n, want)
			}
		})
	}
}

// TestGiveBackOutlivesTheLink: units that wait for their turn when the link closes are given back.
func TestGiveBackOutlivesTheLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &answering{hold: make(chan struct{})}
		link, err := redislink.New(redislink.Config{Client: a, Prefix: "p", Share: 1, MaxInFlight: 1})
		if err != nil {
			t.Fatal(err)
		}
		b := New(link, inprocess.NewStore(10))
		for _, id := range []string{"back first", "back second"} {
			go b.GiveBack([]lua.Taken{taken(t, link, id, 1)})
			synctest.Wait()
		}
		go link.Close(func() {})
		synctest.Wait()
		close(a.hold)
		synctest.Wait()
		if got := a.ids("back"); len(got) != 2 {
			t.Errorf("given back: %q", got)
		}
	})
}
