package retry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/retry"
)

var errDown = errors.New("down")

// gaveUp fails the test unless err is an Error with the reason.
func gaveUp(t *testing.T, err error, want retry.Reason) *retry.Error {
	t.Helper()
	e, ok := errors.AsType[*retry.Error](err)
	if !ok || e.Reason != want {
		t.Fatalf("%v, want the reason %v", err, want)
	}
	return e
}

// steady is a policy without chance: 1 s, 2 s, 4 s.
func steady(p retry.Policy) retry.Policy {
	p.Backoff = retry.Backoff{Initial: time.Second, Jitter: retry.JitterNone}
	return p
}

func TestDoSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, calls := time.Now(), 0
		v, err := retry.DoValue(t.Context(), steady(retry.Policy{}), func(context.Context) (string, error) {
			if calls++; calls < 3 {
				return "", errDown
			}
			return "up", nil
		})
		if v != "up" || err != nil || calls != 3 {
			t.Errorf("%q, %v after %d calls, want up at the third", v, err, calls)
		}
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("took %v, want 1 s + 2 s", took)
		}
	})
}

func TestDoGivesUp(t *testing.T) {
	for name, c := range map[string]struct {
		policy   retry.Policy
		timeout  time.Duration
		err      error
		reason   retry.Reason
		attempts int
		took     time.Duration
		wait     time.Duration
		also     error
	}{
		"after the attempts":          {policy: retry.Policy{Attempts: 4}, reason: retry.AttemptsSpent, attempts: 4, took: 7 * time.Second},
		"after three by default":      {reason: retry.AttemptsSpent, attempts: 3, took: 3 * time.Second},
		"at once with one attempt":    {policy: retry.Policy{Attempts: 1}, reason: retry.AttemptsSpent, attempts: 1},
		"before the time is over":     {policy: retry.Policy{Attempts: -1, MaxElapsed: 10 * time.Second}, reason: retry.ElapsedSpent, attempts: 4, took: 7 * time.Second, wait: 8 * time.Second},
		"before the deadline":         {policy: retry.Policy{Attempts: -1}, timeout: 6 * time.Second, reason: retry.DeadlineTooNear, attempts: 3, took: 3 * time.Second, wait: 4 * time.Second, also: context.DeadlineExceeded},
		"at a deadline exactly":       {policy: retry.Policy{Attempts: -1}, timeout: 3 * time.Second, reason: retry.DeadlineTooNear, attempts: 2, took: time.Second, wait: 2 * time.Second, also: context.DeadlineExceeded},
		"before more than a minute":   {err: retry.After(errDown, retry.DefaultMaxWait+time.Second), reason: retry.WaitTooLong, attempts: 1, wait: retry.DefaultMaxWait + time.Second},
		"before a wait that is long":  {policy: retry.Policy{Attempts: -1, MaxWait: 3 * time.Second}, reason: retry.WaitTooLong, attempts: 3, took: 3 * time.Second, wait: 4 * time.Second},
		"before a server's long wait": {err: retry.After(errDown, 1<<63-1), reason: retry.WaitTooLong, attempts: 1, wait: 1<<63 - 1},
		"a server's wait, deadline":   {err: retry.After(errDown, time.Minute), timeout: 30 * time.Second, reason: retry.DeadlineTooNear, attempts: 1, wait: time.Minute, also: context.DeadlineExceeded},
		"a permanent error":           {err: retry.Permanent(errDown), reason: retry.PermanentError, attempts: 1},
		"a permanent error, wrapped":  {err: fmt.Errorf("call: %w", retry.Permanent(errDown)), reason: retry.PermanentError, attempts: 1},
		"by its own rule":             {policy: retry.Policy{RetryIf: func(err error) bool { return !errors.Is(err, errDown) }}, reason: retry.PermanentError, attempts: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if c.timeout > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.timeout)
					defer cancel()
				}
				start, calls := time.Now(), 0
				err := retry.Do(ctx, steady(c.policy), func(context.Context) error {
					calls++
					if c.err != nil {
						return c.err
					}
					return errDown
				})
				e := gaveUp(t, err, c.reason)
				if calls != c.attempts || e.Attempts != c.attempts {
					t.Errorf("%d calls and Attempts %d, want %d", calls, e.Attempts, c.attempts)
				}
				if took := time.Since(start); took != c.took || e.Elapsed != took {
					t.Errorf("took %v and Elapsed %v, want %v", took, e.Elapsed, c.took)
				}
				if e.Wait != c.wait {
					t.Errorf("Wait %v, want %v", e.Wait, c.wait)
				}
				if !errors.Is(err, errDown) {
					t.Errorf("%v does not match the last error", err)
				}
				if got := errors.Is(err, context.DeadlineExceeded); got != (c.also != nil) {
					t.Errorf("matches DeadlineExceeded: %v", got)
				}
				if msg := err.Error(); !strings.Contains(msg, c.reason.String()) || !strings.Contains(msg, "down") {
					t.Errorf("message %q", msg)
				}
			})
		})
	}
}

