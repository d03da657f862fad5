package lua

import (
	"regexp"
	"strings"
	"testing"
)

// TestEveryFileIsUsed: each embedded file is a part of the library, whose functions
// TestAllAsFunctions runs. So no file is left that Redis does not compile in a test.
func TestEveryFileIsUsed(t *testing.T) {
	files, err := sources.ReadDir("scripts")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	markers := regexp.MustCompile(`-- (step|steps|generals)\n`)
	for _, f := range files {
		text, err := sources.ReadFile("scripts/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range markers.Split(string(text), -1) {
			if !strings.Contains(Library, strings.TrimSpace(part)) {
				t.Errorf("%s is in no script", f.Name())
			}
		}
	}
}

// TestKnown: every script is known by a name of its text, which those of the buckets share, also one that is made for some
// algorithms only.
func TestKnown(t *testing.T) {
	texts := map[string]string{}
	for _, s := range all {
		texts[s.name] = s.src
	}
	for _, s := range all {
		if got := Known(SHA(s.src)); texts[functionPrefix+got] != s.src {
			t.Errorf("%s is known as %q", s.name, got)
		}
	}
	some := forAll([]Item{gcraItem()})
	if got := Known(some.sha.(string)); got != "all" || some == allScript || forAll([]Item{gcraItem(), gcraItem()}) != some {
		t.Errorf("that of one algorithm is known as %q", got)
	}
	if got := Known("none"); got != "" {
		t.Errorf("none is known as %q", got)
	}
}
