package limitertest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/limiter/limitertest"
)

// A fake denies the third call, as in an outage of Redis, and fails the fourth.
func ExampleFake() {
	lim := &limitertest.Fake{Answer: func(c limitertest.Call) (limiter.Result, error) {
		switch c.Number {
		case 3:
			return limiter.Result{RetryAfter: 2 * time.Second, Source: limiter.SourceLocal}, nil
		case 4:
			return limiter.Result{}, limiter.ErrUnavailable
		}
		return limitertest.Admitted(), nil
	}}
	for range 4 {
		res, err := lim.Allow(context.Background(), "user:7")
		fmt.Println(res.Allowed, res.RetryAfter, res.Source, err)
	}
	// Output:
	// true 0s redis <nil>
	// true 0s redis <nil>
	// false 2s local <nil>
	// false 0s redis limiter: redis unavailable
}

var _ interface {
	limiter.Allower
	Allow(context.Context, string, ...limiter.CallOption) (limiter.Result, error)
	Wait(context.Context, string, ...limiter.CallOption) (*limiter.Reservation, error)
	Reserve(context.Context, string, ...limiter.CallOption) (*limiter.Reservation, error)
} = (*limitertest.Fake)(nil)

func TestFake(t *testing.T) {
	ctx := context.Background()
	limit := limiter.GCRA(limiter.PerSecond(5), 5)
	lim := &limitertest.Fake{Answer: func(c limitertest.Call) (limiter.Result, error) {
		if c.Key == "no" {
			return limitertest.Denied(time.Minute), nil
		}
		return limitertest.Admitted(), nil
	}}
	if _, err := lim.Allow(ctx, "a", limiter.Cost(3), limit); err != nil {
		t.Fatal(err)
	}
	if _, err := lim.AllowN(ctx, "b", 2); err != nil {
		t.Fatal(err)
	}
	var late *limiter.WaitError
	if res, err := lim.Wait(ctx, "no"); !errors.As(err, &late) || late.RetryAfter != time.Minute || res != nil {
		t.Fatalf("%+v, %v", res, err)
	}
	r, err := lim.Reserve(ctx, "c", limiter.Cost(10), limit)
	if err != nil || !r.Allowed {
		t.Fatalf("%+v, %v", r, err)
	}
	if err := r.Settle(ctx, 4); err != nil {
		t.Error(err)
	}
	if err := r.Cancel(ctx); !errors.Is(err, limiter.ErrSettled) {
		t.Errorf("settled twice: %v", err)
	}
	if r, err := lim.Reserve(ctx, "no"); err != nil || r.Allowed || !errors.Is(r.Cancel(ctx), limiter.ErrSettled) {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := lim.Wait(ctx, "d", limiter.AtMost(7)); err != nil || !r.Allowed || r.Admitted != 7 {
		t.Errorf("%+v, %v", r, err)
	}
	ended, end := context.WithCancel(ctx)
	end()
	if _, err := lim.Allow(ended, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	want := []limitertest.Call{{1, "a", 3, limit}, {2, "b", 2, limiter.Limit{}}, {3, "no", 1, limiter.Limit{}}, {4, "c", 10, limit}, {5, "no", 1, limiter.Limit{}}, {6, "d", 7, limiter.Limit{}}}
	if got := lim.Calls(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("calls %v, want %v", got, want)
	}
}

// TestFakeOfManyCallers: each caller has a number of its own.
func TestFakeOfManyCallers(t *testing.T) {
	const callers = 100
	admitted := 0
	lim := &limitertest.Fake{Answer: func(c limitertest.Call) (limiter.Result, error) {
		if c.Number > 10 {
			return limitertest.Denied(time.Second), nil
		}
		admitted++
		return limitertest.Admitted(), nil
	}}
	var all sync.WaitGroup
	for range callers {
		all.Go(func() { _, _ = lim.Allow(context.Background(), "k") })
	}
	all.Wait()
	if admitted != 10 || len(lim.Calls()) != callers {
		t.Errorf("%d admitted of %d calls", admitted, len(lim.Calls()))
	}
}

// TestAnswerSeesTheCalls: Answer may decide by what was asked before.
func TestAnswerSeesTheCalls(t *testing.T) {
	fake := &limitertest.Fake{}
	fake.Answer = func(c limitertest.Call) (limiter.Result, error) {
		if calls := fake.Calls(); len(calls) != c.Number || calls[len(calls)-1] != c {
			t.Errorf("%+v is not the last of %+v", c, calls)
		}
		return limitertest.Admitted(), nil
	}
	for range 2 {
		if res, err := fake.AllowN(t.Context(), "k", 1); err != nil || !res.Allowed {
			t.Errorf("%+v, %v", res, err)
		}
	}
}

// TestWhatIsAdmitted: all that was asked for, unless Answer says how much; and nothing beside an error.
func TestWhatIsAdmitted(t *testing.T) {
	lost := errors.New("lost")
	for _, c := range []struct {
		answer func(limitertest.Call) (limiter.Result, error)
		want   int
		err    error
	}{
		{nil, 5, nil},
		{func(limitertest.Call) (limiter.Result, error) { return limitertest.Admitted(), nil }, 5, nil},
		{func(limitertest.Call) (limiter.Result, error) { return limiter.Result{Allowed: true, Admitted: 1}, nil }, 1, nil},
		{func(limitertest.Call) (limiter.Result, error) { return limitertest.Denied(time.Second), nil }, 0, nil},
		{func(limitertest.Call) (limiter.Result, error) { return limiter.Result{}, lost }, 0, lost},
	} {
		fake := &limitertest.Fake{Answer: c.answer}
		res, err := fake.Allow(t.Context(), "k", limiter.AtMost(5))
		if res.Admitted != c.want || !errors.Is(err, c.err) || c.answer == nil && !res.Allowed {
			t.Errorf("%+v, %v, want %d admitted", res, err, c.want)
		}
		if r, err := fake.Wait(t.Context(), "k"); c.err != nil && (r != nil || !errors.Is(err, lost)) {
			t.Errorf("a wait: %+v, %v", r, err)
		}
	}
}
