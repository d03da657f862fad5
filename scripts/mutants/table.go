package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// result is what found that a protection is missing.
type result struct {
	Simulator string        // the promise, the fleet and the time, or empty
	Looked    time.Duration // for how long it found nothing
	Tests     string        // or empty
}

// takeOut takes protections out, one at a time on each of some processors, and prints the table.
func takeOut(list []mutant) error {
	simulated, err := contained()
	if err != nil {
		return err
	}
	for i, m := range list {
		if m.unseen == "" && m.none == "" && !m.touches(simulated) {
			list[i].unseen = absent
		}
	}
	kept, err := openResults()
	if err != nil {
		return err
	}
	rows, errs := make([]string, len(list)), make([]error, len(list))
	var wg sync.WaitGroup
	turn := make(chan struct{}, *atOnce)
	for i, m := range list {
		wg.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			rows[i], errs[i] = m.line(kept)
			fmt.Print(rows[i])
			if errs[i] != nil {
				fmt.Fprintln(os.Stderr, errs[i])
			}
		})
	}
	wg.Wait()
	if *out != "" {
		if err := os.WriteFile(*out, []byte(document(list, rows)), 0o600); err != nil {
			return err
		}
	}
	missed := 0
	for _, err := range errs {
		if err != nil {
			missed++
		}
	}
	if missed > 0 {
		return fmt.Errorf("%d of %d were not found", missed, len(list))
	}
	return nil
}

// absent is why the simulator cannot find what it does not contain.
const absent = "the simulator does not contain it"

// contained are the directories of what the simulator is built of.
func contained() (map[string]bool, error) {
	list := exec.Command("go", "list", "-test", "-deps", "-f", "{{.Dir}}", "./internal/sim")
	list.Dir, list.Stderr = *root, os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, err
	}
	dirs := map[string]bool{}
	for dir := range strings.Lines(string(out)) {
		dirs[strings.TrimSpace(dir)] = true
	}
	return dirs, nil
}

// touches reports whether it changes what is in one of the directories. The simulated servers execute no scripts.
func (m *mutant) touches(dirs map[string]bool) bool {
	for _, e := range m.edits {
		path, err := filepath.Abs(filepath.Join(*root, e.file))
		if err == nil && filepath.Ext(path) == ".go" && dirs[filepath.Dir(path)] {
			return true
		}
	}
	return false
}

// line takes one out and is its line of the table. The error says that nothing found it.
func (m *mutant) line(kept *results) (string, error) {
	if m.none != "" {
		return fmt.Sprintf("| %s | no line can be changed: %s | |\n", m.name, m.none), nil
	}
	overlay, err := m.overlay()
	if err != nil {
		return "", fmt.Errorf("%s: %w", m.name, err)
	}
	defer os.RemoveAll(filepath.Dir(overlay))
	key, err := m.key()
	if err != nil {
		return "", err
	}
	r := kept.of(key)
	length := *sim
	if m.unseen != "" {
		length = min(length, *brief)
	}
	if r.Simulator == "" && r.Looked < length && m.unseen != absent {
		if r.Simulator, err = m.simulate(overlay, length); err != nil {
			return "", err
		}
		r.Looked = length
	}
	if r.Tests == "" && *tests && m.tests != "" {
		if r.Tests, err = m.test(overlay); err != nil {
			return "", err
		}
	}
	if err := kept.keep(key, r); err != nil {
		return "", err
	}
	seen, found := r.Simulator, "`"+strings.ReplaceAll(m.tests, "|", "`, `")+"`"
	switch {
	case seen == "" && m.unseen == "" && *sim == 0:
		seen = "not asked"
	case seen == "" && m.unseen == "":
		seen, err = "**no**", fmt.Errorf("%s: not found by the simulator", m.name)
	case seen == "":
		seen = "no: " + m.unseen
	}
	switch {
	case m.tests == "":
		found = ""
	case *tests && r.Tests == "":
		found, err = "**not by** "+found, fmt.Errorf("%s: not found by %s", m.name, m.tests)
	}
	return fmt.Sprintf("| %s | %s | %s |\n", m.name, seen, found), err
}

// key is the same as long as the lines that are changed, their files, and what has to find that are.
func (m *mutant) key() (string, error) {
	h := sha256.New()
	for _, e := range m.edits {
		src, err := os.ReadFile(filepath.Join(*root, e.file))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s\x00%s\x00%s\x00%s\x00", e.file, e.old, e.new, src)
	}
	fmt.Fprintf(h, "%s\x00%s\x00%s", m.tests, m.module, m.fleet)
	return fmt.Sprintf("%x", h.Sum(nil)[:16]), nil
}

// results are what was found before, one line each.
type results struct {
	mu   sync.Mutex
	seen map[string]result
	path string
}

func openResults() (*results, error) {
	dir, err := cacheDir()
	if err != nil {
		return nil, err
	}
	r := &results{seen: map[string]result{}, path: filepath.Join(dir, "protections.json")}
	text, err := os.ReadFile(r.path)
	if os.IsNotExist(err) || *fresh {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	return r, json.Unmarshal(text, &r.seen)
}

func (rs *results) of(key string) result {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.seen[key]
}

func (rs *results) keep(key string, r result) error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.seen[key] = r
	text, err := json.Marshal(rs.seen)
	if err != nil {
		return err
	}
	return os.WriteFile(rs.path, text, 0o600)
}

// document is the page that the table is published on.
func document(list []mutant, rows []string) string {
	commit, err := exec.Command("git", "-C", *root, "describe", "--always", "--dirty").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	const head = "| protection taken out | found by the simulator | by tests |\n|---|---|---|\n"
	var all, defects strings.Builder
	for i, m := range list {
		all.WriteString(rows[i])
		if m.defect != "" {
			fmt.Fprintf(&defects, "| %s %s", m.defect, strings.TrimPrefix(rows[i], "|"))
		}
	}
	return fmt.Sprintf(`# Protections, taken out one at a time

Written by `+"`make mutants`"+`, which takes out each protection of the table in [CONTRIBUTING.md](../CONTRIBUTING.md), and looks
whether the simulator finds that within %v, and the tests that are named. Where it cannot, the table says why, and it looks for %v only.
The time includes what it takes to compile the change. Last written on %s at commit %s. What was found at
an earlier commit is not tried again while the changed files are what they were.

%s%s
## Defects that were put back

Users met these in earlier versions.

| defect %s|---%s%s`, *sim, *brief, time.Now().Format(time.DateOnly), strings.TrimSpace(string(commit)), head, all.String(),
		head[:strings.Index(head, "\n")+1], head[strings.Index(head, "\n")+1:], cmp.Or(defects.String(), "\n"))
}
