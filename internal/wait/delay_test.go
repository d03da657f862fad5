package wait_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/wait"
)

// TestMostDelayIsOfTheContext, and of those made from it; the innermost one holds.
func TestMostDelayIsOfTheContext(t *testing.T) {
	outer := wait.WithMostDelay(context.Background(), time.Minute)
	for name, c := range map[string]struct {
		ctx  context.Context
		want time.Duration
		ok   bool
	}{
		"none":  {context.Background(), 0, false},
		"one":   {outer, time.Minute, true},
		"two":   {wait.WithMostDelay(outer, time.Second), time.Second, true},
		"of 0":  {wait.WithMostDelay(outer, 0), 0, true},
		"below": {context.WithoutCancel(outer), time.Minute, true},
	} {
		if d, ok := wait.MostDelay(c.ctx); d != c.want || ok != c.ok {
			t.Errorf("%s: %v, %v", name, d, ok)
		}
	}
}
