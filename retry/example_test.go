package retry_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/holdfast-go/holdfast/retry"
)

func ExampleDo() {
	calls := 0
	err := retry.Do(context.Background(), retry.Policy{
		Attempts: 5,
		Backoff:  retry.Backoff{Initial: time.Millisecond},
	}, func(context.Context) error {
		if calls++; calls < 3 {
			return errors.New("connection refused")
		}
		return nil
	})
	fmt.Println(err, calls)
	// Output: <nil> 3
}

// A wait that does not fit before the deadline is not begun.
func ExampleError() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := retry.Do(ctx, retry.Policy{}, func(context.Context) error {
		return retry.After(errors.New("too many requests"), 30*time.Second)
	})
	if e, ok := errors.AsType[*retry.Error](err); ok {
		fmt.Println(e.Reason, e.Wait, e.Err)
	}
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	// Output:
	// deadline too near 30s too many requests
	// true
}

func ExampleDoValue() {
	v, err := retry.DoValue(context.Background(), retry.Policy{}, func(context.Context) (int, error) {
		return 42, nil
	})
	fmt.Println(v, err)
	// Output: 42 <nil>
}

// One budget for all calls to the same server.
func ExampleNewBudget() {
	budget, err := retry.NewBudget(retry.BudgetSettings{Ratio: 0.1})
	if err != nil {
		panic(err)
	}
	err = retry.Do(context.Background(), retry.Policy{Budget: budget}, func(context.Context) error {
		return nil
	})
	fmt.Println(err)
	// Output: <nil>
}

func ExampleNewBudget_invalid() {
	_, err := retry.NewBudget(retry.BudgetSettings{Window: time.Millisecond})
	fmt.Println(err)
	// Output: retry: BudgetSettings.Window is 1ms: must be from 1s to 1h
}

func ExampleBackoff_Start() {
	waits := retry.Backoff{Initial: 100 * time.Millisecond, Max: time.Second, Jitter: retry.JitterNone}.Start()
	for range 5 {
		fmt.Println(waits.Next())
	}
	// Output:
	// 100ms
	// 200ms
	// 400ms
	// 800ms
	// 1s
}

func ExampleParseRetryAfter() {
	h := http.Header{}
	h.Set("Date", "Wed, 01 Jul 2026 12:00:00 GMT")
	h.Set("Retry-After", "Wed, 01 Jul 2026 12:00:30 GMT")
	came := time.Date(2026, 7, 1, 12, 5, 0, 0, time.UTC) // by a clock that is five minutes ahead
	hint, ok := retry.ParseRetryAfter(h, came)
	fmt.Println(hint.Wait, ok)
	// Output: 30s true
}

func ExampleParseQuota() {
	h := http.Header{}
	h.Set("X-RateLimit-Remaining-Requests", "0")
	h.Set("X-RateLimit-Reset-Requests", "6m0s")
	hint, ok := retry.ParseQuota(h, time.Now(), retry.ResetGuess)
	fmt.Println(hint.Remaining, hint.Wait, ok)
	// Output: 0 6m0s true
}
