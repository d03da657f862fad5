package enum

import (
	"strings"
	"testing"
)

type colour uint8

var names = []string{"", "red", "green"}

// TestNames: a value has its name, and any other one says which it is.
func TestNames(t *testing.T) {
	for v, want := range map[colour]string{0: "unknown colour 0", 1: "red", 2: "green", 3: "unknown colour 3", 255: "unknown colour 255"} {
		if got := Name(names, v, "colour"); got != want {
			t.Errorf("%d: %q, want %q", v, got, want)
		}
	}
}

// TestParsing: a name is its value, and another one changes nothing.
func TestParsing(t *testing.T) {
	all := []string{"red", "green"}
	for name, want := range map[string]colour{"red": 0, "green": 1} {
		v := colour(9)
		if err := Parse(all, &v, "colour", name); err != nil || v != want {
			t.Errorf("%s: %d, %v", name, v, err)
		}
	}
	v := colour(9)
	if err := Parse(all, &v, "colour", "blue"); err == nil || v != 9 || !strings.Contains(err.Error(), `colour is "blue": must be one of red, green`) {
		t.Errorf("blue: %d, %v", v, err)
	}
}
