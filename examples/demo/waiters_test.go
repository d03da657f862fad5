package main

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/sim"
)

// TestLines: all are served; a second line at the same time is rejected.
func TestLines(t *testing.T) {
	t.Parallel()
	a, srv := alone(t, calm)
	rejected := make(chan int, 1)
	go func() {
		defer close(rejected)
		for !a.lines[0].arrived() {
			time.Sleep(time.Millisecond)
		}
		if resp, err := srv.Client().Post(srv.URL+"/api/wait", "application/json", strings.NewReader("{}")); err == nil {
			rejected <- resp.StatusCode
			_ = resp.Body.Close()
		}
	}()
	var done struct{ Lines []lineState }
	askFor(t, srv, "POST", "/api/wait", `{}`, &done)
	if status := <-rejected; status != http.StatusConflict {
		t.Errorf("a second line: %d", status)
	}
	if len(done.Lines) != 2 || !done.Lines[0].InTurn || done.Lines[1].InTurn {
		t.Fatalf("%+v", done)
	}
	for _, l := range done.Lines {
		for i, w := range l.Waiters {
			if w.Arrived == 0 || w.Served < w.Arrived || w.Critical != (i == waiters-1) {
				t.Errorf("in turn %v: waiter %d: %+v", l.InTurn, i, w)
			}
		}
	}
}

// TestInTurn: no caller is overtaken except by the critical one, with and without Redis.
func TestInTurn(t *testing.T) {
	for _, down := range []bool{false, true} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			r.Set(func(h *sim.Health) { h.Frozen = down })
			l, err := newLine(true, r.Client("p", redis.Options{MaxRetries: -1}), "demo", time.Second, new(hub))
			if err != nil {
				t.Fatal(err)
			}
			l.run(t.Context())
			turn := l.state().Waiters
			if overtaken(turn) != 0 || turn[0].Served == 0 {
				t.Errorf("a caller was overtaken: %+v", turn)
			}
			if turn[waiters-1].Served >= turn[waiters-2].Served {
				t.Errorf("the critical one came last: %+v", turn)
			}
			if err := l.close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// overtaken counts those before whom a later one was served that is not critical.
func overtaken(all []waiter) (n int) {
	for i, w := range all {
		if slices.ContainsFunc(all[i+1:], func(later waiter) bool { return !later.Critical && later.Served < w.Served }) {
			n++
		}
	}
	return n
}

func (l *line) arrived() bool { return l.state().Waiters[0].Arrived > 0 }

// TestPauses: a pause is cut where a second ends, and one that is shorter than what asking the
// limiter takes is none.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPauses(2)
		p.begin(0)
		time.Sleep(shortestPause - time.Millisecond)
		p.end(0)
		if got := p.cut(time.Now()); len(got) != 0 {
			t.Errorf("%+v", got)
		}
		p.begin(1)
		from := time.Now()
		time.Sleep(time.Second)
		if got, want := p.cut(time.Now()), (pause{1, unixMs(from), unixMs(from.Add(time.Second))}); len(got) != 1 || got[0] != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		time.Sleep(time.Millisecond)
		p.end(1)
		p.end(1)
		if got := p.cut(time.Now()); len(got) != 1 || got[0].Until-got[0].From != 1 {
			t.Errorf("%+v", got)
		}
	})
}
