// Command mutants takes protections out, one at a time, and shows what finds that: the
// simulator, within a minute, and the tests that protections.txt names. It changes no file:
// the go command reads the changed one in place of the other (-overlay). What was found is
// remembered while the changed files stay as they are, so a run that was stopped goes on where it was.
//
//	go run ./mutants [-run regexp] [-sim 1m] [-tests] [-p 2] [-together] [-out ../docs/protections.md]
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// mutant is a protection, and how it is taken out.
type mutant struct {
	name   string
	row    string // of the table of CONTRIBUTING.md: the name, where that is not it
	defect string // one that users met once, which this puts back, or empty
	edits  []edit
	none   string // why no line can be changed, or empty
	module string // a nested one that has the tests, or empty
	tests  string // "package TestA|TestB", or empty
	fleet  string // the fleet that finds it, as "TestKept/its name" or "TestName", or empty
	unseen string // why the simulator cannot find it
}

// edit replaces lines of a file, which must be there once.
type edit struct{ file, old, new string }

var (
	only  = flag.String("run", "", "only the mutants whose name matches this regular expression")
	sim   = flag.Duration("sim", time.Minute, "how long the simulator may look for each; 0 is not at all")
	brief = flag.Duration("brief", 10*time.Second, "how long it may look for those of which the list says why it cannot find them")
	tests = flag.Bool("tests", false, "run the tests that are named, too")
	once  = flag.Bool("together", false, "take all of them out at once, for the simulator")
	out   = flag.String("out", "", "also write the whole table to this file")
	found = flag.String("found", "mutants/found.jsonl", "what was found before, which is not tried again while the changed functions are what they were")
	root  = flag.String("root", "..", "the root of the module")
)

func main() {
	flag.Parse()
	if *pkgs != "" {
		if err := generic(); err != nil {
			fail(err)
		}
		return
	}
	list, err := read(filepath.Join(*root, "scripts/mutants/protections.txt"))
	if err != nil {
		fail(err)
	}
	match := regexp.MustCompile(*only).MatchString
	if *once {
		list = slices.DeleteFunc(list, func(m mutant) bool { return m.none != "" || !match(m.name) })
		list, match = []mutant{together(list)}, func(string) bool { return true }
		*found = os.DevNull
	}
	if err := takeOut(list, match); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "mutants:", err)
	os.Exit(1)
}

// read reads the table: blocks of "== name", one or more times "file: …" with lines that
// begin with "-" and "+", and perhaps "row: …", "defect: …", "module: …", "tests: …", "fleet: …" and "unseen: …"; or "none: …".
func read(path string) (list []mutant, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for block := range strings.SplitSeq(string(b), "\n== ") {
		var m mutant
		for i, line := range strings.Split(block, "\n") {
			switch key, value, _ := strings.Cut(line, ": "); {
			case i == 0:
				m.name = strings.TrimPrefix(line, "== ")
			case strings.HasPrefix(line, "-"):
				m.edits[len(m.edits)-1].old += line[1:] + "\n"
			case strings.HasPrefix(line, "+"):
				m.edits[len(m.edits)-1].new += line[1:] + "\n"
			case key == "file":
				m.edits = append(m.edits, edit{file: value})
			case key == "row":
				m.row = value
			case key == "defect":
				m.defect = value
			case key == "none":
				m.none = value
			case key == "module":
				m.module = value
			case key == "tests":
				m.tests = value
			case key == "fleet":
				m.fleet = value
			case key == "unseen":
				m.unseen = value
			}
		}
		if len(m.edits) > 0 || m.none != "" {
			list = append(list, m)
		}
	}
	return list, nil
}

// together is a mutant without all of these protections. It says why it is not found where each says so.
func together(list []mutant) (all mutant) {
	var names, unseen []string
	for _, m := range list {
		names = append(names, m.name)
		all.edits = append(all.edits, m.edits...)
		if m.unseen != "" {
			unseen = append(unseen, m.unseen)
		}
	}
	if all.name = strings.Join(names, "; "); len(unseen) == len(list) {
		all.unseen = strings.Join(unseen, "; ")
	}
	return all
}

