package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestProtections: the table can be read, each mutant has its lines in its files once, and
// the tests and fleets that it names are there.
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
			if test != "" && !hasTest(t, filepath.Join("../..", m.module, pkg), test) {
				t.Errorf("%s: %s has no test %s", m.name, pkg, test)
			}
		}
		if test, name, one := strings.Cut(m.fleet, "/"); m.fleet != "" && (one && !hasTest(t, "../../internal/sim", test+`\((?s:.)*"`+regexp.QuoteMeta(name)+`": +`) || !hasTest(t, "../../internal/sim", test+`\(`)) {
			t.Errorf("%s: there is no fleet %s", m.name, m.fleet)
		}
		if m.fleet != "" && m.unseen != "" {
			t.Errorf("%s: fleet %s finds it, and none can: %s", m.name, m.fleet, m.unseen)
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

// TestBrokenPromises: what fleets broke is said by its short name, or by the test of a fleet of its own.
func TestBrokenPromises(t *testing.T) {
	for out, want := range map[string]string{
		"    simulate_test.go:68: seed 12: P5 at 1m0s: much\n--- FAIL: TestSimulate (3.00s)\n":         "P5, seed 12",
		"    kept_test.go:178: P1 at 1m0s: much\n--- FAIL: TestKept (3.00s)\n    --- FAIL: TestKept/a": "P1, a kept fleet",
		"--- FAIL: TestReturnIsGentle (3.00s)\n    --- FAIL: TestReturnIsGentle/a\n":                   "`TestReturnIsGentle`",
		"--- FAIL: TestReturnIsGentle (3.00s)\npanic: deadlock\n":                                      "a panic or deadlock",
	} {
		if got := broken(out); got != want {
			t.Errorf("%q: %s, want %s", out, got, want)
		}
	}
}

// TestTogether: two protections of one file are both taken out of it, and what is not found needs no
// further reason only where each has one.
func TestTogether(t *testing.T) {
	was := *root
	t.Cleanup(func() { *root = was })
	*root = t.TempDir()
	path := filepath.Join(*root, "a.go")
	if err := os.WriteFile(path, []byte("x\ny\nz\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := mutant{name: "a", edits: []edit{{"a.go", "x\n", "1\n"}}, unseen: "no reason"}
	b := mutant{name: "b", edits: []edit{{"a.go", "z\n", "2\n"}}}
	both := together([]mutant{a, b})
	overlay, err := both.overlay()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(filepath.Dir(overlay)) })
	text, err := os.ReadFile(overlay)
	if err != nil {
		t.Fatal(err)
	}
	var read struct{ Replace map[string]string }
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	if src, err := os.ReadFile(read.Replace[path]); string(src) != "1\ny\n2\n" {
		t.Errorf("changed to %q (%v)", src, err)
	}
	if both.name != "a; b" || both.unseen != "" || together([]mutant{a, a}).unseen == "" {
		t.Errorf("together: %+v", both)
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

// TestEachRowIsTakenOut: each protection of the table of CONTRIBUTING.md is taken out by a block, or one says why
// none can. There are finer blocks beside those.
func TestEachRowIsTakenOut(t *testing.T) {
	list, err := read("protections.txt")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| protection | where | test |\n|---|---|---|\n")
	rows := map[string]bool{}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, " | ")
		if len(cells) != 3 {
			break
		}
		rows[strings.TrimPrefix(cells[0], "| ")] = false
	}
	if len(rows) < 200 {
		t.Fatalf("only %d rows are read", len(rows))
	}
	for _, m := range list {
		if _, ok := rows[m.row]; !ok && m.row != "" {
			t.Errorf("%s: the table has no row %q", m.name, m.row)
		}
		rows[cmp.Or(m.row, m.name)] = true
		if (m.none == "") != (len(m.edits) > 0) {
			t.Errorf("%s: either lines are changed or none can be", m.name)
		}
		if m.unseen != "" && m.tests == "" {
			t.Errorf("%s: the simulator cannot find it, and no test is named", m.name)
		}
	}
	for row, taken := range rows {
		if !taken {
			t.Errorf("no block takes out %q", row)
		}
	}
}

// TestWhatWasFoundIsTriedAgain: only once the function, the change or what has to find it is another.
func TestWhatWasFoundIsTriedAgain(t *testing.T) {
	was := *root
	t.Cleanup(func() { *root = was })
	*root = t.TempDir()
	source, path := filepath.Join(*root, "a.go"), filepath.Join(t.TempDir(), "found.jsonl")
	write := func(text string) {
		if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	of := func(m *mutant) result {
		rs, err := openResults(path)
		if err != nil {
			t.Fatal(err)
		}
		r, err := rs.of(m)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	write("x\n")
	m := mutant{name: "a | b", edits: []edit{{"a.go", "x\n", "y\n"}}, tests: "p TestA"}
	r := of(&m)
	r.Simulator, r.Tests = "P1, a kept fleet, 9 s", "TestA"
	rs, err := openResults(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(rs.keep(result{Name: "other"}), rs.keep(r)); err != nil {
		t.Fatal(err)
	}
	if got := of(&m); got != r {
		t.Errorf("%+v, want %+v", got, r)
	}
	write("x\nz\n")
	if got := of(&m); got.Simulator != "" || got.Tests != "" {
		t.Errorf("of another file: %+v", got)
	}
	write("x\n")
	m.tests = "p TestB"
	if line, err := m.line(of(&m)); err != nil || !strings.Contains(line, "| not asked yet | not tried yet: `p TestB` |") {
		t.Errorf("of another test: %s (%v)", line, err)
	}
	if line, err := m.line(result{Looked: time.Minute}); err == nil || !strings.Contains(line, "**not in 1m0s**") {
		t.Errorf("found by nothing: %s (%v)", line, err)
	}
	if line, err := m.line(result{Simulator: "P1", Passed: true}); err == nil || !strings.Contains(line, "**not by** `p TestB`") {
		t.Errorf("not found by its tests: %s (%v)", line, err)
	}
}

// TestAround: what a change elsewhere in a file does not concern is not tried again.
func TestAround(t *testing.T) {
	const src = "package p\n\nimport \"fmt\"\n\nconst a = 1\n\n// f prints.\nfunc f() {\n\tfmt.Println(a)\n}\n\nfunc g() {\n\tf()\n}\n"
	for old, want := range map[string]string{
		"\tfmt.Println(a)\n":                  "func f() {\n\tfmt.Println(a)\n}",
		"func g() {\n\tf()\n}\n":              "func g() {\n\tf()\n}",
		"const a = 1\n":                       "const a = 1",
		"\tfmt.Println(a)\n}\n\nfunc g() {\n": src, // of two
		"no such line\n":                      src,
	} {
		if got := around(edit{"a.go", old, ""}, src); got != want {
			t.Errorf("%q is in %q", old, got)
		}
	}
	if got := around(edit{"a.lua", "x\n", ""}, "x\ny\n"); got != "x\ny\n" {
		t.Errorf("a line of a script is in %q", got)
	}
}

// TestDefectsHaveTheirColumns: each table of the page has as many cells in each line as in its head.
func TestDefectsHaveTheirColumns(t *testing.T) {
	m := mutant{name: "a", defect: "b", edits: []edit{{"a.go", "x\n", "y\n"}}, tests: "p TestA"}
	page := document([]mutant{m}, []result{{Simulator: "P1", Tests: "TestA"}})
	for _, line := range []string{"| a | P1 | `p TestA` |\n", "| defect | protection taken out | found by the simulator | by tests |\n|---|---|---|---|\n| b | a | P1 | `p TestA` |\n"} {
		if !strings.Contains(page, line) {
			t.Errorf("the page has no %q:\n%s", line, page)
		}
	}
}

// TestPageIsWhole: the page has a line for each block, in their order, and none says that what looked did
// not find it.
func TestPageIsWhole(t *testing.T) {
	list, err := read("protections.txt")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/protections.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	lines := strings.Split(table, "\n")
	if len(lines) != len(list) {
		t.Fatalf("%d lines for %d blocks: run make mutants", len(lines), len(list))
	}
	for i, m := range list {
		if !strings.HasPrefix(lines[i], "| "+m.name+" | ") {
			t.Errorf("line %d is not of %q: %s", i, m.name, lines[i])
		}
		if strings.Contains(lines[i], "**") {
			t.Errorf("what looked did not find it, and nothing says why: %s", lines[i])
		}
	}
}
