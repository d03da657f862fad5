package limiter_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/redisproc"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/limiter/limitertest"
	"github.com/holdfast-go/holdfast/sampled"
	"github.com/holdfast-go/holdfast/semaphore"
)

// sources asks once for each of many keys and counts who decided.
func sources(t *testing.T, lim *limiter.Limiter, keys int) map[limiter.Source]int {
	t.Helper()
	n := map[limiter.Source]int{}
	for i := range keys {
		res, err := lim.Allow(t.Context(), fmt.Sprint("key", i))
		if err != nil {
			t.Fatalf("key %d: %v", i, err)
		}
		n[res.Source]++
	}
	return n
}

// TestClusterMasterKilled: with one of three masters dead, the keys of the other
// two stay on Redis; when its replica has taken over, all are back.
func TestClusterMasterKilled(t *testing.T) {
	t.Parallel()
	// Decisions have the time that they take on a busy machine, and the breaker opens before the replica takes over.
	c := redistest.StartCluster(t, 3, 1, []string{"cluster-node-timeout", "2500"})
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	defer rdb.Close()
	lim := newLimiter(t, rdb, limiter.GCRA(limiter.PerSecond(1000), 1000), limiter.WithBudget(10*defaultBudget),
		limiter.WithBreaker(breaker.Settings{ConsecutiveFailures: 3, OpenMin: 50 * time.Millisecond, OpenMax: 200 * time.Millisecond}))
	const keys = 300
	until(t, "the limiter knows the masters", func() bool {
		sources(t, lim, keys)
		return len(lim.Health().Servers) == 3
	})
	until(t, "all keys are on Redis", func() bool { return sources(t, lim, keys)[limiter.SourceRedis] == keys })

	must(t, c.Masters[0].Kill())
	until(t, "the dead master's breaker opens", func() bool {
		sources(t, lim, 30)
		for _, sh := range lim.Health().Servers {
			if strings.HasSuffix(sh.Name, c.Masters[0].Addr()) {
				return sh.State == breaker.Open
			}
		}
		return false
	})
	if n := sources(t, lim, keys); n[limiter.SourceRedis] < keys/2 {
		t.Errorf("with one of three masters dead: %v", n)
	}
	for _, sh := range lim.Health().Servers {
		if sh.State != breaker.Closed && !strings.HasSuffix(sh.Name, c.Masters[0].Addr()) {
			t.Errorf("the breaker of %s is %v", sh.Name, sh.State)
		}
	}
	until(t, "all keys are back on Redis", func() bool { return sources(t, lim, keys)[limiter.SourceRedis] == keys })
}

// TestClusterSlotMigration: no errors, and not one unit above the limit, while
// the slot of a busy key moves.
func TestClusterSlotMigration(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 2, 0)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	defer rdb.Close()
	slot := int(rdb.ClusterKeySlot(t.Context(), "{k0}").Val())
	from, to := c.Masters[0], c.Masters[1]
	if slot >= 8192 {
		from, to = to, from
	}
	for _, limit := range limitertest.Limits(limiter.Per(500, 100*time.Hour)) {
		lim := newLimiter(t, rdb, limit, limiter.WithBudget(2900*time.Millisecond), limiter.WithShare(1), limiter.WithoutDenialCache())
		l := startLoad(t, lim, 20, 1)
		until(t, "decisions by Redis", l.more(limiter.SourceRedis, 100))
		for range 3 {
			must(t, c.MigrateSlot(slot, from, to))
			from, to = to, from
			until(t, "decisions after the move", l.more(limiter.SourceRedis, 100))
		}
		until(t, "the limit is used up", func() bool { return l.admitted.Load() >= 500 })
		l.end(t, 2900*time.Millisecond)
		// However many callers could not wait, and were answered locally.
		if got := l.byRedis.Load(); got > 500 {
			t.Errorf("%v: Redis admitted %d", limit, got)
		}
	}
}

