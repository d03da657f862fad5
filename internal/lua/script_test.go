package lua

import (
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
	for _, f := range files {
		text, err := sources.ReadFile("scripts/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range strings.Split(string(text), "-- step\n") {
			if !strings.Contains(Library, strings.TrimSpace(part)) {
				t.Errorf("%s is in no script", f.Name())
			}
		}
	}
}
