package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestProtections: the table can be read, each mutant has its lines in its files once, and
// names a test or says why not.
func TestProtections(t *testing.T) {
	list, err := read("protections.txt")
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 10 {
		t.Fatalf("only %d mutants", len(list))
	}
	for _, m := range list {
		for _, e := range m.edits {
			src, err := os.ReadFile(filepath.Join("../..", e.file))
			if err != nil {
				t.Errorf("%s: %v", m.name, err)
				continue
			}
			if n := strings.Count(string(src), e.old); e.old == "" || n != 1 {
				t.Errorf("%s: %s has the lines %d times", m.name, e.file, n)
			}
			if e.old == e.new {
				t.Errorf("%s: nothing is changed in %s", m.name, e.file)
			}
		}
	}
}