// TestSentinelFailover: the master dies, a replica is promoted, decisions return.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, 1, 3)
	rdb := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: redisproc.MasterName, SentinelAddrs: s.Addrs()})
	defer rdb.Close()
	lim := newLimiter(t, rdb, limiter.GCRA(limiter.PerSecond(1000), 100))
	l := startLoad(t, lim, 20, 10)
	until(t, "decisions by Redis", l.more(limiter.SourceRedis, 100))
	must(t, s.Master.Kill())
	until(t, "decisions go on locally", l.more(limiter.SourceLocal, 100))
	until(t, "decisions by the new master", l.more(limiter.SourceRedis, 500))
	l.end(t, defaultBudget)
	if n := redistest.Calls(t, s.Replicas[0], "evalsha"); n == 0 {
		t.Error("the new master decided nothing")
	}
}

// TestRing: a dead node takes only its keys along, until the ring gives them to
// the others.
func TestRing(t *testing.T) {
	t.Parallel()
	a, b := redistest.Start(t), redistest.Start(t)
	rdb := redis.NewRing(&redis.RingOptions{
		Addrs:              map[string]string{"a": a.Addr(), "b": b.Addr()},
		HeartbeatFrequency: time.Hour,            // the test looks at the time before it notices
		MaxRetries:         -1, DialerRetries: 1, // calls to a dead node fail at once
	})
	defer rdb.Close()
	lim := newLimiter(t, rdb, limiter.GCRA(limiter.PerSecond(1000), 1000), unhurried())
	if n := sources(t, lim, 100); n[limiter.SourceRedis] != 100 || len(lim.Health().Servers) != 2 {
		t.Fatalf("before: %v, %+v", n, lim.Health().Servers)
	}
	must(t, a.Kill())
	state := func(addr string) breaker.State {
		for _, sh := range lim.Health().Servers {
			if strings.HasSuffix(sh.Name, addr) {
				return sh.State
			}
		}
		t.Fatalf("no shard %s", addr)
		return 0
	}
	until(t, "the dead node's breaker opens", func() bool { sources(t, lim, 50); return state(a.Addr()) == breaker.Open })
	if n := sources(t, lim, 100); n[limiter.SourceRedis] < 20 || state(b.Addr()) != breaker.Closed {
		t.Errorf("with one of two nodes dead: %v", n)
	}
	must(t, a.Restart())
	until(t, "all keys are back on Redis", func() bool { return sources(t, lim, 100)[limiter.SourceRedis] == 100 })
}

func TestProtocolVersions(t *testing.T) {
	srv := redistest.Start(t)
	for _, protocol := range []int{2, 3} {
		rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), Protocol: protocol})
		defer rdb.Close()
		for _, limit := range limitertest.Limits(limiter.PerHour(10)) {
			lim := newLimiter(t, rdb, limit, patient(), limiter.WithPrefix(fmt.Sprint("resp", protocol)))
			everyOperation(t, lim)
		}
	}
}