// TestDoAfter: a wait that was asked for is never shortened, and lengthened by
// at most half; what does not fit within the deadline is cut off only from
// what was added.
func TestDoAfter(t *testing.T) {
	for _, c := range []struct{ deadline, most time.Duration }{{0, 3 * time.Second}, {2100 * time.Millisecond, 2100 * time.Millisecond}} {
		longest := time.Duration(0)
		for range 200 {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if c.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.deadline)
					defer cancel()
				}
				start, calls := time.Now(), 0
				err := retry.Do(ctx, retry.Policy{}, func(context.Context) error {
					if calls++; calls == 1 {
						return fmt.Errorf("status 429: %w", retry.After(errDown, 2*time.Second))
					}
					return nil
				})
				took := time.Since(start)
				if err != nil || took < 2*time.Second || took > c.most {
					t.Errorf("%v after %v, want 2 s to %v", err, took, c.most)
				}
				longest = max(longest, took)
			})
		}
		if longest < 2*time.Second+(c.most-2*time.Second)/2 {
			t.Errorf("the longest of 200 waits was %v: they are not spread", longest)
		}
	}
}

// TestAfterZeroDoesNotWait: a server that says now is asked at once, without the backoff's wait.
func TestAfterZeroDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		retry.Do(t.Context(), steady(retry.Policy{Attempts: 3}), func(context.Context) error { return retry.After(errDown, 0) })
		if took := time.Since(start); took != 0 {
			t.Errorf("waited %v", took)
		}
	})
}

// TestErrorText: what a user reads of an Error.
func TestErrorText(t *testing.T) {
	for want, e := range map[string]*retry.Error{
		"retry: attempts spent after 1 attempt: down":             {Reason: retry.AttemptsSpent, Attempts: 1, Err: errors.New("down")},
		"retry: wait too long after 2 attempts, next in 2s: down": {Reason: retry.WaitTooLong, Attempts: 2, Wait: 2 * time.Second, Err: errors.New("down")},
		"retry: retry budget spent after 0 attempts, next in 1ns": {Reason: retry.BudgetSpent, Wait: 1},
		"retry: attempts spent after 0 attempts":                  {Reason: retry.AttemptsSpent},
	} {
		if got := e.Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := retry.Do(ctx, retry.Policy{}, func(context.Context) error { return nil })
	if want := "retry: canceled after 0 attempts: context canceled"; err == nil || err.Error() != want {
		t.Errorf("%v, want %q", err, want)
	}
}

func TestAfterNegativeIsBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		retry.Do(t.Context(), steady(retry.Policy{Attempts: 2}), func(context.Context) error {
			return retry.After(errDown, -time.Hour)
		})
		if took := time.Since(start); took != time.Second {
			t.Errorf("waited %v, want the backoff's second", took)
		}
	})
}

func TestMarksOfNilAreNil(t *testing.T) {
	if retry.Permanent(nil) != nil || retry.After(nil, 1) != nil {
		t.Error("a mark made an error of nil")
	}
}

// TestMarksComeOff: the caller sees the error that the function returned, with
// its message and identity.
func TestMarksComeOff(t *testing.T) {
	err := retry.Do(t.Context(), retry.Policy{}, func(context.Context) error {
		return retry.After(retry.Permanent(io.ErrUnexpectedEOF), time.Second)
	})
	if e := gaveUp(t, err, retry.PermanentError); e.Err != io.ErrUnexpectedEOF {
		t.Errorf("Err is %T %v", e.Err, e.Err)
	}
	for _, err := range []error{retry.Permanent(errDown), retry.After(errDown, 1)} {
		if err.Error() != "down" || !errors.Is(err, errDown) {
			t.Errorf("%v", err)
		}
	}
}

