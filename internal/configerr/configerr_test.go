package configerr

import (
	"errors"
	"testing"
)

// TestMessages name the package, the field, the value and the rule.
func TestMessages(t *testing.T) {
	plain := errors.New("no such file")
	for _, c := range []struct {
		err  error
		want string
	}{
		{New("burst", 0, "must be at least 1"), "burst is 0: must be at least 1"},
		{New("share", 2, "must be at most 100 %"), "share is 2: must be at most 100 %"},
		{New("share", 2, "must be at most %d %%", 1), "share is 2: must be at most 1 %"},
		{New("name", "", "must not be empty"), `name is "": must not be empty`},
		{Option(), "option is nil: must not be nil"},
		{In("limiter", New("burst", 0, "must be at least 1")), "limiter: burst is 0: must be at least 1"},
		{In("retry", In("limiter", New("burst", 0, "must be at least 1"))), "retry: burst is 0: must be at least 1"},
		{In("limiter", plain), "limiter: invalid configuration: no such file"},
		{Unless(false, "burst", 0, "must be at least %d", 1), "burst is 0: must be at least 1"},
	} {
		if c.err == nil || c.err.Error() != c.want || !errors.Is(c.err, ErrInvalid) || errors.Is(c.err, errors.ErrUnsupported) {
			t.Errorf("%v, want %s", c.err, c.want)
		}
	}
	if !errors.Is(In("limiter", plain), plain) {
		t.Error("the cause is lost")
	}
	if In("limiter", nil) != nil || Unless(true, "burst", 1, "must be at least 1") != nil {
		t.Error("an error of nothing")
	}
}

// TestOptionsAreApplied in their order; a nil one is an error.
func TestOptionsAreApplied(t *testing.T) {
	var got []int
	add := func(n int) func(*[]int) { return func(c *[]int) { *c = append(*c, n) } }
	if err := Apply(&got, []func(*[]int){add(1), add(2)}); err != nil || len(got) != 2 || got[0] != 1 {
		t.Errorf("%v, %v", got, err)
	}
	if err := Apply(&got, []func(*[]int){add(3), nil, add(4)}); !errors.Is(err, ErrInvalid) || len(got) != 3 {
		t.Errorf("%v, %v", got, err)
	}
}

// TestNothing is nil, or a pointer that is; no other value is asked.
func TestNothing(t *testing.T) {
	n := 0
	for _, c := range []struct {
		v    any
		want bool
	}{{nil, true}, {(*int)(nil), true}, {&n, false}, {0, false}, {"", false}, {struct{}{}, false}} {
		if got := IsNil(c.v); got != c.want {
			t.Errorf("%#v: %v", c.v, got)
		}
	}
}
