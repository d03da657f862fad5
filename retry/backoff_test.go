package retry_test

import (
	"errors"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/retry"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func TestBackoffCurve(t *testing.T) {
	for name, c := range map[string]struct {
		b    retry.Backoff
		want []time.Duration
	}{
		"defaults":      {retry.Backoff{}, []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 20 * time.Second, 20 * time.Second}},
		"constant":      {retry.Backoff{Initial: time.Second, Multiplier: 1}, []time.Duration{time.Second, time.Second, time.Second}},
		"small max":     {retry.Backoff{Max: 100 * time.Millisecond}, []time.Duration{100 * time.Millisecond, 100 * time.Millisecond}},
		"large initial": {retry.Backoff{Initial: time.Minute}, []time.Duration{time.Minute, time.Minute}},
		"to the day":    {retry.Backoff{Initial: time.Nanosecond, Max: 24 * time.Hour, Multiplier: 100}, []time.Duration{1, 100, 10000}},
		"not valid":     {retry.Backoff{Initial: -1}, []time.Duration{500 * time.Millisecond, time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			c.b.Jitter = retry.JitterNone
			if name == "not valid" {
				c.b.Jitter = 77
			}
			s := c.b.Start()
			for i, want := range c.want {
				got := s.Next()
				if name == "not valid" {
					if got < 0 || got > want {
						t.Errorf("wait %d is %v, want at most %v", i, got, want)
					}
				} else if got != want {
					t.Errorf("wait %d is %v, want %v", i, got, want)
				}
			}
		})
	}
}

// TestJitterIsClamped: no wait is longer than the curve's, and so none longer
// than Max; full jitter covers [0, d], equal [d/2, d].
func TestJitterIsClamped(t *testing.T) {
	const d = time.Second
	for _, c := range []struct {
		jitter retry.Jitter
		least  time.Duration
	}{{retry.JitterFull, 0}, {retry.JitterEqual, d / 2}, {retry.JitterNone, d}} {
		t.Run(c.jitter.String(), func(t *testing.T) {
			low, high := time.Duration(math.MaxInt64), time.Duration(0)
			s := retry.Backoff{Initial: d, Max: d, Jitter: c.jitter}.Start()
			for range 2000 {
				w := s.Next()
				low, high = min(low, w), max(high, w)
			}
			if low < c.least || high > d {
				t.Errorf("waits from %v to %v, want within %v to %v", low, high, c.least, d)
			}
			// 2,000 draws miss a tenth of the range once in 10⁹¹ runs.
			if span := d - c.least; low > c.least+span/10 || high < d-span/10 {
				t.Errorf("waits from %v to %v do not cover %v to %v", low, high, c.least, d)
			}
		})
	}
}

// TestSequencesAreSeparate: what one call has waited is nothing to another.
func TestSequencesAreSeparate(t *testing.T) {
	b := retry.Backoff{Jitter: retry.JitterNone}
	one := b.Start()
	for range 5 {
		one.Next()
	}
	if got := b.Start().Next(); got != retry.DefaultInitial {
		t.Errorf("the first wait of another call is %v, want %v", got, retry.DefaultInitial)
	}
}

// TestSequenceHasNoEnd: the curve's own limit of 15 minutes does not apply.
func TestSequenceHasNoEnd(t *testing.T) {
	s := retry.Backoff{Max: time.Minute, Jitter: retry.JitterNone}.Start()
	for range 10_000 {
		if s.Next() < 0 {
			t.Fatal("the sequence stopped")
		}
	}
}

func FuzzBackoff(f *testing.F) {
	f.Add(int64(time.Second), int64(time.Minute), 2.0, uint8(0))
	f.Add(int64(1), int64(24*time.Hour), 100.0, uint8(1))
	f.Add(int64(-1), int64(math.MaxInt64), math.NaN(), uint8(9))
	f.Add(int64(0), int64(0), math.Inf(1), uint8(2))
	f.Fuzz(func(t *testing.T, initial, most int64, multiplier float64, jitter uint8) {
		b := retry.Backoff{Initial: time.Duration(initial), Max: time.Duration(most), Multiplier: multiplier, Jitter: retry.Jitter(jitter)}
		limit := b.Max
		if b.Validate() != nil || b.Max == 0 {
			limit = max(retry.DefaultMax, b.Initial)
		}
		s := b.Start()
		for i := range 100 {
			if d := s.Next(); d < 0 || d > limit {
				t.Fatalf("%+v: wait %d is %v", b, i, d)
			}
		}
	})
}