// everyOperation uses all that a limiter sends, and checks that Redis answers.
func everyOperation(t *testing.T, lim *limiter.Limiter) {
	t.Helper()
	for _, n := range []int{8, 1, 5, 0} {
		res, err := lim.AllowN(t.Context(), "k", n)
		if err != nil || res.Source != limiter.SourceRedis || res.Allowed != (n != 5) {
			t.Fatalf("%v: a cost of %d: %+v, %v", lim.Limit(), n, res, err)
		}
	}
	if res, err := lim.Peek(t.Context(), "k"); err != nil || res.Source != limiter.SourceRedis || res.Remaining != 1 {
		t.Fatalf("%v: peek: %+v, %v", lim.Limit(), res, err)
	}
	must(t, lim.Block(t.Context(), "k", time.Minute))
	if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Allowed || res.Source != limiter.SourceRedis {
		t.Fatalf("%v: blocked: %+v, %v", lim.Limit(), res, err)
	}
	must(t, lim.Reset(t.Context(), "k"))
	if res, err := lim.AllowN(t.Context(), "k", 10); err != nil || !res.Allowed || res.Source != limiter.SourceRedis {
		t.Fatalf("%v: after a reset: %+v, %v", lim.Limit(), res, err)
	}
	must(t, lim.Reset(t.Context(), "k"))
	for i, a := range together(100, func(i int) (limiter.Result, error) { return lim.Allow(t.Context(), fmt.Sprint("crowd", i)) }) {
		if a.err != nil || !a.res.Allowed || a.res.Source != limiter.SourceRedis {
			t.Fatalf("%v: caller %d: %+v, %v", lim.Limit(), i, a.res, a.err)
		}
	}
	r := reserve(t, lim, "r", 5)
	if r.Source != limiter.SourceRedis {
		t.Fatalf("%v: %+v", lim.Limit(), r.Result)
	}
	must(t, r.Settle(t.Context(), 3))
	must(t, reserve(t, lim, "r", 1).Settle(t.Context(), 2))
	must(t, lim.Refund(t.Context(), "r", 2))
}

// The minimum permissions of a Redis user. docs/operations.md quotes them.
const (
	handshake = "+hello"
	inScripts = "+time +get +set +setrange +mget +pexpire +pttl +zcount +zadd +zrem +zcard +zscore +zrangebyscore +zrevrange +zremrangebyscore +zremrangebyrank"
	inPermits = "+zrank +zrange" // in addition, for a semaphore
	inSampled = "+exists +hget +hmget +hset +hdel +hlen +hscan"
	evalUser  = "user limiter on >secret ~holdfast:* -@all " + handshake + " +evalsha +evalsha_ro +eval +eval_ro +del " + inScripts
	fcallUser = "user limiter on >secret ~holdfast:* -@all " + handshake + " +fcall +fcall_ro +function|load +del " + inScripts
)

// since7 are permissions that servers before 7.0 do not know, and reject.
var since7 = []string{"+evalsha_ro", "+eval_ro", "+fcall", "+fcall_ro", "+function|load"}

// known are the words of a user's permissions that the server knows.
func known(user string) []string {
	words := strings.Fields(user)
	if redisproc.AtLeast(7, 0) {
		return words
	}
	return slices.DeleteFunc(words, func(w string) bool { return slices.Contains(since7, w) })
}

func limitedUser(t *testing.T, user string, tls bool) *redis.Client {
	t.Helper()
	srv := redistest.StartWith(t, redisproc.Options{TLS: tls, Config: [][]string{known(user)}})
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), Username: "limiter", Password: "secret", TLSConfig: srv.TLSConfig()})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func TestLeastPermissions(t *testing.T) {
	t.Parallel()
	for _, tls := range []bool{false, true} {
		rdb := limitedUser(t, evalUser, tls)
		for _, limit := range limitertest.Limits(limiter.PerHour(10)) {
			lim := newLimiter(t, rdb, limit, limiter.WithBudget(10*time.Second)) // with the heartbeat
			everyOperation(t, lim)
			until(t, "the heartbeat", func() bool {
				_, err := lim.Peek(t.Context(), "k")
				return err == nil && lim.Health().ShareOrigin == "learnt"
			})
		}
	}
}

