package outbox

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
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

var (
	errDial = &net.OpError{Op: "dial", Err: errors.New("refused")}
	// never was not executed; perhaps may have been.
	never   = &redislink.Error{Class: breaker.ClassUnavailable, Err: errDial}
	perhaps = &redislink.Error{Class: breaker.ClassUnavailable, Err: io.EOF}
	// closed was not executed, and is no reason to decide without Redis.
	closed = &redislink.Error{Class: breaker.ClassCaller, Err: errDial}
)

// unreachable returns an outbox whose Redis cannot be dialled, and its parts. Its address is not a
// name: go-redis would look that up, which two bubbles of one process cannot both do.
func unreachable(t *testing.T) (*Outbox, *redislink.Link, *inprocess.Store) {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:1", Protocol: 2, MaxRetries: -1, DialerRetries: 1,
		Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, errDial },
	})
	link, err := redislink.New(redislink.Config{Client: rdb, Prefix: "p", Budget: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		link.Close(func() {})
		_ = rdb.Close()
	})
	local := inprocess.NewStore(100)
	return New(link, local), link, local
}

// limit is 1000 per hour.
func limit(t *testing.T, kind algo.Kind) algo.Params {
	t.Helper()
	p, err := algo.Limit{Kind: kind, N: 1000, Per: 3600_000_000, Burst: 1000}.Params()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// taken are n units of a key.
func taken(t *testing.T, link *redislink.Link, id string, n int64) lua.Taken {
	p := limit(t, algo.GCRA)
	return lua.Taken{Keys: link.Names.KeysOf(p.Kind, id), Params: lua.NewArgs(p), Units: n}
}

// TestWhatIsKept: only units whose give-back was not executed, and whose failure is that of
// Redis, are kept for later; of all others this process has no grant any more.
func TestWhatIsKept(t *testing.T) {
	for _, c := range []struct {
		err  error
		kept bool
	}{{nil, false}, {never, true}, {perhaps, false}, {closed, false}} {
		b, link, local := unreachable(t)
		p := limit(t, algo.GCRA)
		local.Observe("k", p, algo.Decision{Allowed: true, Remaining: 500, ResetAfter: 1e9}, 8, 0)
		if got := b.kept(taken(t, link, "k", 8), c.err); got != c.kept {
			t.Errorf("%v: kept: %v", c.err, got)
		}
		if got := b.waiting.Load() == 1 && len(b.credits) == 1; got != c.kept {
			t.Errorf("%v: %d wait, %d counted", c.err, len(b.credits), b.waiting.Load())
		}
		if got := local.Granted("k", p, 0) > 0; got != c.kept {
			t.Errorf("%v: granted: %v", c.err, got)
		}
	}
}

// TestGiveBacksAreBounded: beyond a number of them units stay charged; and they are taken out in
// the order in which they came, as many at a time as one call carries.
func TestGiveBacksAreBounded(t *testing.T) {
	b, link, _ := unreachable(t)
	for i := range maxCredits {
		if !b.keep(taken(t, link, "k", int64(i))) {
			t.Fatalf("no room for number %d", i)
		}
	}
	if b.keep(taken(t, link, "k", 1)) || len(b.credits) != maxCredits {
		t.Error("one more than there is room for")
	}
	srv := link.Server("k")
	if got := b.take(new(redislink.Server)); len(got) != 0 || len(b.credits) != maxCredits {
		t.Errorf("%d of another server are taken", len(got))
	}
	for at := 0; at < maxCredits; at += callKeys {
		got := b.take(srv)
		if len(got) != callKeys || got[0].Units != int64(at) || b.waiting.Load() != int64(maxCredits-at-callKeys) {
			t.Fatalf("%d are taken from %d on, %d wait", len(got), at, b.waiting.Load())
		}
	}
	if got := b.take(srv); len(got) != 0 || !b.keep(taken(t, link, "k", 1)) {
		t.Error("an outbox that was emptied is not empty")
	}
}

// TestUnreachable: while Redis cannot be dialled, nothing is lost, and giving units back is no
// error.
func TestUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, link, local := unreachable(t)
		p := limit(t, algo.GCRA)
		if b.GiveBack([]lua.Taken{taken(t, link, "a", 1), taken(t, link, "b", 2)}) {
			t.Error("Redis has taken units")
		}
		if err := b.Return(t.Context(), taken(t, link, "c", 3), 50*time.Millisecond); err != nil {
			t.Error(err)
		}
		b.GiveBackSoon([]lua.Taken{taken(t, link, "d", 4)})
		synctest.Wait()
		local.Take("e", &p, 7, &p, nil)
		local.Block("f", p, 1e9)
		b.Reconcile(t.Context())
		b.Close()
		if b.waiting.Load() != 4 || local.Owed() != 1 || local.Unsent(p.Kind, "f") == 0 || b.Reconciled() != 0 {
			t.Errorf("%d give-backs wait, %d debts, a block for %d µs", b.waiting.Load(), local.Owed(), local.Unsent(p.Kind, "f"))
		}
		if debts := local.Debtors(); len(debts) != 1 {
			t.Errorf("%v", debts)
		} else if d, ok := local.TakeDebt(debts[0]); !ok || d.Uses[0].Units != 7 {
			t.Errorf("%+v is owed", d)
		}
		link.Background.Close()
		b.GiveBackSoon([]lua.Taken{taken(t, link, "g", 5), taken(t, link, "h", 6)})
		if b.waiting.Load() != 6 {
			t.Errorf("%d wait after the link was closed", b.waiting.Load())
		}
	})
}