func TestConfigErrors(t *testing.T) {
	for want, err := range map[string]error{
		"retry: Backoff.Initial is -1s: must not be negative":                                      retry.Backoff{Initial: -time.Second}.Validate(),
		"retry: Backoff.Max is 1s: must be from Initial (2s) to 24h":                               retry.Backoff{Initial: 2 * time.Second, Max: time.Second}.Validate(),
		"retry: Backoff.Max is 25h0m0s: must be from Initial (500ms) to 24h":                       retry.Backoff{Max: 25 * time.Hour}.Validate(),
		"retry: Backoff.Multiplier is 0.5: must be from 1 to 100":                                  retry.Backoff{Multiplier: 0.5}.Validate(),
		"retry: Backoff.Multiplier is NaN: must be from 1 to 100":                                  retry.Backoff{Multiplier: math.NaN()}.Validate(),
		"retry: Backoff.Jitter is unknown jitter 3: must be JitterFull, JitterEqual or JitterNone": retry.Backoff{Jitter: 3}.Validate(),
		"retry: Policy.MaxElapsed is -1s: must not be negative":                                    retry.Policy{MaxElapsed: -time.Second}.Validate(),
		"retry: Policy.MaxWait is -1s: must not be negative":                                       retry.Policy{MaxWait: -time.Second}.Validate(),
		"retry: BudgetSettings.Ratio is 11: must be at most 10":                                    budgetErr(retry.BudgetSettings{Ratio: 11}),
		"retry: BudgetSettings.Ratio is NaN: must be at most 10":                                   budgetErr(retry.BudgetSettings{Ratio: math.NaN()}),
		"retry: BudgetSettings.Window is 10ms: must be from 1s to 1h":                              budgetErr(retry.BudgetSettings{Window: 10 * time.Millisecond}),
		"retry: BudgetSettings.Window is 1h0m1s: must be from 1s to 1h":                            budgetErr(retry.BudgetSettings{Window: time.Hour + time.Second}),
		"retry: BudgetSettings.Floor is 1.0000005e+06: must be at most 1000000":                    budgetErr(retry.BudgetSettings{Floor: 1e6 + 0.5}),
		"retry: Backoff.Multiplier is 100.5: must be from 1 to 100":                                retry.Backoff{Multiplier: 100.5}.Validate(),
		"retry: BudgetSettings.Floor is 2e+06: must be at most 1000000":                            budgetErr(retry.BudgetSettings{Floor: 2e6}),
		"retry: Backoff.Multiplier is +Inf: must be from 1 to 100":                                 retry.Policy{Backoff: retry.Backoff{Multiplier: math.Inf(1)}}.Validate(),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("got %v\nwant %v", err, want)
			continue
		}
		if !errors.Is(err, retry.ErrInvalidConfig) {
			t.Errorf("%v is a %T", err, err)
		}
	}
}

// TestBoundsAreAllowed: what a rule names as its bound keeps to it.
func TestBoundsAreAllowed(t *testing.T) {
	for _, err := range []error{
		budgetErr(retry.BudgetSettings{Ratio: 10}), budgetErr(retry.BudgetSettings{Window: time.Second}),
		budgetErr(retry.BudgetSettings{Window: time.Hour}), budgetErr(retry.BudgetSettings{Floor: 1e6}),
		retry.Backoff{Multiplier: 1}.Validate(), retry.Backoff{Multiplier: 100}.Validate(), retry.Backoff{Max: 24 * time.Hour}.Validate(),
	} {
		if err != nil {
			t.Error(err)
		}
	}
}

// TestInvalidBackoffIsTheDefault is the default one.
func TestInvalidBackoffIsTheDefault(t *testing.T) {
	for _, b := range []retry.Backoff{{Multiplier: -1, Jitter: retry.JitterNone}, {Initial: -time.Second}} {
		s := b.Start()
		for i := range 10 {
			if d := s.Next(); d < 0 || d > min(retry.DefaultInitial<<i, retry.DefaultMax) {
				t.Errorf("%+v: wait %d is %v", b, i, d)
			}
		}
	}
}

func budgetErr(s retry.BudgetSettings) error {
	_, err := retry.NewBudget(s)
	return err
}