// TestLeastPermissionsOfAFleet: with them processes count each other, and return together from an
// outage, which no caller notices when it fails.
func TestLeastPermissionsOfAFleet(t *testing.T) {
	t.Parallel()
	srv := redistest.StartWith(t, redisproc.Options{Config: [][]string{known(evalUser)}})
	proxy, rdb := behind(t, srv, redis.Options{Username: "limiter", Password: "secret", MaxRetries: -1, DialerRetries: 1})
	var denied atomic.Pointer[error]
	var fleet []*limiter.Limiter
	for i := range 2 {
		fleet = append(fleet, newLimiter(t, rdb, limiter.GCRA(limiter.PerSecond(10_000), 10_000), unhurried(), hasty(100*time.Millisecond), limiter.WithProcess(fmt.Sprint("p", i)),
			limiter.WithHooks(limiter.Hooks{Call: func(_ context.Context, c limiter.CallInfo) {
				if c.Class == breaker.ClassPermission {
					denied.Store(&c.Err)
				}
			}})))
	}
	each := func(ok func(lim *limiter.Limiter, res limiter.Result) bool) func() bool {
		return func() bool {
			all := true
			for _, lim := range fleet {
				res, err := lim.Allow(t.Context(), "k")
				must(t, err)
				all = all && ok(lim, res)
			}
			if err := denied.Load(); err != nil {
				t.Fatal(*err)
			}
			return all
		}
	}
	until(t, "two processes count each other", each(func(lim *limiter.Limiter, _ limiter.Result) bool { return lim.Health().Processes == 2 }))
	proxy.Set(faultproxy.Mode{Refuse: true})
	proxy.Reset()
	until(t, "both are alone", each(func(lim *limiter.Limiter, _ limiter.Result) bool { return stateOf(lim)() == breaker.Open }))
	proxy.Pass()
	until(t, "both are back", each(func(_ *limiter.Limiter, res limiter.Result) bool { return res.Source == limiter.SourceRedis }))
}

// TestLeastPermissionsBeyondOneLimit: of what decides about more than one limit, one by one.
func TestLeastPermissionsBeyondOneLimit(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	rdb := limitedUser(t, evalUser, false)
	var parts []limiter.Part
	for i, limit := range limitertest.Limits(limiter.PerHour(10)) {
		parts = append(parts, limiter.Part{Name: fmt.Sprint(i), Limiter: newLimiter(t, rdb, limit, patient(), limiter.WithPrefix(fmt.Sprint("holdfast:", i)))})
	}
	for range 2 {
		r, err := newMulti(t, parts...).Reserve(ctx, "k", limiter.Cost(2))
		if err != nil || !r.Allowed || r.Source != limiter.SourceRedis {
			t.Fatalf("%+v, %v", r, err)
		}
		must(t, r.Cancel(ctx))
	}
	c := newSemaphore(t, limitedUser(t, evalUser+" "+inPermits, false), 1, patient(), semaphore.WithTTL(300*time.Millisecond))
	first, err := c.Acquire(ctx, "k")
	must(t, err)
	got := make(chan error, 1)
	go func() {
		s, err := c.Acquire(context.Background(), "k")
		if err == nil && s.Source != limiter.SourceRedis {
			err = fmt.Errorf("%+v", s.Result)
		}
		got <- err
	}()
	must(t, first.Release())
	must(t, <-got)
	until(t, "the heartbeat", func() bool {
		n, err := c.InFlight(ctx, "k")
		must(t, err)
		return n == 1
	})
	s := newSampled(t, limitedUser(t, evalUser+" "+inSampled, false), limiter.PerSecond(100), sampled.WithInterval(100*time.Millisecond), limiter.WithBudget(10*time.Second),
		limiter.WithHooks(limiter.Hooks{Call: func(_ context.Context, c limiter.CallInfo) {
			if c.Class == breaker.ClassPermission { // Close may end a report under way
				t.Errorf("a call of a Sampled failed: %v", c.Err)
			}
		}}))
	until(t, "reports", func() bool {
		res, err := s.Allow(ctx, "k")
		must(t, err)
		return res.Source == limiter.SourceSampled
	})
	must(t, s.Close())
}

