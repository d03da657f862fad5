package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestChanges: which changes are made of a package, and which of them its test finds.
func TestChanges(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a package")
	}
	p, err := load("..", "mutants/testdata/sample")
	if err != nil {
		t.Fatal(err)
	}
	tmp := t.TempDir()
	overlay, err := p.overlay(filepath.Join(p.root, "mutants/testdata/sample"), tmp)
	if err != nil {
		t.Fatal(err)
	}
	b := &binary{dir: filepath.Join(p.root, "mutants/testdata/sample"), path: filepath.Join(tmp, "test")}
	if err := b.build(overlay); err != nil {
		t.Fatal(err)
	}
	if err := b.measure(len(p.changes)); err != nil {
		t.Fatal(err)
	}
	const of = "mutants/testdata/sample/sample.go "
	want := map[string]bool{
		"Wait: unit => 2 * (unit)": true,
		"Wait: 2 => 2 * (2)":       true,
		"Wait: d *= 2 => nothing":  true,
		"Wait: d > most || attempts < 0 => !(d > most || attempts < 0)": true,
		"Wait: d > most || attempts < 0 => d > most && attempts < 0":    true,
		"Wait: d > most => d >= most":                                   false,
		"Wait: d > most => d <= most":                                   true,
		"Wait: attempts < 0 => attempts <= 0":                           false,
		"Wait: attempts < 0 => attempts >= 0":                           true,
		"Wait: 0 => 0 + 1":                                              false,
		"Unused: len(s) == 0 => len(s) != 0":                            false,
		"Unused: 0 => 0 + 1":                                            false,
	}
	for _, c := range p.changes {
		found, made := want[strings.TrimPrefix(c.id, of)]
		if got := b.finds(c); !made || got != found {
			t.Errorf("%q is found: %v", c.id, got)
		}
		delete(want, strings.TrimPrefix(c.id, of))
	}
	for id := range want {
		t.Errorf("%q is not made", id)
	}
}

// TestShortTestsRunFirst: what a short test finds does not wait for the long ones, and the rounds
// have all tests, each once.
func TestShortTestsRunFirst(t *testing.T) {
	b := &binary{
		took:  map[string]time.Duration{"a": time.Millisecond, "b": 900 * time.Millisecond, "c": time.Second, "d": time.Second, "e": time.Minute, "f": time.Minute},
		reach: map[int][]string{1: {"a", "b", "c", "d", "e", "f"}},
	}
	var got []string
	for round, limit := range b.rounds(1) {
		got = append(got, fmt.Sprint(round, limit))
	}
	want := []string{"[a b] 13.604s", "[c] 14s", "[d] 14s", "[e] 4m10s", "[f] 4m10s"}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for round := range b.rounds(2) {
		t.Errorf("%v reach a change that none reaches", round)
	}
}

// TestSurvivors: each line names a file that is there, and has a reason; each package of the
// list is there.
func TestSurvivors(t *testing.T) {
	known, err := readSurvivors("survivors.txt")
	if err != nil || len(known) == 0 {
		t.Fatal(known, err)
	}
	for id := range known {
		name, _, _ := strings.Cut(id, " ")
		if _, err := os.Stat(filepath.Join("../..", name)); err != nil {
			t.Error(err)
		}
	}
	bad := filepath.Join(t.TempDir(), "bad")
	if err := os.WriteFile(bad, []byte("a.go f: 1 => 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readSurvivors(bad); err == nil {
		t.Error("a line without a reason is accepted")
	}
	text, err := os.ReadFile("packages.txt")
	if err != nil {
		t.Fatal(err)
	}
	names := strings.Split(strings.TrimSpace(string(text)), ",")
	for _, name := range names {
		if _, err := os.Stat(filepath.Join("../..", name)); err != nil {
			t.Error(err)
		}
	}
	if !slices.Contains(names, "./retry") {
		t.Errorf("%q", names)
	}
}

// TestScriptChanges: which changes are made of a script: none of comments, of strings, of signs and of what
// makes names.
func TestScriptChanges(t *testing.T) {
	const text = `-- a + b
local min = math.min
local n = f('1 + 2') - 3
if a < -b and not c then
  n = n + 1
  redis.call('SET', k, v)
end
return -1 - n
`
	var got []string
	for _, e := range luaEdits(text) {
		if !strings.HasPrefix(text[e.at:], e.was) {
			t.Errorf("%q is not at %d", e.was, e.at)
		}
		got = append(got, strings.TrimSpace(e.was)+" => "+e.is)
	}
	want := []string{
		"- => +", "3 => (3+1)", "< => <=", "and => or", "not => ", "+ => -", "1 => (1+1)", "1 => (1+1)", "- => +",
		"n = n + 1 => ", "redis.call('SET', k, v) => ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
}

// TestSurvivorsAreChanges: each change that is listed is one that is made, so that the list is not older than the code.
func TestSurvivorsAreChanges(t *testing.T) {
	if testing.Short() {
		t.Skip("reads many packages")
	}
	known, err := readSurvivors("survivors.txt")
	if err != nil {
		t.Fatal(err)
	}
	made, read := map[string]bool{}, map[string]bool{}
	for id := range known {
		name, _, _ := strings.Cut(id, " ")
		dir := strings.TrimSuffix(filepath.Dir(name), "/scripts")
		if read[dir] {
			continue
		}
		read[dir] = true
		p, err := load("../..", dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range p.changes {
			made[c.id] = true
		}
	}
	for id := range known {
		if !made[id] {
			t.Errorf("no change of the code any more: %s", id)
		}
	}
}
