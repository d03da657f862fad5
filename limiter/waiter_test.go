package limiter

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/wait"
)

// TestSpread: over which time the lines of several processes take turns.
func TestSpread(t *testing.T) {
	ms := time.Millisecond
	for name, c := range map[string]struct {
		limit        Limit
		processes, n int
		want         time.Duration
	}{
		"alone":                     {TokenBucket(PerSecond(100), 10), 1, 1, 0},
		"without processes":         {TokenBucket(PerSecond(100), 10), 0, 1, 0},
		"two":                       {TokenBucket(PerSecond(100), 4), 2, 1, 10 * ms},  // one unit
		"three":                     {TokenBucket(PerSecond(100), 4), 3, 1, 20 * ms},  // a unit for each of the others
		"a burst for two":           {TokenBucket(PerSecond(100), 2), 9, 1, 10 * ms},  // as far as there is a burst
		"a quarter of the burst":    {TokenBucket(PerSecond(100), 16), 2, 1, 40 * ms}, // others may wait for more
		"no more than that":         {TokenBucket(PerSecond(100), 15), 2, 1, 37500 * time.Microsecond},
		"more units":                {TokenBucket(PerSecond(100), 4), 2, 2, 20 * ms},
		"more units, a large burst": {TokenBucket(PerSecond(100), 32), 2, 2, 80 * ms},
		"a burst for one":           {TokenBucket(PerSecond(100), 4), 5, 3, 7500 * time.Microsecond},
		"no cost":                   {TokenBucket(PerSecond(100), 4), 2, 0, 10 * ms},
		"a window":                  {FixedWindow(PerSecond(100)), 3, 1, 20 * ms},
		"a large window":            {FixedWindow(PerSecond(1000)), 3, 2, 4 * ms},
		"at most":                   {TokenBucket(PerSecond(10), 10), 8, 1, 100 * ms},
		"a slow window":             {FixedWindow(PerMinute(2)), 2, 1, 100 * ms},
	} {
		w := &waiter{n: c.n, res: Result{Limit: c.limit}}
		if got := w.spread(c.processes); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestWaiterAsks: what a line learns of an answer: who may go, how much room there is for others, and when to ask again.
func TestWaiterAsks(t *testing.T) {
	const ms = time.Millisecond
	bucket := TokenBucket(PerSecond(100), 16) // 40 ms are the spread of two processes
	for name, c := range map[string]struct {
		res       Result
		n         int
		own       bool
		processes int // 0 is a limiter without Redis
		left      time.Duration
		denied    int
		least     time.Duration // of After
		most      time.Duration
		want      wait.Answer // but After
		fails     bool
	}{
		"admitted":              {res: Result{Allowed: true, Limit: bucket, Remaining: 5}, n: 2, processes: 2, least: 20 * ms, most: 20 * ms, want: wait.Answer{Go: true, Room: 5}},
		"the part of a process": {res: Result{Allowed: true, Limit: bucket, Remaining: 15}, n: 2, processes: 2, least: 20 * ms, most: 20 * ms, want: wait.Answer{Go: true, Room: 6}},
		"alone":                 {res: Result{Allowed: true, Limit: bucket, Remaining: 15}, n: 2, processes: 1, want: wait.Answer{Go: true, Room: 14}},
		"without Redis":         {res: Result{Allowed: true, Limit: bucket, Remaining: 15, Source: SourceLocal}, n: 2, want: wait.Answer{Go: true, Room: 14}},
		"in its claim":          {res: Result{Allowed: true, Limit: bucket, Remaining: 15, Source: SourceLocal}, n: 2, processes: 4, want: wait.Answer{Go: true, Room: 14}},
		"one is room":           {res: Result{Allowed: true, Limit: bucket, Remaining: 1}, n: 1, processes: 2, least: 20 * ms, most: 20 * ms, want: wait.Answer{Go: true, Room: 1}},
		"no room":               {res: Result{Allowed: true, Limit: bucket}, n: 1, processes: 2, want: wait.Answer{Go: true}},
		"less than no room":     {res: Result{Allowed: true, Limit: bucket, Remaining: 3}, n: 9, processes: 2, want: wait.Answer{Go: true, Room: -1}},
		"costs of its own":      {res: Result{Allowed: true, Limit: bucket, Remaining: 5}, n: 2, own: true, processes: 2, want: wait.Answer{Go: true}},
		"a queue":               {res: Result{Allowed: true, Limit: LeakyBucketShaping(PerSecond(100), 16), Remaining: 5}, n: 2, processes: 2, want: wait.Answer{Go: true}},

		"denied":                {res: Result{RetryAfter: 50 * ms, Limit: bucket, Source: SourceRedis}, n: 1, processes: 2, least: 80 * ms, most: 90 * ms},
		"denied again":          {res: Result{RetryAfter: 50 * ms, Limit: bucket, Source: SourceRedis}, n: 1, processes: 2, denied: 1, least: 50 * ms, most: 70 * ms},
		"denied twice":          {res: Result{RetryAfter: 50 * ms, Limit: bucket, Source: SourceRedis}, n: 1, processes: 2, denied: 2, least: 50 * ms, most: 60 * ms},
		"denied four times":     {res: Result{RetryAfter: 50 * ms, Limit: bucket, Source: SourceRedis}, n: 1, processes: 2, denied: 4, least: 50 * ms, most: 52500 * time.Microsecond},
		"denied often":          {res: Result{RetryAfter: 50 * ms, Limit: bucket, Source: SourceRedis}, n: 1, processes: 2, denied: 9, least: 50 * ms, most: 52500 * time.Microsecond},
		"denied, alone":         {res: Result{RetryAfter: 50 * ms, Limit: bucket, Source: SourceRedis}, n: 1, processes: 1, least: 50 * ms, most: 50 * ms, want: wait.Answer{Least: 50 * ms}},
		"denied, without Redis": {res: Result{RetryAfter: 50 * ms, Limit: bucket, Source: SourceLocal}, n: 1, least: 50 * ms, most: 50 * ms},
		"little time":           {res: Result{RetryAfter: 50 * ms, Limit: bucket, Source: SourceRedis}, n: 1, processes: 2, left: 60 * ms, least: 55 * ms, most: 55 * ms, want: wait.Answer{Least: 55 * ms}},
		"just in time":          {res: Result{RetryAfter: 50 * ms, Limit: bucket, Source: SourceRedis}, n: 1, processes: 2, left: 50 * ms, least: 50 * ms, most: 50 * ms, want: wait.Answer{Least: 50 * ms}},
		"too late":              {res: Result{RetryAfter: 50 * ms, Limit: bucket, Source: SourceRedis}, n: 1, processes: 2, left: 50*ms - 1, fails: true},
		"long":                  {res: Result{RetryAfter: time.Hour, Limit: bucket, Source: SourceRedis}, n: 1, processes: 1, least: 10 * time.Second, most: 10 * time.Second, want: wait.Answer{Least: time.Hour}},
		"long, from memory":     {res: Result{RetryAfter: time.Hour, Limit: bucket, Source: SourceCache}, n: 1, processes: 1, least: 10 * time.Second, most: 10 * time.Second, want: wait.Answer{Least: time.Hour}},
		"long, in its claim":    {res: Result{RetryAfter: time.Hour, Limit: bucket, Source: SourceLocal}, n: 1, processes: 3, least: time.Second, most: time.Second},
		"long, closed":          {res: Result{RetryAfter: time.Hour, Limit: bucket, Source: SourceClosed}, n: 1, processes: 1, least: time.Second, most: time.Second},
		"long, without Redis":   {res: Result{RetryAfter: time.Hour, Limit: bucket, Source: SourceLocal}, n: 1, least: time.Hour, most: time.Hour},
		"beyond its claim":      {res: Result{RetryAfter: 50 * ms, Limit: bucket, Source: SourceLocal, BeyondClaim: true}, n: 1, own: true, processes: 2, least: 50 * ms, most: 50 * ms, want: wait.Answer{Own: true, Aside: true}},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx := t.Context()
			if c.left > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, c.left)
				defer cancel()
			}
			var least, most time.Duration
			for i := range 200 { // times are drawn
				w := &waiter{ctx: ctx, n: c.n, own: c.own, denied: c.denied, ask: func(ctx context.Context) (Result, error) {
					if d, ok := wait.MostDelay(ctx); !ok || d < time.Hour {
						t.Errorf("%s: a delay of %v, %v", name, d, ok)
					}
					return c.res, nil
				}}
				if c.processes > 0 {
					w.processes = func() int { return c.processes }
				}
				a, err := w.Ask()
				var late *WaitError
				if errors.As(err, &late) != c.fails || (err != nil) != c.fails {
					t.Fatalf("%s: %v", name, err)
				}
				if c.fails {
					if late.RetryAfter != c.res.RetryAfter || late.Remaining != c.left {
						t.Errorf("%s: %+v", name, late)
					}
					return
				}
				if !a.Go && w.denied != c.denied+1 || a.Go && w.denied != c.denied {
					t.Errorf("%s: denied %d times", name, w.denied)
				}
				if i == 0 {
					least = a.After
				}
				least, most = min(least, a.After), max(most, a.After)
				want := c.want
				if want.After = a.After; !a.Go && c.processes > 1 && c.left == 0 && c.res.Source == SourceRedis {
					want.Least = a.After
				}
				if a != want {
					t.Fatalf("%s: %+v, want %+v", name, a, want)
				}
			}
			// All of the range is drawn, and nothing else.
			if room := (c.most - c.least) / 8; least < c.least || least > c.least+room || most > c.most || most < c.most-room {
				t.Errorf("%s: after %v to %v, want %v to %v", name, least, most, c.least, c.most)
			}
		})
	}
	fails := errors.New("no answer")
	w := &waiter{ctx: t.Context(), ask: func(context.Context) (Result, error) { return Result{}, fails }}
	if _, err := w.Ask(); err != fails {
		t.Errorf("%v", err)
	}
}