// TestPermissionsAreAllNeeded: without any one of them something does not work.
func TestPermissionsAreAllNeeded(t *testing.T) {
	t.Parallel()
	for _, right := range strings.Fields("+evalsha +eval " + inScripts) {
		if right == "+zrem" || right == "+zcard" || right == "+zscore" || right == "+pttl" || right == "+evalsha_ro" {
			continue // of the heartbeat: see TestLeastPermissionsOfAFleet
		}
		rdb := limitedUser(t, strings.Replace(evalUser+" ", right+" ", "", 1), false)
		fine := true
		for i, limit := range limitertest.Limits(limiter.PerHour(10)) {
			lim := newLimiter(t, rdb, limit, patient(), limiter.WithPrefix("holdfast:"+fmt.Sprint(i)))
			for range 2 {
				res, err := lim.AllowN(t.Context(), "k", 6)
				fine = fine && err == nil && res.Source == limiter.SourceRedis
			}
			for _, a := range together(100, func(i int) (limiter.Result, error) { return lim.Allow(t.Context(), fmt.Sprint("crowd", i)) }) {
				fine = fine && a.err == nil && a.res.Source == limiter.SourceRedis
			}
			fine = fine && lim.Refund(t.Context(), "k", 1) == nil
		}
		if fine {
			t.Errorf("without %s everything works", right)
		}
	}
}

func TestFunctions(t *testing.T) {
	t.Parallel()
	redistest.Since(t, 7, 0, "functions")
	rdb := limitedUser(t, fcallUser, false)
	for _, limit := range limitertest.Limits(limiter.PerHour(10)) {
		lim := newLimiter(t, rdb, limit, patient(), limiter.WithFunctions())
		everyOperation(t, lim)
		if err := lim.Health().FunctionsError; err != nil {
			t.Error(err)
		}
	}
}

func TestFunctionsReplaceAnOlderLibrary(t *testing.T) {
	redistest.Since(t, 7, 0, "functions")
	srv := redistest.Start(t)
	admin := redistest.Admin(t, srv)
	must(t, admin.FunctionLoad(t.Context(), "#!lua name=holdfast\nredis.register_function('hf0_gcra', function() return 1 end)").Err())
	lim := newLimiter(t, redistest.Client(t, srv), good, patient(), limiter.WithFunctions())
	everyOperation(t, lim)
	if n := redistest.Calls(t, srv, "evalsha") + redistest.Calls(t, srv, "eval"); n != 0 {
		t.Errorf("%d scripts were run", n)
	}
	if n := redistest.Calls(t, srv, "function|load"); n != 2 { // with the one above
		t.Errorf("the library was loaded %d times", n-1)
	}
	must(t, admin.FunctionFlush(t.Context()).Err())
	everyOperation(t, lim)
}

func TestFunctionsNotAllowed(t *testing.T) {
	for name, user := range map[string]string{
		"no fcall": evalUser,
		"no load":  evalUser + " +fcall +fcall_ro",
	} {
		lim := newLimiter(t, limitedUser(t, user, false), good, patient(), limiter.WithFunctions())
		everyOperation(t, lim)
		if err := lim.Health().FunctionsError; err == nil {
			t.Errorf("%s: Health does not say why functions are not used", name)
		}
	}
}

// TestPeekIsReadOnlyOnTheWire, so that replicas may serve it.
func TestPeekIsReadOnlyOnTheWire(t *testing.T) {
	redistest.Since(t, 7, 0, "EVALSHA_RO and FCALL_RO")
	srv := redistest.Start(t)
	lim := newLimiter(t, redistest.Client(t, srv), good, patient())
	fn := newLimiter(t, redistest.Client(t, srv), good, patient(), limiter.WithFunctions())
	for range 5 {
		for _, l := range []*limiter.Limiter{lim, fn} {
			if _, err := l.Peek(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if ro, rw := redistest.Calls(t, srv, "evalsha_ro"), redistest.Calls(t, srv, "evalsha"); ro != 5 || rw != 0 {
		t.Errorf("%d read-only, %d not", ro, rw)
	}
	if ro, rw := redistest.Calls(t, srv, "fcall_ro"), redistest.Calls(t, srv, "fcall"); ro < 5 || rw != 0 {
		t.Errorf("functions: %d read-only, %d not", ro, rw)
	}
}