// overlay writes the changed files, and what the go command needs to read them.
func (m *mutant) overlay() (string, error) {
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return "", err
	}
	sources, replace := map[string]string{}, map[string]string{}
	for i, e := range m.edits {
		path, err := filepath.Abs(filepath.Join(*root, e.file))
		if err != nil {
			return "", err
		}
		if replace[path] == "" {
			src, err := os.ReadFile(path)
			if err != nil {
				return "", err
			}
			sources[path], replace[path] = string(src), filepath.Join(dir, fmt.Sprint(i, filepath.Base(path)))
		}
		if n := strings.Count(sources[path], e.old); e.old == "" || n != 1 {
			return "", fmt.Errorf("%s has the lines %d times", e.file, n)
		}
		sources[path] = strings.Replace(sources[path], e.old, e.new, 1)
		if err := os.WriteFile(replace[path], []byte(sources[path]), 0o600); err != nil {
			return "", err
		}
	}
	b, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, b, 0o600)
}

// run runs tests with the change, for some time at most, and returns what they print, and whether they fail.
func (m *mutant) run(most time.Duration, overlay, tests, module, pkg string, env ...string) (string, bool, error) {
	cmd := exec.Command("go", "test", "-overlay", overlay, "-count=1", "-vet=off", "-failfast", "-timeout", most.String(), "-run", tests, pkg)
	cmd.Dir, cmd.Env = filepath.Join(*root, module), append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil && !strings.Contains(string(out), "--- FAIL") && !strings.Contains(string(out), "panic:") && !strings.Contains(string(out), "fatal error:") {
		return "", false, fmt.Errorf("%s: %w\n%s", m.name, err, out)
	}
	return string(out), err != nil, nil
}

var (
	violation = regexp.MustCompile(`(seed \d+: |(?:kept|calendar)_test.go:\d+: )(\w+) at [^:]*: .*`)
	failed    = regexp.MustCompile(`(?m)^--- FAIL: (\w+)`)
)

// simulate says which promise was broken first, and after how long. The fleet that is known to find it
// lives first, and alone. A script is executed by a real Redis, beside the simulated servers.
func (m *mutant) simulate(overlay string, length time.Duration) (string, error) {
	began := time.Now()
	fleets := []string{"^(TestKept|TestDaysOfACalendar|TestSimulate)$"}
	if m.scripts() {
		fleets = []string{"^TestScriptsReplyAsStepFunctions$"}
	}
	if test, name, one := strings.Cut(m.fleet, "/"); one {
		fleets = slices.Insert(fleets, 0, "^"+test+"$/^"+regexp.QuoteMeta(strings.ReplaceAll(name, " ", "_"))+"$")
	} else if test != "" {
		fleets = slices.Insert(fleets, 0, "^"+test+"$")
	}
	for _, tests := range fleets {
		out, failed, err := m.run(length+10*time.Minute, overlay, tests, "", "./internal/sim", "SIM="+length.String(), "SIM_STOP=1")
		if err != nil {
			return "", err
		}
		if !failed {
			continue
		}
		return fmt.Sprintf("%s, %.0f s", broken(out), time.Since(began).Seconds()), nil
	}
	return "", nil
}

// broken says what fleets broke, by what their tests print.
func broken(out string) string {
	if v := violation.FindStringSubmatch(out); v != nil {
		return v[2] + ", " + where(v[1])
	}
	if test := failed.FindStringSubmatch(out); test != nil && !strings.Contains(out, "panic:") && !strings.Contains(out, "fatal error:") {
		return "`" + test[1] + "`"
	}
	return "a panic or deadlock"
}

// test returns the tests that find it, or none.
func (m *mutant) test(overlay string) (string, error) {
	pkg, names, _ := strings.Cut(m.tests, " ")
	_, failed, err := m.run(4*time.Minute, overlay, "^("+names+")$", m.module, "./"+pkg)
	if !failed {
		return "", err
	}
	return names, err
}

// where says in which fleet it was.
func where(found string) string {
	if seed, ok := strings.CutPrefix(found, "seed "); ok {
		return "seed " + strings.TrimSuffix(seed, ": ")
	}
	return "a kept fleet"
}