// TestWaiterStands: who cannot be served before the context ends is told before it waits, with how long it would
// take; else it waits until its time, a call, or the end.
func TestWaiterStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		fails, closed := errors.New("no such limit"), make(chan struct{})
		var asked int
		var queueErr error
		w := &waiter{ctx: ctx, closed: closed, n: 2, queue: func(units int) (time.Duration, error) {
			asked = units
			return 3 * time.Second, queueErr
		}}
		for after, fits := range map[time.Duration]bool{0: true, 7 * time.Second: true, 7*time.Second + 1: false} {
			err := w.Queue(5, after)
			var late *WaitError
			if (err == nil) != fits || asked != 7 {
				t.Errorf("after %v: %v, asked for %d units", after, err, asked)
			} else if !fits && (!errors.As(err, &late) || late.RetryAfter != after+3*time.Second || late.Remaining != 10*time.Second) {
				t.Errorf("after %v: %v", after, err)
			}
		}
		queueErr = fails
		if err := w.Queue(0, 0); err != fails {
			t.Errorf("%v", err)
		}
		sleeps := func(what string, d time.Duration, called chan struct{}, wantErr error, want time.Duration) {
			t.Helper()
			began := time.Now()
			if err := w.Sleep(d, called); !errors.Is(err, wantErr) || (err == nil) != (wantErr == nil) || time.Since(began) != want {
				t.Errorf("%s: %v after %v", what, err, time.Since(began))
			}
		}
		call := make(chan struct{})
		sleeps("its time", time.Second, call, nil, time.Second)
		sleeps("too long", 9*time.Second+1, call, context.DeadlineExceeded, 0)
		time.AfterFunc(time.Second, func() { close(call) })
		sleeps("called", 5*time.Second, call, nil, time.Second)
		call = make(chan struct{})
		time.AfterFunc(time.Second, func() { close(call) })
		sleeps("called, without a time", 0, call, nil, time.Second)
		time.AfterFunc(time.Second, func() { close(closed) })
		sleeps("closed", 0, nil, ErrClosed, time.Second)
		w.closed = nil
		sleeps("almost to the end", 6*time.Second-1, nil, nil, 6*time.Second-1)
		sleeps("the end", 0, nil, context.DeadlineExceeded, 1)
		sleeps("after the end", 0, nil, context.DeadlineExceeded, 0)
		if left := w.left(); left != 1 {
			t.Errorf("%v are left after the end", left)
		}
		if w.ctx = t.Context(); w.left() < 1<<62 {
			t.Errorf("%v are left of no end", w.left())
		}
	})
}

// TestWaitersDelay: who was admitted with a delay waits for it.
func TestWaitersDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, delay := range []time.Duration{0, time.Second} {
			var lines wait.Lines[lineOf]
			res := Result{Allowed: true, Limit: LeakyBucketShaping(PerSecond(1), 5), Delay: delay}
			w := &waiter{ctx: t.Context(), n: 1, ask: func(context.Context) (Result, error) { return res, nil }}
			began := time.Now()
			if err := w.wait(&lines, lineOf{key: "k"}); err != nil || time.Since(began) != delay {
				t.Errorf("a delay of %v: %v after %v", delay, err, time.Since(began))
			}
			fails := errors.New("no answer")
			w.ask = func(context.Context) (Result, error) { return res, fails }
			if err := w.wait(&lines, lineOf{key: "k"}); err != fails || time.Since(began) != delay {
				t.Errorf("a delay of %v: %v after %v", delay, err, time.Since(began))
			}
		}
	})
}