// TestPiecesOfADebt: what is owed of a log is charged in pieces of which none is large, that of
// others in one.
func TestPiecesOfADebt(t *testing.T) {
	for _, c := range []struct {
		kind algo.Kind
		owed int64
		want []int64
	}{
		{algo.GCRA, 1000, []int64{-1000}},
		{algo.FixedWindow, 1000, []int64{-1000}},
		{algo.SlidingWindowLog, 2 * debtPiece, []int64{-debtPiece, -debtPiece}},
		{algo.SlidingWindowLog, debtPiece + 1, []int64{-debtPiece, -1}},
	} {
		b, _, local := unreachable(t)
		kind, want := c.kind, c.want
		p := limit(t, kind)
		local.Take("k", &p, c.owed, &p, nil)
		var costs []int64
		for _, item := range b.debt(local.Debtors()[0]) {
			costs = append(costs, item.op.Cost)
			if item.op.ID != "k" || item.op.Args.Params != p {
				t.Errorf("%v: %+v", kind, item.op)
			}
		}
		if !slices.Equal(costs, want) {
			t.Errorf("%v: pieces of %v, want %v", kind, costs, want)
		}
	}
}

// TestWhatIsStillOwed: a debt is settled when the last of its pieces has ended. What was not
// executed is owed again, what may have been is forgotten, and only a debt that was charged as a
// whole is counted.
func TestWhatIsStillOwed(t *testing.T) {
	for _, c := range []struct {
		name        string
		first, last error
		owed        int64
		counted     uint64
	}{
		{"both charged", nil, nil, 0, 1},
		{"one was not executed", never, nil, debtPiece, 0},
		{"the other was not executed", nil, never, debtPiece - 100, 0},
		{"one may have been executed", perhaps, nil, 0, 0},
		{"neither was executed", never, never, 2*debtPiece - 100, 0},
	} {
		b, _, local := unreachable(t)
		p := limit(t, algo.SlidingWindowLog)
		local.Take("k", &p, 2*debtPiece-100, &p, nil)
		items := b.debt(local.Debtors()[0])
		items[0].done(c.first)
		if local.Owed() != 1 || b.Reconciled() != 0 {
			t.Errorf("%s: settled before the end", c.name)
		}
		items[1].done(c.last)
		var owed int64
		for _, of := range local.Debtors() {
			d, _ := local.TakeDebt(of)
			for _, use := range d.Uses {
				owed += use.Units
			}
		}
		if owed != c.owed || b.Reconciled() != c.counted {
			t.Errorf("%s: %d are owed, %d counted", c.name, owed, b.Reconciled())
		}
		if again := b.debt(inprocess.Debtor{}); again != nil {
			t.Errorf("%s: a debt of no key: %v", c.name, again)
		}
	}
}

