package redislink

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/lua"
)

// TestHowLongAServerIsBack: decisions are made by it since its breaker closed, or since the processes of a fleet have returned
// together; until then it is away.
func TestHowLongAServerIsBack(t *testing.T) {
	for _, together := range []bool{false, true} {
		counting(t, 3, func(t *testing.T, l *Link, s *counter, settled *[]time.Duration) {
			if !together {
				l.settle = nil
			}
			srv := l.Server("k")
			var back atomic.Int64 // processes
			back.Store(1)
			s.says = func(asked) ([]int64, error) { return []int64{3, back.Load(), 0, 0}, nil }
			away := func(when string, want int64) {
				t.Helper()
				if got := srv.AwayAgo(); got != want {
					t.Errorf("together %v, %s: away %d µs ago, want %d", together, when, got, want)
				}
			}
			away("at first", math.MaxInt64)
			for from, to := breaker.Closed, breaker.Open; from != breaker.HalfOpen; from, to = to, breaker.HalfOpen {
				l.changed(srv, breaker.Change{From: from, To: to})
				time.Sleep(time.Second)
				away(to.String(), 0)
			}
			l.changed(srv, breaker.Change{From: breaker.HalfOpen, To: breaker.Closed})
			closed := l.Now()
			time.Sleep(time.Second)
			synctest.Wait()
			if !together {
				away("a second later", 1e6)
				return
			}
			away("before the others are back", 0)
			back.Store(3)
			time.Sleep(time.Second)
			synctest.Wait()
			if len(*settled) != 1 || (*settled)[0] <= closed+time.Second {
				t.Fatalf("settled at %v", *settled)
			}
			away("afterwards", (l.Now() - (*settled)[0]).Microseconds())
		})
	}
}

// TestThoseWhoWaitLeaveInGroups: from a thousand on that wait, each group is checked for a while after the one before it; of
// fewer each leaves when its time is over.
func TestThoseWhoWaitLeaveInGroups(t *testing.T) {
	for _, c := range []struct {
		callers     int
		gap         time.Duration // between the ends of their times
		least, most int           // groups
	}{
		{900, 100 * time.Nanosecond, 900, 900},
		{1500, time.Microsecond, 700, 1000},
	} {
		synctest.Test(t, func(t *testing.T) {
			l, lets, _ := hanging(t, 128)
			q := only(l)
			for range depth { // calls in flight
				begin(t.Context(), q, "k", time.Minute)
			}
			began, mu, groups := time.Now(), sync.Mutex{}, map[time.Duration]bool{}
			var wg sync.WaitGroup
			for i := range c.callers {
				wg.Go(func() {
					ends := 10*time.Millisecond + time.Duration(i)*c.gap
					_, err := q.do(t.Context(), decision(gcraArgs, "k", 1), ends)
					left := time.Since(began)
					if !NeverExecuted(err) || left < ends || left > ends+time.Duration(c.callers+depth)*rest {
						t.Errorf("one whose time ends after %v leaves after %v: %v", ends, left, err)
					}
					mu.Lock()
					defer mu.Unlock()
					groups[left] = true
				})
			}
			wg.Wait()
			if n := len(groups); n < c.least || n > c.most {
				t.Errorf("%d leave in %d groups", c.callers, n)
			}
			close(lets)
			synctest.Wait()
		})
	}
}

// TestNearlyOver: callers of a call that is not written leave together where their times end within a part of the budget, or a
// millisecond.
func TestNearlyOver(t *testing.T) {
	for _, c := range []struct {
		budget, later time.Duration
		together      bool
	}{
		{32 * time.Millisecond, 500 * time.Microsecond, true},
		{32 * time.Millisecond, 500*time.Microsecond + 1, false},
		{128 * time.Millisecond, time.Millisecond, true},
		{128 * time.Millisecond, time.Millisecond + 1, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := unused(t, 128)
			l.wire.budget = c.budget
			q := only(l)
			ops := []*Op{decision(gcraArgs, "a", 1), decision(gcraArgs, "b", 1)}
			q.mu.Lock()
			q.waiting.push(ops[1])
			f := q.gather(ops[0])
			f.ticket, _ = q.breaker.Acquire()
			f.sent = time.Now()
			for i, o := range ops {
				o.ctx, o.done, o.deadline = t.Context(), make(chan struct{}, 1), f.sent.Add(c.budget+time.Duration(i)*c.later)
				q.wakeAt(o.deadline)
			}
			q.mu.Unlock()
			<-ops[0].done
			synctest.Wait()
			if together := len(ops[1].done) == 1; together != c.together {
				t.Errorf("%+v: they leave together: %v", c, together)
			}
			if !c.together {
				<-ops[1].done
			}
			q.mu.Lock()
			q.flights = nil
			q.mu.Unlock()
		})
	}
}

// TestProbeThatHangs: a probe outlives its callers for as long as it may take, and is then given up.
func TestProbeThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lets, _ := hanging(t, 128)
		q := only(l)
		for q.breaker.State() == breaker.Closed {
			p, _ := q.breaker.Acquire()
			p.Report(breaker.ClassUnavailable, breaker.ProofRun, 0)
		}
		time.Sleep(time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		caller := begin(ctx, q, "k", 10*time.Millisecond)
		cancel()
		synctest.Wait()
		for _, stuck := range []int{0, 1} {
			if now := look(q); !caller.done || now.stuck != stuck || now.calls != 1 {
				t.Errorf("%+v, want %d stuck; %+v", now, stuck, caller)
			}
			time.Sleep(l.Budget)
			synctest.Wait()
		}
		close(lets)
		synctest.Wait()
	})
}

// TestProbe reports whether the server answers by now.
func TestProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, fails := unused(t, 128), true
		var sent []string
		l.wire.lua = lua.NewClient(process(func(_ context.Context, cmd redis.Cmder) error {
			if sent = append(sent, *cmd.Args()[3].(*string)); fails {
				cmd.SetErr(context.DeadlineExceeded)
				return cmd.Err()
			}
			cmd.(interface{ SetVal([]int64) }).SetVal([]int64{1, 0, 0, 0})
			return nil
		}))
		srv := l.Server("k")
		for srv.Answers() {
			p, _ := srv.Breaker.Acquire()
			p.Report(breaker.ClassUnavailable, breaker.ProofRun, 0)
		}
		for _, c := range []struct {
			pause time.Duration
			fails bool
			want  []string
		}{
			{0, false, nil}, // its breaker lets nothing through
			{time.Minute, true, []string{"p:v1:probe:{p:v1:peers}"}},
			{time.Minute, false, []string{"p:v1:probe:{p:v1:peers}"}},
		} {
			time.Sleep(c.pause)
			sent, fails = nil, c.fails
			if ok := l.Probe(t.Context(), srv); ok != (c.want != nil && !c.fails) || !slices.Equal(sent, c.want) {
				t.Errorf("%+v: it answers: %v; sent %q", c, ok, sent)
			}
		}
	})
}
