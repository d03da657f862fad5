package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// result is what found that a protection is missing.
type result struct {
	Name      string
	Key       string        // of what was tried, see mutant.key
	Simulator string        `json:",omitempty"` // the promise, the fleet and the time
	Looked    time.Duration `json:",omitempty"` // for how long the simulator found nothing
	Tests     string        `json:",omitempty"` // that find it
	Passed    bool          `json:",omitempty"` // the named tests do not find it
}

// takeOut takes those protections out whose names match, one at a time on each of some processors, prints their
// lines of the table, and writes the whole table where that is asked for.
func takeOut(list []mutant, match func(string) bool) error {
	simulated, err := contained()
	if err != nil {
		return err
	}
	for i, m := range list {
		if m.unseen == "" && m.none == "" && !m.touches(simulated) {
			list[i].unseen = absent
		}
	}
	kept, err := openResults(*found)
	if err != nil {
		return err
	}
	maps.DeleteFunc(kept.seen, func(name string, _ result) bool {
		return !slices.ContainsFunc(list, func(m mutant) bool { return m.name == name })
	})
	rows, errs := make([]result, len(list)), make([]error, len(list))
	var wg sync.WaitGroup
	turn := make(chan struct{}, *atOnce)
	for i, m := range list {
		if !match(m.name) {
			if rows[i], err = kept.of(&m); err != nil {
				return err
			}
			continue
		}
		wg.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			if rows[i], errs[i] = m.take(kept); errs[i] == nil {
				var line string
				line, errs[i] = m.line(rows[i])
				fmt.Print(line)
			}
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
		return fmt.Errorf("%d were not found", missed)
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

// touches reports whether it changes what is in one of the directories, or a script.
func (m *mutant) touches(dirs map[string]bool) bool {
	for _, e := range m.edits {
		path, err := filepath.Abs(filepath.Join(*root, e.file))
		if err == nil && filepath.Ext(path) == ".go" && dirs[filepath.Dir(path)] {
			return true
		}
	}
	return m.scripts()
}

// scripts reports whether it changes scripts alone.
func (m *mutant) scripts() bool {
	return !slices.ContainsFunc(m.edits, func(e edit) bool { return filepath.Ext(e.file) != ".lua" })
}

// take takes one out. The error says that it could not.
func (m *mutant) take(kept *results) (r result, err error) {
	if r, err = kept.of(m); err != nil || m.none != "" {
		return r, err
	}
	if *fresh {
		r = result{Name: m.name, Key: r.Key}
	}
	overlay, err := m.overlay()
	if err != nil {
		return r, fmt.Errorf("%s: %w", m.name, err)
	}
	defer os.RemoveAll(filepath.Dir(overlay))
	length := *sim
	if m.unseen != "" {
		length = min(length, *brief)
	}
	if r.Simulator == "" && r.Looked < length && m.unseen != absent {
		if r.Simulator, err = m.simulate(overlay, length); err != nil {
			return r, err
		}
		if r.Looked = 0; r.Simulator == "" {
			r.Looked = length
		}
	}
	if r.Tests == "" && *tests && m.tests != "" {
		r.Tests, err = m.test(overlay)
		r.Passed = err == nil && r.Tests == ""
	}
	return r, errors.Join(err, kept.keep(r))
}

// line is a line of the table. The error says that what looked did not find it.
func (m *mutant) line(r result) (string, error) {
	if m.none != "" {
		return fmt.Sprintf("| %s | no line can be changed: %s | |\n", m.name, m.none), nil
	}
	seen, by, err := r.Simulator, "", error(nil)
	switch {
	case seen == "" && m.unseen != "":
		seen = "no: " + m.unseen
	case seen == "" && r.Looked == 0:
		seen = "not asked yet"
	case seen == "":
		seen, err = fmt.Sprintf("**not in %v**", r.Looked), fmt.Errorf("%s: not found by the simulator", m.name)
	}
	if m.tests != "" {
		by = "`" + strings.ReplaceAll(m.tests, "|", "`, `") + "`"
	}
	switch {
	case r.Passed:
		by, err = "**not by** "+by, errors.Join(err, fmt.Errorf("%s: not found by %s", m.name, m.tests))
	case by != "" && r.Tests == "":
		by = "not tried yet: " + by
	}
	return fmt.Sprintf("| %s | %s | %s |\n", m.name, seen, by), err
}

// key is the same as long as the lines that are changed, the functions around them, and what has to find that are.
func (m *mutant) key() (string, error) {
	h := sha256.New()
	for _, e := range m.edits {
		src, err := os.ReadFile(filepath.Join(*root, e.file))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s\x00%s\x00%s\x00%s\x00", e.file, e.old, e.new, around(e, string(src)))
	}
	fmt.Fprintf(h, "%s\x00%s\x00%s", m.tests, m.module, m.fleet)
	return fmt.Sprintf("%x", h.Sum(nil)[:16]), nil
}

// around is the function, or other declaration, that contains all lines of an edit, or the whole file.
func around(e edit, src string) string {
	from := strings.Index(src, e.old)
	file, err := parser.ParseFile(token.NewFileSet(), e.file, src, parser.SkipObjectResolution)
	if from < 0 || err != nil { // of a script
		return src
	}
	for _, d := range file.Decls {
		if begin, end := int(d.Pos())-1, int(d.End())-1; begin <= from && from+len(e.old) <= end+1 {
			return src[begin:end]
		}
	}
	return src
}

// results are what was found before, one line each.
type results struct {
	mu   sync.Mutex
	seen map[string]result // by name
	path string
}

func openResults(path string) (*results, error) {
	rs := &results{seen: map[string]result{}, path: path}
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return rs, nil
	}
	for line := range strings.Lines(string(text)) {
		var r result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		rs.seen[r.Name] = r
	}
	return rs, err
}

// of is what was found of a protection, if what was tried is the same now.
func (rs *results) of(m *mutant) (result, error) {
	key, err := m.key()
	if err != nil {
		return result{}, err
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r := rs.seen[m.name]; r.Key == key {
		return r, nil
	}
	return result{Name: m.name, Key: key}, nil
}

func (rs *results) keep(r result) error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.seen[r.Name] = r
	var all bytes.Buffer
	lines := json.NewEncoder(&all)
	for _, name := range slices.Sorted(maps.Keys(rs.seen)) {
		if err := lines.Encode(rs.seen[name]); err != nil {
			return err
		}
	}
	return os.WriteFile(rs.path, all.Bytes(), 0o600)
}

// document is the page that the table is published on.
func document(list []mutant, rows []result) string {
	commit, err := exec.Command("git", "-C", *root, "describe", "--always", "--dirty").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	const head = "| protection taken out | found by the simulator | by tests |\n|---|---|---|\n"
	var all, defects strings.Builder
	var none, without, seen, reasons, looked, byTests int
	for i, m := range list {
		r := rows[i]
		row, _ := m.line(r)
		all.WriteString(row)
		if m.defect != "" {
			fmt.Fprintf(&defects, "| %s %s", m.defect, row)
		}
		if r.Tests != "" {
			byTests++
		}
		switch {
		case m.none != "":
			none++
		case r.Simulator != "":
			seen++
		case m.unseen == absent:
			without++
		case m.unseen != "":
			reasons++
			if r.Looked > 0 {
				looked++
			}
		}
	}
	return fmt.Sprintf(`# Protections, taken out one at a time

Written by `+"`make mutants`"+`, which takes out each protection of the table in [CONTRIBUTING.md](../CONTRIBUTING.md), some of them in several
ways, two at a time, and looks whether the simulator finds that, in the kept fleets (`+"`go test ./internal/sim -run TestKept`"+`) and then in others for a minute, and whether the
tests that are named do. The time includes what it takes to compile the change. What was found at an earlier commit is not tried again while the changed
functions are what they were (`+"`scripts/mutants/found.jsonl`"+`). Last written on %s at commit %s.

Of %d, the simulator found %d, and does not contain what %d change. Of %d the table says why it cannot find them; it looked for %d of these as
well, and found none. The tests found %d. Of %d no line can be changed.

%s%s
## Defects that were put back

Users met these in earlier versions.

| defect %s|---%s%s`, time.Now().Format(time.DateOnly), strings.TrimSpace(string(commit)), len(list), seen, without, reasons, looked, byTests, none,
		head, all.String(), head[:strings.Index(head, "\n")+1], head[strings.Index(head, "\n")+1:], cmp.Or(defects.String(), "\n"))
}
