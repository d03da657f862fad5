package main

import (
	"os"
	"path/filepath"
	"regexp"
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
		pkg, named, _ := strings.Cut(m.tests, " ")
		for test := range strings.SplitSeq(named, "|") {
			if test != "" && !hasTest(t, filepath.Join("../..", pkg), test) {
				t.Errorf("%s: %s has no test %s", m.name, pkg, test)
			}
		}
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

// hasTest reports whether a test of a package has a name that the pattern matches.
func hasTest(t *testing.T, dir, pattern string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	find := regexp.MustCompile("(?m)^func " + pattern)
	for _, name := range files {
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if find.Match(src) {
			return true
		}
	}
	return false
}
