package semaphore

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
)

// of is what Redis keeps of the key "k" that begins with a letter: h for those who hold
// a permit, q and w for those who wait.
func of(t *testing.T, rdb *redis.Client, letter string) (callers []string) {
	t.Helper()
	for _, member := range rdb.ZRange(t.Context(), "holdfast:v1:permits:{k}", 0, -1).Val() {
		if caller, ok := strings.CutPrefix(member, letter); ok {
			callers = append(callers, caller)
		}
	}
	return callers
}

// lasting returns permits that time never frees, in a test of a few seconds, so that
// what is free was released; and a proxy in front of Redis.
func lasting(t *testing.T, max int) (*Semaphore, *redis.Client, *faultproxy.Proxy) {
	t.Helper()
	srv := redistest.Start(t)
	proxy, err := faultproxy.New(srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	c, err := New(rdb, max, WithTTL(time.Hour), limiter.WithBudget(time.Minute), limiter.WithShare(1), limiter.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	c.ledger.patience = time.Hour
	t.Cleanup(func() {
		_ = c.Close()
		_ = rdb.Close()
		proxy.Close()
	})
	return c, redistest.Client(t, srv), proxy
}

// TestLeftCallIsTakenBack: a caller that leaves while its call is on the way does not
// keep the permit that it was granted.
func TestLeftCallIsTakenBack(t *testing.T) {
	c, rdb, proxy := lasting(t, 3)
	s, err := c.TryAcquire(t.Context(), "k") // the script is known from now on
	if err != nil || s.Release() != nil {
		t.Fatal(err)
	}
	proxy.Set(faultproxy.Mode{ReplyDelay: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := c.TryAcquire(ctx, "k")
		left <- err
	}()
	held := func() int { return len(of(t, rdb, "h")) }
	redistest.Until(t, "Redis grants the permit", func() bool { return held() == 1 })
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	proxy.Pass()
	redistest.Until(t, "the permit is taken back", func() bool { return held() == 0 })
}

// TestHeartbeatDoesNotRestoreAReleasedPermit: a permit that is released while a heartbeat with it
// is on its way is free afterwards.
func TestHeartbeatDoesNotRestoreAReleasedPermit(t *testing.T) {
	c, rdb, _ := lasting(t, 3)
	s, err := c.TryAcquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	other, err := c.TryAcquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	beats := []beat{{c.ledger.keys["k"], []*Permit{s, other}}}
	if err := s.Release(); err != nil {
		t.Fatal(err)
	}
	c.ledger.extend(t.Context(), beats)
	if got := of(t, rdb, "h"); len(got) != 1 || got[0] != other.leave.Caller {
		t.Errorf("held: %v", got)
	}
}

// TestPlaceIsGivenUp: one who leaves the queue is not waited for.
func TestPlaceIsGivenUp(t *testing.T) {
	c, rdb, _ := lasting(t, 1)
	s, err := c.TryAcquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := c.Acquire(ctx, "k")
		left <- err
	}()
	queued := func() int { return len(of(t, rdb, "q")) }
	redistest.Until(t, "the caller waits", func() bool { return queued() == 1 })
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	redistest.Until(t, "the place is given up", func() bool { return queued() == 0 })
	if err := s.Release(); err != nil {
		t.Fatal(err)
	}
	if s, err = c.TryAcquire(t.Context(), "k"); err != nil || !s.Allowed {
		t.Errorf("%+v, %v", s, err)
	}
}

// held is a client that keeps scripts, or their replies, back until they are let go.
type held struct {
	*redis.Client
	replies bool
	scripts chan struct{} // one that arrives
	letGo   chan struct{} // closed
	taken   atomic.Int64  // callers taken out
}

func (h *held) hold() {
	select {
	case h.scripts <- struct{}{}:
		<-h.letGo
	case <-h.letGo:
	}
}

func (h *held) Process(ctx context.Context, cmd redis.Cmder) error {
	switch {
	case cmd.Name() == "zrem":
		h.taken.Add(1)
	case cmd.Name() == "evalsha" && h.replies:
		defer h.hold()
	case cmd.Name() == "evalsha":
		h.hold()
	}
	return h.Client.Process(ctx, cmd)
}

// TestLeftFirstCallKeepsNoPlace: a caller that leaves while its first call is on the way
// there or back keeps no permit from others, and no place.
func TestLeftFirstCallKeepsNoPlace(t *testing.T) {
	for _, way := range []string{"there", "back"} {
		t.Run(way, func(t *testing.T) {
			c, rdb, proxy := lasting(t, 1)
			s, err := c.TryAcquire(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			executed := func() string {
				return regexp.MustCompile(`cmdstat_evalsha:calls=\d+`).FindString(rdb.Info(t.Context(), "commandstats").Val())
			}
			before := executed()
			own, slow := c, &held{Client: rdb, scripts: make(chan struct{}), letGo: make(chan struct{})}
			if way == "back" {
				proxy.Set(faultproxy.Mode{ReplyDelay: time.Hour})
			} else if own, err = New(slow, 1, WithTTL(time.Hour), limiter.WithBudget(time.Minute), limiter.WithShare(1)); err != nil {
				t.Fatal(err)
			}
			own.ledger.patience = time.Hour
			defer func() { _ = own.Close() }()
			ctx, cancel := context.WithCancel(t.Context())
			left := make(chan error, 1)
			go func() {
				_, err := own.Acquire(ctx, "k")
				left <- err
			}()
			if way == "back" {
				redistest.Until(t, "Redis has decided", func() bool { return executed() != before })
			} else {
				<-slow.scripts
			}
			cancel()
			if err := <-left; !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			if way == "back" {
				proxy.Pass()
			} else {
				for range 50 {
					if err := rdb.Ping(t.Context()).Err(); err != nil {
						t.Fatal(err)
					}
				}
				if slow.taken.Load() > 0 {
					t.Error("it was taken out before it came")
				}
				close(slow.letGo)
				redistest.Until(t, "it is taken out", func() bool { return slow.taken.Load() > 0 })
			}
			if err := s.Release(); err != nil {
				t.Fatal(err)
			}
			redistest.Until(t, "the permit is for others", func() bool {
				s, err := c.TryAcquire(t.Context(), "k")
				return err == nil && s.Allowed && s.Release() == nil
			})
			redistest.Until(t, "nothing is left", func() bool { return rdb.DBSize(t.Context()).Val() == 0 })
		})
	}
}

// TestWaiterIsNotTakenOut: one whose first call is lost, and who waits on, keeps what
// Redis granted it.
func TestWaiterIsNotTakenOut(t *testing.T) {
	srv := redistest.Start(t)
	rdb := redistest.Client(t, srv)
	// The other process holds one of two permits.
	other, err := New(rdb, 2, WithTTL(time.Hour), limiter.WithBudget(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	if s, err := other.TryAcquire(t.Context(), "k"); err != nil || !s.Allowed {
		t.Fatal(s, err)
	}
	slow := &held{Client: rdb, replies: true, scripts: make(chan struct{}), letGo: make(chan struct{})}
	c, err := New(slow, 2, WithTTL(time.Hour), limiter.WithShare(0.5), limiter.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	// Its share is one permit, which is taken: it has to wait for Redis.
	id := lua.EncodeID("k")
	g := &key{name: "k", inRedis: c.redis.Names.Permits(id), id: id, srv: c.redis.Server(id), holding: []*Permit{{}}}
	c.ledger.keys["k"] = g
	got := make(chan *Permit, 1)
	go func() {
		s, err := c.Acquire(t.Context(), "k")
		if err != nil {
			t.Error(err)
		}
		got <- s
	}()
	<-slow.scripts // the first call, which its budget ends
	<-slow.scripts // it asks again
	close(slow.letGo)
	if s := <-got; s == nil || s.Source != limiter.SourceRedis {
		t.Fatalf("%+v", s)
	}
	for range 50 {
		if err := rdb.Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if held := of(t, rdb, "h"); len(held) != 2 || slow.taken.Load() > 0 {
		t.Errorf("held: %v, %d callers were taken out", held, slow.taken.Load())
	}
}

// TestCloseGivesPlacesUp: a process that ends while its callers wait is not waited for.
func TestCloseGivesPlacesUp(t *testing.T) {
	c, rdb, _ := lasting(t, 1)
	other, err := New(rdb, 1, WithTTL(time.Hour), limiter.WithBudget(time.Minute), limiter.WithShare(1), limiter.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	s, err := other.TryAcquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	left := make(chan error, 2)
	for i := range 2 {
		go func() {
			_, err := c.Acquire(t.Context(), "k")
			left <- err
		}()
		redistest.Until(t, "the caller waits", func() bool { return len(of(t, rdb, "q")) == i+1 })
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-left; !errors.Is(err, limiter.ErrClosed) {
			t.Fatal(err)
		}
	}
	if places := of(t, rdb, "q"); len(places) > 0 {
		t.Errorf("places: %v", places)
	}
	if err := s.Release(); err != nil {
		t.Fatal(err)
	}
	if s, err = other.TryAcquire(t.Context(), "k"); err != nil || !s.Allowed {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestCloseGivesUpPlaces: a caller has a place in the queue of Redis although the call that gave it is answered after
// Close.
func TestCloseGivesUpPlaces(t *testing.T) {
	c, rdb, proxy := lasting(t, 1)
	if _, err := c.TryAcquire(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	proxy.Set(faultproxy.Mode{ReplyDelay: 300 * time.Millisecond})
	left := make(chan error)
	go func() {
		_, err := c.Acquire(t.Context(), "k")
		left <- err
	}()
	redistest.Until(t, "the caller has a place", func() bool { return len(of(t, rdb, "q")) == 1 })
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-left; !errors.Is(err, limiter.ErrClosed) {
		t.Fatal(err)
	}
	if places := of(t, rdb, "q"); len(places) > 0 {
		t.Errorf("places: %v", places)
	}
	if held := of(t, rdb, "h"); len(held) != 1 {
		t.Errorf("permits: %v, want the one that is held until its time to live ends", held)
	}
}

// slowConn holds what is written back while a lock is held.
type slowConn struct {
	net.Conn
	hold *sync.RWMutex
}

func (c slowConn) Write(b []byte) (int, error) {
	c.hold.RLock()
	defer c.hold.RUnlock()
	return c.Conn.Write(b)
}

// TestLateFirstCallKeepsNoPlace: the first call of a caller that waits arrives when a later one has
// granted it a permit, and gives it no place in the queue.
func TestLateFirstCallKeepsNoPlace(t *testing.T) {
	srv := redistest.Start(t)
	var slow sync.RWMutex // of the first connection
	dialed := 0
	var mu sync.Mutex
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		mu.Lock()
		defer mu.Unlock()
		if dialed++; dialed == 1 && err == nil {
			conn = slowConn{conn, &slow}
		}
		return conn, err
	}})
	s, err := New(rdb, 1, WithTTL(time.Hour), limiter.WithBudget(4*time.Second), limiter.WithShare(1), limiter.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.Close()
		_ = rdb.Close()
	})
	s.ledger.patience = time.Hour
	held, err := s.Acquire(t.Context(), "k")
	if err != nil || held.Source != limiter.SourceRedis {
		t.Fatal(held, err)
	}
	admin := redistest.Client(t, srv)
	before := redistest.Calls(t, srv, "evalsha")
	slow.Lock()
	got := make(chan *Permit)
	go func() {
		p, err := s.Acquire(t.Context(), "k")
		if err != nil {
			t.Error(err)
		}
		got <- p
	}()
	redistest.Until(t, "a later call has asked", func() bool { return len(of(t, admin, "q")) == 1 })
	if err := held.Release(); err != nil {
		t.Fatal(err)
	}
	p := <-got
	asked := redistest.Calls(t, srv, "evalsha")
	slow.Unlock()
	redistest.Until(t, "the first call arrives", func() bool { return redistest.Calls(t, srv, "evalsha") > asked })
	if q := of(t, admin, "q"); len(q) != 0 || p.Source != limiter.SourceRedis || asked == before {
		t.Fatalf("%d places after the first call: %+v", len(q), p.Result)
	}
	if err := p.Release(); err != nil {
		t.Fatal(err)
	}
	if q := of(t, admin, "q"); len(q) != 0 {
		t.Errorf("%d places are left in the queue", len(q))
	}
	if p, err := s.TryAcquire(t.Context(), "k"); err != nil || !p.Allowed {
		t.Errorf("no permit although none is held: %+v, %v", p.Result, err)
	}
}

// TestOnlyThoseAskedForHavePlaces: of many callers who come at once, those have a place in Redis who are asked for, whomever
// Redis has answered first: who is first there would else not be asked for, and all would wait for that one.
func TestOnlyThoseAskedForHavePlaces(t *testing.T) {
	c, rdb, _ := lasting(t, 1)
	held, err := c.Acquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	const callers = 5 * callersPerCall
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			if p, err := c.Acquire(ctx, "k"); err == nil {
				_ = p.Release()
			}
		})
	}
	waiting := func() int {
		c.ledger.mu.Lock()
		defer c.ledger.mu.Unlock()
		return len(c.ledger.keys["k"].waiting[1])
	}
	redistest.Until(t, "all wait", func() bool { return waiting() == callers })
	redistest.Until(t, "the first ones have places", func() bool { return len(of(t, rdb, "q")) >= callersPerCall })
	if n := len(of(t, rdb, "q")); n != callersPerCall {
		t.Errorf("%d places", n)
	}
	if err := held.Release(); err != nil {
		t.Fatal(err)
	}
	redistest.Until(t, "one has the permit", func() bool { return waiting() < callers })
	cancel()
	wg.Wait()
}
