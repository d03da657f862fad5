package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestLists: each server and suite is complete, each package and each test is there, and
// every push is tested on a Redis and on a Valkey.
func TestLists(t *testing.T) {
	var newest []string
	for _, s := range parseServers(serversText) {
		if s.newest {
			newest = append(newest, s.pkg)
		}
	}
	if len(newest) != 2 || newest[0] != "redis-server" || newest[1] != "valkey-server" {
		t.Errorf("the newest servers are %q", newest)
	}
	for _, s := range parseSuites(suitesText) {
		files, err := filepath.Glob(filepath.Join("../..", s.dir, "*_test.go"))
		if err != nil || len(files) == 0 {
			t.Errorf("%s has no tests", s.dir)
		}
		var tests strings.Builder
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(t `).FindAllSubmatch(text, -1) {
				tests.WriteString(string(m[1]) + "\n")
			}
		}
		// Each alternative of a pattern is a test that exists: one that was renamed would
		// leave without a sound.
		for _, name := range strings.Split(strings.Trim(s.pattern, "^()$"), "|") {
			if !regexp.MustCompile("(?m)^" + name).MatchString(tests.String()) {
				t.Errorf("%s has no test %s", s.dir, name)
			}
		}
	}
}

// TestPage: a table for a server that passes and for one that skips.
func TestPage(t *testing.T) {
	suites := []suite{{name: "a", dir: "x"}, {name: "b", dir: "y"}, {name: "a", dir: "x"}}
	rows := []row{
		{server: server{debian: "d1,d2", pkg: "redis-server/d2"}, version: "Redis 1.2.3", cost: map[string]string{"gcra/1": "7.5"}, results: []result{
			{suite: suites[0], passed: 3}, {suite: suites[1], passed: 5, skips: []string{"skipped: m/y.TestOld/row: y_test.go:7: functions: since Redis 7.0"}}, {suite: suites[2], passed: 4},
		}},
		{server: server{debian: "d3", pkg: "valkey-server"}, version: "Valkey 4.5.6", results: []result{{suite: suites[0], passed: 1}, {suite: suites[1], passed: 2}}},
	}
	text := page(t.Context(), rows, suites)
	for _, want := range []string{
		"\nTested on Redis 1.2.3, and on Valkey 4.5.6.\n",
		"| suite | package | Redis 1.2.3 | Valkey 4.5.6 |\n|---|---|---|---|\n| a | `x` | 7 | 1 |\n| b | `y` | 5 + 1 | 2 |\n| all | | 12 + 1 | 3 |\n",
		"| Redis 1.2.3 | d2 | `redis-server` |\n| Valkey 4.5.6 | d3 | `valkey-server` |\n",
		"| Redis 1.2.3 | 7.5 | ",
		"\n## Skipped on Redis 1.2.3\n\n| test | why |\n|---|---|\n| `TestOld/row` | functions: since Redis 7.0 |\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks\n%s\nIt is\n%s", want, text)
		}
	}
}

// TestServerThatCannotBeHad: it is an error, unless the list of skips has it; it is counted.
func TestServerThatCannotBeHad(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // no apt-get
	s := []server{{name: "none", debian: "sid", pkg: "redis-server"}}
	tally := filepath.Join(t.TempDir(), "tally")
	o := options{cache: t.TempDir(), tally: tally}
	if err := test(t.Context(), o, nil, s, nil); err == nil || !strings.Contains(err.Error(), "none cannot be had: apt-get is needed") {
		t.Errorf("it says %v", err)
	}
	may := []*regexp.Regexp{regexp.MustCompile(`^servers\.none$`)}
	if err := test(t.Context(), o, may, s, nil); err == nil {
		t.Error("a table may lack a server")
	}
	o.newest = true
	if err := test(t.Context(), o, may, s, nil); err != nil {
		t.Errorf("where it may be missing it says %v", err)
	}
	if text, err := os.ReadFile(tally); err != nil || string(text) != "0 0 1\n0 0 1\n0 0 1\n" {
		t.Errorf("it counted %q, %v", text, err)
	}
}
