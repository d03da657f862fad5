package options

import (
	"errors"
	"math"
	"testing"

	"github.com/holdfast-go/holdfast/internal/configerr"
)

// TestRanges of options, at their borders.
func TestRanges(t *testing.T) {
	for _, c := range []struct {
		option Option[int]
		ok     bool
	}{
		{Headroom[int](0), false},
		{Headroom[int](math.SmallestNonzeroFloat64), true},
		{Headroom[int](0.5), true},
		{Headroom[int](math.Nextafter(1, 0)), true},
		{Headroom[int](1), false},
		{Headroom[int](2), false},
		{Headroom[int](-1), false},
		{Headroom[int](math.NaN()), false},
		{LocalKeys[int](-1), false},
		{LocalKeys[int](0), false},
		{LocalKeys[int](1), true},
		{LocalKeys[int](2), true},
	} {
		if err := Apply(new(Config[int]), []Option[int]{c.option}); err == nil != c.ok || err != nil && !errors.Is(err, configerr.ErrInvalid) {
			t.Errorf("%v, want ok: %v", err, c.ok)
		}
	}
}

// TestOptionsAreApplied in their order, up to the first that is wrong, which changes nothing.
func TestOptionsAreApplied(t *testing.T) {
	var c Config[int]
	if err := Apply(&c, []Limiter{Headroom[int](0.2), LocalKeys[int](7), LocalKeys[int](8)}); err != nil || c.Headroom != 0.2 || c.MaxLocalKeys != 8 {
		t.Errorf("%+v, %v", c, err)
	}
	if err := Apply(&c, []Limiter{LocalKeys[int](9), LocalKeys[int](0), LocalKeys[int](10)}); err == nil || c.MaxLocalKeys != 9 {
		t.Errorf("%d keys, %v", c.MaxLocalKeys, err)
	}
	if err := Apply(&c, []Limiter{nil}); !errors.Is(err, configerr.ErrInvalid) {
		t.Errorf("no option: %v", err)
	}
}