// TestBlocksAreSentOnce: a block is sent with the time that is left of it, until Redis has taken
// it; one that Redis knows of is not sent.
func TestBlocksAreSentOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, local := unreachable(t)
		p := limit(t, algo.GCRA)
		local.Block("k", p, 60e6)
		time.Sleep(time.Second)
		of := local.UnsentBlocks()[0]
		items := b.block(of)
		cmd := items[0].op.Command.(*lua.Block)
		if cmd.Time != 59e6 || items[0].op.ID != "k" {
			t.Errorf("a block of %d µs of %s", cmd.Time, items[0].op.ID)
		}
		cmd.Left = 59e6
		items[0].done(never)
		if !local.UnsentAny() {
			t.Error("what failed is not sent again")
		}
		items[0].done(nil)
		if local.UnsentAny() || b.block(of) != nil {
			t.Error("sent again")
		}
	})
}

// TestOneTurn: the outbox is read once in a period, whoever says that Redis decides; a denial
// sends only what waits to be given back, and only when there is some.
func TestOneTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, link, local := unreachable(t)
		sent := 0
		note := func(*Outbox, context.Context) { sent++ }
		b.sendSoon(note)
		b.sendSoon(note)
		time.Sleep(every - 1)
		b.sendSoon(note)
		time.Sleep(spread)
		synctest.Wait()
		if sent != 1 {
			t.Errorf("%d were sent in a period", sent)
		}
		for range 3 {
			time.Sleep(every)
			b.sendSoon(note)
		}
		time.Sleep(spread)
		synctest.Wait()
		if sent != 4 {
			t.Errorf("%d were sent in 4 periods", sent)
		}
		for turn := range 40 {
			time.Sleep(every)
			b.sendSoon(note)
			time.Sleep(spread)
			synctest.Wait()
			if sent != 5+turn {
				t.Fatalf("%d were sent in %d periods", sent, 5+turn)
			}
		}
		time.Sleep(every)
		b.Decided(true)
		b.Decided(false)
		if b.sending.Load() {
			t.Error("nothing is sent")
		}
		for name, add := range map[string]func(){
			"a debt":  func() { p := limit(t, algo.GCRA); local.Take("k", &p, 7, &p, nil) },
			"a block": func() { local.Block("f", limit(t, algo.GCRA), 1e9) },
		} {
			time.Sleep(every)
			add()
			b.Decided(false)
			if b.sending.Load() {
				t.Errorf("%s is sent after a denial", name)
			}
			b.Decided(true)
			if !b.sending.Load() {
				t.Errorf("%s is not sent", name)
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		b.keep(taken(t, link, "k", 1))
		time.Sleep(every)
		b.Decided(false)
		if !b.sending.Load() {
			t.Error("units that may be what denies are not sent")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		for _, of := range local.Debtors() {
			d, _ := local.TakeDebt(of)
			local.Settled(d, nil)
		}
		for _, blocked := range local.UnsentBlocks() {
			local.Sent(blocked.Limit.Kind, blocked.ID, local.Unsent(blocked.Limit.Kind, blocked.ID))
		}
		b.Decided(true)
		if local.Owed() > 0 || local.UnsentAny() || !b.sending.Load() {
			t.Errorf("units alone are not sent: %d owed, a block: %v", local.Owed(), local.UnsentAny())
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if b.sending.Load() {
			t.Error("still sending")
		}
	})
}