func TestDoCanceled(t *testing.T) {
	t.Run("before", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := retry.Do(ctx, retry.Policy{}, func(context.Context) error {
			t.Error("called")
			return nil
		})
		e := gaveUp(t, err, retry.Canceled)
		if !errors.Is(err, context.Canceled) || e.Attempts != 0 || e.Err != nil {
			t.Errorf("%v, %d attempts", err, e.Attempts)
		}
	})
	t.Run("during the call", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		err := retry.Do(ctx, retry.Policy{}, func(context.Context) error {
			cancel()
			return errDown
		})
		if e := gaveUp(t, err, retry.Canceled); !errors.Is(err, context.Canceled) || !errors.Is(err, errDown) || e.Attempts != 1 {
			t.Errorf("%v, %d attempts", err, e.Attempts)
		}
	})
	t.Run("during the wait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(300*time.Millisecond, cancel)
			start := time.Now()
			err := retry.Do(ctx, steady(retry.Policy{}), func(context.Context) error { return errDown })
			gaveUp(t, err, retry.Canceled)
			if took := time.Since(start); took != 300*time.Millisecond {
				t.Errorf("returned after %v, want at once", took)
			}
			if !errors.Is(err, context.Canceled) || !errors.Is(err, errDown) {
				t.Errorf("%v", err)
			}
		})
	})
	// A timeout within the function is its own affair.
	t.Run("not by an inner timeout", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			retry.Do(t.Context(), steady(retry.Policy{}), func(context.Context) error {
				calls++
				return context.DeadlineExceeded
			})
			if calls != 3 {
				t.Errorf("%d calls, want 3", calls)
			}
		})
	})
}

func TestDoRejectsInvalidPolicies(t *testing.T) {
	err := retry.Do(t.Context(), retry.Policy{MaxWait: -1}, func(context.Context) error {
		t.Error("called")
		return nil
	})
	if !errors.Is(err, retry.ErrInvalidConfig) {
		t.Errorf("%v", err)
	}
}

func TestOnRetryReceivesEachRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		p := steady(retry.Policy{OnRetry: func(_ context.Context, r retry.RetryInfo) {
			told = append(told, fmt.Sprint(r.Attempts, r.Err, r.Wait))
		}})
		retry.Do(t.Context(), p, func(context.Context) error { return errDown })
		if got := strings.Join(told, "; "); got != "1 down 1s; 2 down 2s" {
			t.Errorf("told %s", got)
		}
	})
}

// TestDoLastResult: with an error, the result of the last attempt comes along.
func TestDoLastResult(t *testing.T) {
	n := 0
	synctest.Test(t, func(t *testing.T) {
		v, err := retry.DoValue(t.Context(), retry.Policy{}, func(context.Context) (int, error) {
			n++
			return n, errDown
		})
		if v != 3 || err == nil {
			t.Errorf("%d, %v", v, err)
		}
	})
}

// TestBudgetBoundsRetries: 1,000 requests per second, all of which fail after
// a healthy time, add at most the ratio of what succeeded within the window,
// and from then on the floor.
func TestBudgetBoundsRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget(t, retry.BudgetSettings{})
		second := func(healthy bool) (retries int) {
			for range 1000 {
				if healthy {
					b.Deposit()
				} else if b.Withdraw() {
					retries++
				}
				time.Sleep(time.Millisecond)
			}
			return retries
		}
		for range 30 {
			second(true)
		}
		total := 0
		for range 10 {
			total += second(false)
		}
		// 20 % of 10,000 successes, and 10 per second from the floor.
		if most := 2000 + 10*10 + 10; total < 1000 || total > most {
			t.Errorf("%d retries in the first 10 s, want at most %d", total, most)
		}
		for i := range 5 {
			if n := second(false); n < 9 || n > 11 {
				t.Errorf("%d retries in second %d without a success, want the floor", n, 11+i)
			}
		}
	})
}

// TestBudgetStartsLow: a client that starts into an outage has one second's
// floor, not a window's.
func TestBudgetStartsLow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget(t, retry.BudgetSettings{})
		n := 0
		for b.Withdraw() {
			n++
		}
		if n != 10 {
			t.Errorf("%d retries at once, want 10", n)
		}
	})
}

func TestBudgetSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		count := func(s retry.BudgetSettings, successes int) (n int) {
			b := budget(t, s)
			for range successes {
				b.Deposit()
			}
			for n < 10_000 && b.Withdraw() {
				n++
			}
			return n
		}
		for _, c := range []struct {
			s         retry.BudgetSettings
			successes int
			want      int
		}{
			{retry.BudgetSettings{Floor: -1}, 0, 0},
			{retry.BudgetSettings{Floor: -1}, 100, 20},
			{retry.BudgetSettings{Floor: -1, Ratio: 0.1}, 109, 10},
			{retry.BudgetSettings{Ratio: -1}, 100, 10},
			{retry.BudgetSettings{Ratio: -1, Floor: 0.5}, 100, 1},
			{retry.BudgetSettings{Ratio: 1, Floor: 3}, 100, 103},
		} {
			if got := count(c.s, c.successes); got != c.want {
				t.Errorf("%+v after %d successes: %d retries, want %d", c.s, c.successes, got, c.want)
			}
		}
	})
}

// TestBudgetForgets: what was paid and spent counts for one window, to a tenth
// of it.
func TestBudgetForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, after := range []time.Duration{9 * time.Second, 11 * time.Second, time.Hour} {
			b := budget(t, retry.BudgetSettings{Floor: -1})
			for range 5 {
				b.Deposit()
			}
			time.Sleep(after)
			if got, want := b.Withdraw(), after < 10*time.Second; got != want {
				t.Errorf("after %v: %v, want %v", after, got, want)
			}
		}
	})
}

// TestBudgetCountsEachSuccess: also where there are few, after a pause.
func TestBudgetCountsEachSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget(t, retry.BudgetSettings{Floor: -1})
		for range 10 {
			time.Sleep(time.Minute)
			for range 5 {
				b.Deposit()
				time.Sleep(time.Second)
			}
			if !b.Withdraw() || b.Withdraw() {
				t.Error("five successes pay for one retry")
			}
		}
	})
}

// TestBudgetForgetsRetries: one that was paid for leaves the window as what paid for it does.
func TestBudgetForgetsRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget(t, retry.BudgetSettings{Floor: -1, Ratio: 0.2, Window: 10 * time.Second})
		for second := range 60 {
			for range 8 {
				b.Deposit()
			}
			// As many as pay for themselves, in each second anew: 8 × 0.2 by 10 s are 16.
			if second >= 10 && second%10 == 0 {
				n := 0
				for b.Withdraw() {
					n++
				}
				if n != 16 {
					t.Errorf("after %d s: %d retries, want 16", second, n)
				}
			}
			time.Sleep(time.Second)
		}
	})
}

// TestBudgetIsShared: many goroutines take no more than there is.
func TestBudgetIsShared(t *testing.T) {
	b := budget(t, retry.BudgetSettings{Floor: -1, Window: time.Hour})
	var wg sync.WaitGroup
	var mu sync.Mutex
	taken := 0
	for range 100 {
		wg.Go(func() {
			for range 10 {
				b.Deposit()
			}
		})
	}
	wg.Wait()
	for range 100 {
		wg.Go(func() {
			for range 10 {
				if b.Withdraw() {
					mu.Lock()
					taken++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	if taken != 200 {
		t.Errorf("%d retries for 1,000 successes, want 200", taken)
	}
}

func TestDoSpendsItsBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget(t, retry.BudgetSettings{Floor: -1, Window: time.Hour})
		for range 5 {
			if err := retry.Do(t.Context(), retry.Policy{Budget: b}, func(context.Context) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		calls := 0
		fail := func(context.Context) error { calls++; return errDown }
		// Neither a permanent error nor the last attempt takes from the budget.
		retry.Do(t.Context(), retry.Policy{Budget: b}, func(context.Context) error { return retry.Permanent(errDown) })
		retry.Do(t.Context(), retry.Policy{Budget: b, Attempts: 1}, fail)
		calls = 0
		err := retry.Do(t.Context(), retry.Policy{Budget: b}, fail)
		e := gaveUp(t, err, retry.BudgetSpent)
		if calls != 2 || e.Wait == 0 {
			t.Errorf("%d calls, then a wait of %v, want 2: five successes pay for one retry", calls, e.Wait)
		}
	})
}

func budget(t *testing.T, s retry.BudgetSettings) *retry.Budget {
	t.Helper()
	b, err := retry.NewBudget(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
